//! Where memory lives and in what order work runs.
//!
//! # For callers
//! A buffer is a handle: clones name the same memory. Work on the buffers of one device is ordered
//! as if each call had finished before the next began, whatever queue stands behind it. The first
//! error of a queue poisons the device: that call or a later one returns it, `synchronize` at the
//! latest.
//!
//! # For implementers
//! `alloc` and `upload` come from a pool, so that a training step after the first asks nothing of
//! the system. Memory handed out holds some valid value of its dtype, never uninitialised bytes.
//! A backend that cannot prove at compile time that a buffer is not read and written at once
//! checks at run time and returns [`Error::BufferInUse`](crate::Error::BufferInUse).

use std::fmt::Debug;
use std::ops::Range;

use crate::{DType, HostSlice, HostVec, Kernels, Layout, Result};

/// A reference-counted piece of device memory that knows its dtype and length.
pub trait Buffer: Clone + Debug + Send + Sync + 'static {
    /// The type of every element.
    fn dtype(&self) -> DType;
    /// The number of elements.
    fn len(&self) -> usize;
    /// Whether there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether both handles name the same memory.
    fn same_memory(&self, other: &Self) -> bool;
}

/// A buffer together with the layout of one tensor in it: what kernels read and write.
#[derive(Debug)]
pub struct View<'a, B> {
    /// The memory.
    pub buffer: &'a B,
    /// Where the elements lie in it.
    pub layout: Layout,
}

impl<B> Clone for View<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for View<'_, B> {}

impl<'a, B: Buffer> View<'a, B> {
    /// The elements of `buffer` that `layout` names.
    pub fn new(buffer: &'a B, layout: Layout) -> Self {
        View { buffer, layout }
    }

    /// Every element of `buffer`, as one dimension.
    pub fn whole(buffer: &'a B) -> Self {
        View { buffer, layout: Layout::flat(0, buffer.len()) }
    }

    /// The type of every element.
    pub fn dtype(&self) -> DType {
        self.buffer.dtype()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }
}

/// The view type of device `M`.
pub type ViewOf<'a, M> = View<'a, <M as Memory>::Buffer>;

/// How much memory a device uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes in buffers that somebody holds.
    pub live_bytes: usize,
    /// The highest `live_bytes` since the start or the last [`Memory::reset_peak`].
    pub peak_bytes: usize,
    /// Bytes kept for reuse that nobody holds.
    pub pooled_bytes: usize,
    /// How many times memory was asked of the system. Flat once training is under way.
    pub system_allocations: u64,
}

/// Memory of one device and the order of its work.
pub trait Memory: Clone + Debug + Send + Sync + 'static {
    /// The device's memory handle.
    type Buffer: Buffer;

    /// What the device calls itself, for messages and logs.
    fn name(&self) -> String;

    /// `len` elements of unspecified but valid content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer>;

    /// A buffer with a copy of `host`.
    ///
    /// # Errors
    /// As [`Memory::alloc`].
    fn upload(&self, host: HostSlice<'_>) -> Result<Self::Buffer>;

    /// Overwrites the elements of `buffer` from `offset` on with `host`.
    ///
    /// # Errors
    /// Another dtype, or a range outside the buffer.
    fn write(&self, host: HostSlice<'_>, buffer: &Self::Buffer, offset: usize) -> Result<()>;

    /// A copy of elements `range`, after all earlier work on them.
    ///
    /// # Errors
    /// A range outside the buffer; the device's deferred errors.
    fn read(&self, buffer: &Self::Buffer, range: Range<usize>) -> Result<HostVec>;

    /// A copy of every element.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn download(&self, buffer: &Self::Buffer) -> Result<HostVec> {
        self.read(buffer, 0..buffer.len())
    }

    /// Returns when all earlier work is done.
    ///
    /// # Errors
    /// The first deferred error.
    fn synchronize(&self) -> Result<()>;

    /// Current figures.
    fn memory(&self) -> MemoryStats;

    /// Sets the peak to what is live now.
    fn reset_peak(&self);

    /// Runs `body` where the device works best, for instance inside its thread pool. Calls from
    /// elsewhere give the same results and may be slower.
    fn enter<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        body()
    }
}

/// What models are generic over: memory and arithmetic together.
pub trait Device: Kernels {}

impl<K: Kernels> Device for K {}
