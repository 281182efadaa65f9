//! A slice that several threads fill, each its own part.

use std::marker::PhantomData;
use std::slice;

/// Mutable elements shared among the tasks of one parallel loop.
pub(crate) struct Slots<'a, T> {
    start: *mut T,
    len: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: every access is through an unsafe method that asks for disjoint parts.
unsafe impl<T: Send> Sync for Slots<'_, T> {}

impl<'a, T: Copy> Slots<'a, T> {
    /// The elements of `values`.
    pub(crate) fn new(values: &'a mut [T]) -> Self {
        Slots { start: values.as_mut_ptr(), len: values.len(), _borrow: PhantomData }
    }

    /// Sets one element.
    ///
    /// # Safety
    /// No other task touches it.
    pub(crate) unsafe fn set(&self, index: usize, value: T) {
        assert!(index < self.len, "slot {index} of {}", self.len);
        // SAFETY: inside the slice; the caller's promise.
        unsafe { self.start.add(index).write(value) };
    }

    /// `len` elements from `at` on.
    ///
    /// # Safety
    /// No other task touches them while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn run(&self, at: usize, len: usize) -> &'a mut [T] {
        assert!(at <= self.len && len <= self.len - at, "slots {at} + {len} of {}", self.len);
        // SAFETY: inside the slice; the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}
