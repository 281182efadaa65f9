//! What ranks say to one another.
//!
//! # For callers
//! All ranks of a communicator call the same collectives in the same order with the same dtype and
//! length. A collective takes the buffer and gives it back in [`Work::wait`]; several may be in
//! flight. Every wait has the group's deadline.
//!
//! # For implementers
//! Check arguments with [`check::root`](crate::check::root), [`check::chunks`](crate::check::chunks)
//! and [`check::reducible`](crate::check::reducible) before anything is sent: a refused call sends
//! nothing, and the next one works.
//!
//! Vendors' own orders of addition are allowed in `all_reduce` and `reduce_scatter`, but all ranks
//! must get equal bits, and equal inputs must give equal bits in every run. 16-bit floats are
//! summed in `f32`.

use std::fmt::Debug;

use crate::{Device, Error, Memory, Result, Work};

/// How a reducing collective combines values, of every dtype but `U8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum over ranks.
    Sum,
    /// The largest over ranks; NaN if any is NaN.
    Max,
    /// The smallest over ranks; NaN if any is NaN.
    Min,
}

/// The buffer type a communicator moves.
pub type BufferOf<C> = <<C as Communicator>::Device as Memory>::Buffer;

/// A group of ranks and what they can do together.
pub trait Communicator: Clone + Debug + Send + Sync + 'static {
    /// The device whose buffers travel; a foreign buffer does not compile.
    type Device: Device;

    /// This process's number, `0..size`.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// A communicator among the ranks that give the same `color`, ranked by `(key, old rank)`.
    /// A collective itself.
    fn split(&self, color: usize, key: usize) -> Result<Self>;

    /// Every rank gets `root`'s values.
    ///
    /// # Errors
    /// A root that is not a rank.
    fn broadcast(&self, buffer: BufferOf<Self>, root: usize) -> Result<Work<BufferOf<Self>>>;

    /// The shards of all ranks, in rank order: `size` times the length.
    fn all_gather(&self, shard: BufferOf<Self>) -> Result<Work<BufferOf<Self>>>;

    /// `size` chunks of equal length: chunk `i` goes to rank `i`, and the result holds the chunk
    /// of each rank in rank order.
    ///
    /// # Errors
    /// A length that `size` does not divide.
    fn all_to_all(&self, chunks: BufferOf<Self>) -> Result<Work<BufferOf<Self>>>;

    /// Every rank gets the combination of all buffers.
    ///
    /// # Errors
    /// Values of `U8`.
    fn all_reduce(&self, buffer: BufferOf<Self>, op: ReduceOp) -> Result<Work<BufferOf<Self>>>;

    /// Rank `r` gets chunk `r` of the combination of all buffers.
    ///
    /// # Errors
    /// A length that `size` does not divide; values of `U8`.
    fn reduce_scatter(&self, buffer: BufferOf<Self>, op: ReduceOp) -> Result<Work<BufferOf<Self>>>;

    /// Returns when every rank has called it.
    fn barrier(&self) -> Result<()>;

    /// Ends every rank of the group with `why`. Where ranks share a process, their calls in progress
    /// and later ones return an error that holds it, also on communicators split from this one.
    fn abort(&self, why: &Error);
}
