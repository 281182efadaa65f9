//! Loops over blocks of fixed size.
//!
//! Where a block begins and ends depends on sizes alone, so what is computed in it does not depend
//! on how many threads there are; which thread computes it does not matter.

use std::ops::Range;

use rayon::prelude::*;

/// Work below this many elementary operations is done where it is: waking a thread costs some
/// microseconds, in which a vectorised loop gets this far.
pub(crate) const SERIAL_BELOW: usize = 1 << 15;

/// Calls `body` with `0..block`, `block..2 * block`, … up to `len`; `cost` is the number of
/// elementary operations of the whole loop.
///
/// Neighbouring blocks stay on one thread, and two loops over the same memory tend to give the
/// same part to the same thread, whose cache may still hold it.
pub(crate) fn for_each_block(
    len: usize,
    block: usize,
    cost: usize,
    body: impl Fn(Range<usize>) + Sync,
) {
    let block = block.max(1);
    let blocks = len.div_ceil(block);
    for_each_index(blocks, cost, |index| {
        let start = index * block;
        body(start..len.min(start + block));
    });
}

/// Calls `body` with every index below `count`; `cost` is as in [`for_each_block`].
pub(crate) fn for_each_index(count: usize, cost: usize, body: impl Fn(usize) + Sync) {
    let threads = rayon::current_num_threads();
    if threads == 1 || count < 2 || cost < SERIAL_BELOW {
        return (0..count).for_each(body);
    }
    // A few tasks per thread balance what the system takes away from one of them.
    let per_task = count.div_ceil(threads * 4);
    (0..count).into_par_iter().with_min_len(per_task).for_each(&body);
}

/// The value of `body` for every index below `count`, in order.
pub(crate) fn map_indices<R: Send>(
    count: usize,
    cost: usize,
    body: impl Fn(usize) -> R + Sync + Send,
) -> Vec<R> {
    if rayon::current_num_threads() == 1 || count < 2 || cost < SERIAL_BELOW {
        return (0..count).map(body).collect();
    }
    (0..count).into_par_iter().map(body).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn blocks_cover_the_range_once_for_any_number_of_threads() {
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for len in [0, 1, 7, 8, 9, 1000] {
                let seen = Mutex::new(Vec::new());
                pool.install(|| {
                    for_each_block(len, 8, SERIAL_BELOW, |range| seen.lock().unwrap().push(range));
                });
                let mut seen = seen.into_inner().unwrap();
                seen.sort_by_key(|range| range.start);
                let want: Vec<_> = (0..len).step_by(8).map(|at| at..len.min(at + 8)).collect();
                assert_eq!(seen, want, "{len} elements on {threads} threads");
            }
            let values = pool.install(|| map_indices(100, SERIAL_BELOW, |index| index * 2));
            assert!(values.into_iter().eq((0..100).map(|index| index * 2)));
        }
    }
}
