//! A pool of memory blocks, so that a training step after the first asks nothing of the system.
//!
//! Requests are rounded up to size classes a sixteenth of a power of two apart. A request takes
//! the smallest free block that is at most a quarter too large, the most recently used of its size
//! first, because that one is likeliest to be in the cache. A block's first content is zero; later
//! ones are whatever was left in it, which is valid for every dtype.
//!
//! Free blocks are kept until they and the live ones exceed the highest live demand so far by
//! half; then those that have been idle longest go back to the system.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sneppx_contract::MemoryStats;

/// Every block starts at a multiple of this: a cache line, and the widest vector register.
pub(crate) const ALIGNMENT: usize = 64;

/// Free memory below this many bytes is never given back: it is not worth the calls.
const ALWAYS_KEPT: usize = 32 << 20;

/// Memory owned by whoever holds this value; it must come back to its pool.
pub(crate) struct Block {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a block is plain memory that nothing else points to; it can change threads.
unsafe impl Send for Block {}
// SAFETY: sharing a block shares an address; access to the bytes is guarded by the buffer.
unsafe impl Sync for Block {}

impl Block {
    /// The first byte; dangling but aligned for a block of no bytes.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn empty() -> Self {
        // ALIGNMENT is not zero, and an address of a zero-sized block is never read.
        let start = NonNull::new(ALIGNMENT as *mut u8).unwrap_or(NonNull::dangling());
        Block { start, capacity: 0 }
    }

    fn from_system(capacity: usize) -> Option<Self> {
        let layout = Layout::from_size_align(capacity, ALIGNMENT).ok()?;
        // SAFETY: `capacity` is not zero: the smallest class is 64.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Block { start, capacity })
    }

    fn into_system(self) {
        if self.capacity > 0 {
            // SAFETY: `from_system` made the block with this size and alignment, and nobody else
            // holds it.
            unsafe {
                let layout = Layout::from_size_align_unchecked(self.capacity, ALIGNMENT);
                dealloc(self.start.as_ptr(), layout);
            }
        }
    }
}

/// Blocks that can be handed out, and counts of those that are.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Free blocks by capacity, each with the tick at which it came back; the latest at the end.
    free: BTreeMap<usize, Vec<(u64, Block)>>,
    tick: u64,
    live_bytes: usize,
    peak_bytes: usize,
    live_capacity: usize,
    peak_capacity: usize,
    pooled_bytes: usize,
    system_allocations: u64,
}

impl Pool {
    /// A block of at least `bytes`; `None` when the system has no memory left.
    pub(crate) fn take(&self, bytes: usize) -> Option<Block> {
        if bytes == 0 {
            return Some(Block::empty());
        }
        let class = size_class(bytes)?;
        let mut state = self.lock();
        let block = match state.take_free(class) {
            Some(block) => block,
            None => {
                state.system_allocations += 1;
                match Block::from_system(class) {
                    Some(block) => block,
                    None => {
                        state.trim(0);
                        Block::from_system(class)?
                    }
                }
            }
        };
        state.live_bytes += bytes;
        state.peak_bytes = state.peak_bytes.max(state.live_bytes);
        state.live_capacity += block.capacity;
        state.peak_capacity = state.peak_capacity.max(state.live_capacity);
        Some(block)
    }

    /// Takes a block back that was taken for `bytes`.
    pub(crate) fn give_back(&self, block: Block, bytes: usize) {
        if block.capacity == 0 {
            return;
        }
        let mut state = self.lock();
        state.live_bytes -= bytes;
        state.live_capacity -= block.capacity;
        state.pooled_bytes += block.capacity;
        state.tick += 1;
        let tick = state.tick;
        state.free.entry(block.capacity).or_default().push((tick, block));
        let limit = state.peak_capacity + state.peak_capacity / 2 + ALWAYS_KEPT;
        let keep = limit.saturating_sub(state.live_capacity);
        if state.pooled_bytes > keep {
            state.trim(keep);
        }
    }

    /// Gives every free block back to the system.
    pub(crate) fn trim(&self) {
        self.lock().trim(0);
    }

    /// Current figures.
    pub(crate) fn stats(&self) -> MemoryStats {
        let state = self.lock();
        let mut stats = MemoryStats::default();
        stats.live_bytes = state.live_bytes;
        stats.peak_bytes = state.peak_bytes;
        stats.pooled_bytes = state.pooled_bytes;
        stats.system_allocations = state.system_allocations;
        stats
    }

    /// Sets the peak to what is live now.
    pub(crate) fn reset_peak(&self) {
        let mut state = self.lock();
        state.peak_bytes = state.live_bytes;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock can panic half way, so the figures are whole even then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_free(&mut self, class: usize) -> Option<Block> {
        let (&capacity, blocks) = self.free.range_mut(class..=class + class / 4).next()?;
        let (_, block) = blocks.pop()?;
        if blocks.is_empty() {
            self.free.remove(&capacity);
        }
        self.pooled_bytes -= capacity;
        Some(block)
    }

    /// Frees the blocks idle longest until at most `keep` bytes are left.
    fn trim(&mut self, keep: usize) {
        while self.pooled_bytes > keep {
            let oldest = self.free.iter().filter_map(|(&capacity, blocks)| {
                blocks.first().map(|&(tick, _)| (tick, capacity))
            });
            let Some((_, capacity)) = oldest.min() else { return };
            let Some(blocks) = self.free.get_mut(&capacity) else { return };
            let (_, block) = blocks.remove(0);
            if blocks.is_empty() {
                self.free.remove(&capacity);
            }
            self.pooled_bytes -= capacity;
            block.into_system();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim();
    }
}

/// `bytes` rounded up to the next class; `None` if that cannot be counted.
fn size_class(bytes: usize) -> Option<usize> {
    let step = (bytes.checked_next_power_of_two()? / 16).max(ALIGNMENT);
    bytes.checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_waste_at_most_an_eighth_of_large_requests() {
        for bytes in [1, 63, 64, 65, 1000, 4097, 1 << 20, (1 << 20) + 1, 123_456_789] {
            let class = size_class(bytes).unwrap();
            assert!(class >= bytes && class.is_multiple_of(ALIGNMENT), "{bytes} -> {class}");
            assert!(class - bytes <= (bytes / 8).max(ALIGNMENT), "{bytes} -> {class}");
        }
        assert_eq!(size_class(usize::MAX), None);
    }

    #[test]
    fn a_freed_block_is_reused_and_counted() {
        let pool = Pool::default();
        let first = pool.take(1000).unwrap();
        let address = first.start();
        pool.give_back(first, 1000);
        assert_eq!((pool.stats().live_bytes, pool.stats().pooled_bytes), (0, 1024));
        let second = pool.take(900).unwrap();
        assert_eq!(second.start(), address);
        let stats = pool.stats();
        assert_eq!((stats.live_bytes, stats.peak_bytes, stats.pooled_bytes), (900, 1000, 0));
        assert_eq!(stats.system_allocations, 1);
        pool.give_back(second, 900);
    }

    #[test]
    fn a_much_larger_block_is_not_wasted_on_a_small_request() {
        let pool = Pool::default();
        let large = pool.take(1 << 20).unwrap();
        pool.give_back(large, 1 << 20);
        let small = pool.take(1 << 18).unwrap();
        assert_eq!(pool.stats().system_allocations, 2);
        assert_eq!(pool.stats().pooled_bytes, 1 << 20);
        pool.give_back(small, 1 << 18);
    }

    #[test]
    fn pooled_memory_is_bounded_by_the_demand_and_the_oldest_goes_first() {
        let pool = Pool::default();
        // Sizes that never fit one another: without a bound all of it would be kept.
        let mut total = 0;
        let mut size = 8 << 20;
        for _ in 0..12 {
            let block = pool.take(size).unwrap();
            total += block.capacity;
            pool.give_back(block, size);
            size = size * 4 / 3;
        }
        let kept = pool.stats().pooled_bytes;
        let largest = size_class(size * 3 / 4).unwrap();
        assert!(kept <= largest + largest / 2 + ALWAYS_KEPT, "{kept}");
        assert!(kept < total, "{kept} of {total}");
        pool.trim();
        assert_eq!(pool.stats().pooled_bytes, 0);
    }

    #[test]
    fn memory_fresh_from_the_system_is_zero() {
        let block = Pool::default().take(4096).unwrap();
        // SAFETY: the block has 4096 bytes, all written by the allocator.
        let bytes = unsafe { std::slice::from_raw_parts(block.start().as_ptr(), 4096) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        block.into_system();
    }
}
