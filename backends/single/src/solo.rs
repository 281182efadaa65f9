//! The world of one rank.
//!
//! Every collective is the identity: what a single rank would send to itself is what it holds.
//! A program that trains on one process runs the same code as one on many and pays for nothing.
//!
//! Arguments are checked as every communicator checks them, so a root that does not exist is found
//! on one rank and not first on a cluster.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use sneppx_contract::{BufferOf, Communicator, Device, Error, ReduceOp, Result, Work, check};

/// The communicator of a single process.
///
/// Clones and what [`Communicator::split`] gives are one group: after [`Communicator::abort`] each
/// of them refuses every call with the reason.
///
/// ```
/// use sneppx_contract::{Communicator, HostSlice, Memory, ReduceOp};
/// use sneppx_cpu::{Cpu, CpuOptions};
/// use sneppx_single::Solo;
///
/// let device = Cpu::new(CpuOptions::default())?;
/// let world = Solo::<Cpu>::new();
/// let buffer = device.upload(HostSlice::F32(&[1.0, 2.0]))?;
/// let sum = world.all_reduce(buffer, ReduceOp::Sum)?.wait()?;
/// assert_eq!(device.download(&sum)?.to_f64(), [1.0, 2.0]);
/// assert_eq!((world.rank(), world.size()), (0, 1));
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
pub struct Solo<D> {
    ended: Arc<OnceLock<Error>>,
    // A function, because no device is held: the communicator may travel where a device may not.
    device: PhantomData<fn() -> D>,
}

impl<D> Solo<D> {
    /// A world of its own; nothing to connect to, so nothing that can fail.
    pub fn new() -> Self {
        Solo { ended: Arc::new(OnceLock::new()), device: PhantomData }
    }

    /// Refuses the call if the group was ended.
    fn open(&self, operation: &'static str) -> Result<()> {
        match self.ended.get() {
            None => Ok(()),
            Some(why) => {
                let detail = format!("the group was ended: {why}");
                Err(Error::Peer { rank: 0, operation, detail })
            }
        }
    }

    /// What every collective does here.
    fn identity<T: Send + 'static>(&self, operation: &'static str, value: T) -> Result<Work<T>> {
        self.open(operation)?;
        Ok(Work::ready(value))
    }
}

impl<D> Default for Solo<D> {
    fn default() -> Self {
        Solo::new()
    }
}

impl<D> Clone for Solo<D> {
    fn clone(&self) -> Self {
        Solo { ended: Arc::clone(&self.ended), device: PhantomData }
    }
}

impl<D> fmt::Debug for Solo<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Solo").field("ended", &self.ended.get()).finish()
    }
}

impl<D: Device> Communicator for Solo<D> {
    type Device = D;

    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    /// This rank alone, whatever its color and key are.
    fn split(&self, _color: usize, _key: usize) -> Result<Self> {
        self.open("split")?;
        Ok(self.clone())
    }

    fn broadcast(&self, buffer: BufferOf<Self>, root: usize) -> Result<Work<BufferOf<Self>>> {
        check::root(root, 1)?;
        self.identity("broadcast", buffer)
    }

    fn all_gather(&self, shard: BufferOf<Self>) -> Result<Work<BufferOf<Self>>> {
        self.identity("all_gather", shard)
    }

    fn all_to_all(&self, chunks: BufferOf<Self>) -> Result<Work<BufferOf<Self>>> {
        self.identity("all_to_all", chunks)
    }

    fn all_reduce(&self, buffer: BufferOf<Self>, _op: ReduceOp) -> Result<Work<BufferOf<Self>>> {
        check::reducible("all_reduce", &buffer)?;
        self.identity("all_reduce", buffer)
    }

    fn reduce_scatter(
        &self,
        buffer: BufferOf<Self>,
        _op: ReduceOp,
    ) -> Result<Work<BufferOf<Self>>> {
        check::reducible("reduce_scatter", &buffer)?;
        self.identity("reduce_scatter", buffer)
    }

    fn barrier(&self) -> Result<()> {
        self.open("barrier")
    }

    /// Ends this group; the first reason counts.
    fn abort(&self, why: &Error) {
        // A second reason follows from the first and would hide it.
        let _ = self.ended.set(why.clone());
    }
}
