//! Shared memory that knows its dtype and who is using it.
//!
//! Handles are shared, so the compiler cannot prove that nobody reads what another call writes.
//! Each storage counts its readers and its one writer; a guard that would break the rule is
//! refused with [`Error::BufferInUse`], never waited for: a wait could be for oneself.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sneppx_contract::{Buffer, DType, Element, Error, Result};

use crate::pool::{Block, Pool};

/// The state of a storage that is being written; any other number counts readers.
const WRITER: u32 = u32::MAX;

/// A handle to memory of the CPU device.
#[derive(Clone)]
pub struct CpuBuffer {
    storage: Arc<Storage>,
    dtype: DType,
    len: usize,
}

/// Elements of a buffer that nobody can write while this lives.
pub struct ReadGuard<'a, T> {
    values: &'a [T],
    _claim: Claim<'a>,
}

/// Elements of a buffer that nobody else can touch while this lives.
pub struct WriteGuard<'a, T> {
    values: &'a mut [T],
    _claim: Claim<'a>,
}

impl CpuBuffer {
    /// `len` elements from `pool`; `None` when there is no memory left.
    pub(crate) fn from_pool(pool: &Arc<Pool>, dtype: DType, len: usize) -> Option<Self> {
        let bytes = len.checked_mul(dtype.size())?;
        let block = Some(pool.take(bytes)?);
        let storage = Storage { block, bytes, state: AtomicU32::new(0), pool: pool.clone() };
        Some(CpuBuffer { storage: Arc::new(storage), dtype, len })
    }

    /// Every element, to be read.
    ///
    /// # Errors
    /// Another dtype; [`Error::BufferInUse`] while somebody writes.
    pub fn read<T: Element>(&self) -> Result<ReadGuard<'_, T>> {
        self.expect::<T>("read")?;
        let claim = self.claim_shared("read")?;
        // SAFETY: the storage has `len` elements of T, initialised and aligned to 64 bytes; the
        // claim keeps writers out while the guard lives.
        let values = unsafe { slice::from_raw_parts(self.start::<T>().as_ptr(), self.len) };
        Ok(ReadGuard { values, _claim: claim })
    }

    /// Every element, to be read and written.
    ///
    /// # Errors
    /// Another dtype; [`Error::BufferInUse`] while somebody reads or writes.
    pub fn write<T: Element>(&self) -> Result<WriteGuard<'_, T>> {
        self.expect::<T>("write")?;
        let claim = self.claim_exclusive("write")?;
        // SAFETY: as in `read`; the claim keeps everybody else out while the guard lives.
        let values = unsafe { slice::from_raw_parts_mut(self.start::<T>().as_ptr(), self.len) };
        Ok(WriteGuard { values, _claim: claim })
    }

    /// The first element. Whoever goes through the pointer needs a claim.
    pub(crate) fn start<T>(&self) -> NonNull<T> {
        self.storage.block.as_ref().map_or(NonNull::dangling(), |block| block.start().cast())
    }

    /// Joins the readers.
    pub(crate) fn claim_shared(&self, operation: &'static str) -> Result<Claim<'_>> {
        let join = |state| (state < WRITER - 1).then(|| state + 1);
        self.claim(operation, join)
    }

    /// Becomes the writer.
    pub(crate) fn claim_exclusive(&self, operation: &'static str) -> Result<Claim<'_>> {
        self.claim(operation, |state| (state == 0).then_some(WRITER))
    }

    fn claim(
        &self,
        operation: &'static str,
        next: impl Fn(u32) -> Option<u32>,
    ) -> Result<Claim<'_>> {
        // Acquire pairs with the release in `Claim::drop`: what the last holder wrote is visible.
        let state = &self.storage.state;
        match state.fetch_update(Ordering::Acquire, Ordering::Relaxed, next) {
            Ok(_) => Ok(Claim { state, _borrow: PhantomData }),
            Err(_) => Err(Error::BufferInUse { operation, bytes: self.storage.bytes }),
        }
    }

    fn expect<T: Element>(&self, operation: &'static str) -> Result<()> {
        if self.dtype == T::DTYPE {
            return Ok(());
        }
        Err(Error::dtype(operation, T::DTYPE.name(), self.dtype))
    }
}

impl Buffer for CpuBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }

    fn same_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }
}

impl fmt::Debug for CpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuBuffer({} x {})", self.len, self.dtype)
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.values
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.values
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.values
    }
}

/// A place among the readers, or the writer's place; given up on drop.
pub(crate) struct Claim<'a> {
    state: &'a AtomicU32,
    _borrow: PhantomData<&'a CpuBuffer>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let leave = |state| Some(if state == WRITER { 0 } else { state - 1 });
        // The closure always gives a value, so the update cannot fail.
        let _ = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, leave);
    }
}

struct Storage {
    /// `None` only while the storage is being dropped.
    block: Option<Block>,
    bytes: usize,
    state: AtomicU32,
    pool: Arc<Pool>,
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.give_back(block, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer() -> CpuBuffer {
        CpuBuffer::from_pool(&Arc::default(), DType::F32, 4).unwrap()
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let buffer = buffer();
        let first = buffer.read::<f32>().unwrap();
        let second = buffer.read::<f32>().unwrap();
        assert!(matches!(buffer.write::<f32>(), Err(Error::BufferInUse { bytes: 16, .. })));
        drop((first, second));
        let mut writer = buffer.write::<f32>().unwrap();
        writer[3] = 5.0;
        assert!(matches!(buffer.clone().read::<f32>(), Err(Error::BufferInUse { .. })));
        assert!(matches!(buffer.write::<f32>(), Err(Error::BufferInUse { .. })));
        drop(writer);
        assert_eq!(*buffer.read::<f32>().unwrap(), [0.0, 0.0, 0.0, 5.0]);
    }

    #[test]
    fn a_guard_of_another_dtype_is_refused() {
        assert!(matches!(buffer().read::<f64>(), Err(Error::DType { .. })));
        assert!(matches!(buffer().write::<u32>(), Err(Error::DType { .. })));
        assert!(buffer().write::<f32>().is_ok());
    }

    #[test]
    fn storages_start_at_a_cache_line() {
        for len in [0, 1, 77] {
            let buffer = CpuBuffer::from_pool(&Arc::default(), DType::F64, len).unwrap();
            assert_eq!(buffer.start::<f64>().as_ptr() as usize % crate::pool::ALIGNMENT, 0);
        }
    }
}
