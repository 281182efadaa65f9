//! A device whose fused kernels are the contract's compositions.

use std::ops::Range;

use crate::{
    BinaryOp, CompareOp, DType, Device, Distribution, HostSlice, HostVec, Kernels, Memory,
    MemoryStats, RandomKey, ReduceKind, Result, Store, UnaryOp, ViewOf,
};

/// A device that forwards its memory and the required kernels to another and overrides nothing.
///
/// A check that runs on a device and on its `Composed` twin holds the overrides and what they
/// replace to the same promise.
#[derive(Clone, Debug)]
pub struct Composed<D>(D);

impl<D: Device> Composed<D> {
    /// The twin of `device`; buffers of one are buffers of the other.
    pub fn of(device: &D) -> Self {
        Composed(device.clone())
    }
}

impl<D: Device> Memory for Composed<D> {
    type Buffer = D::Buffer;

    fn name(&self) -> String {
        format!("{}, composed", self.0.name())
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer> {
        self.0.alloc(dtype, len)
    }

    fn upload(&self, host: HostSlice<'_>) -> Result<Self::Buffer> {
        self.0.upload(host)
    }

    fn write(&self, host: HostSlice<'_>, buffer: &Self::Buffer, offset: usize) -> Result<()> {
        self.0.write(host, buffer, offset)
    }

    fn read(&self, buffer: &Self::Buffer, range: Range<usize>) -> Result<HostVec> {
        self.0.read(buffer, range)
    }

    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    fn memory(&self) -> MemoryStats {
        self.0.memory()
    }

    fn reset_peak(&self) {
        self.0.reset_peak();
    }

    fn enter<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        self.0.enter(body)
    }
}

impl<D: Device> Kernels for Composed<D> {
    fn fill(&self, value: f64, out: ViewOf<'_, Self>) -> Result<()> {
        self.0.fill(value, out)
    }

    fn copy(&self, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>) -> Result<()> {
        self.0.copy(x, out)
    }

    fn cast(&self, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>) -> Result<()> {
        self.0.cast(x, out)
    }

    fn scaled_add(
        &self,
        alpha: f64,
        x: ViewOf<'_, Self>,
        beta: f64,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.scaled_add(alpha, x, beta, out)
    }

    fn unary(&self, op: UnaryOp, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>) -> Result<()> {
        self.0.unary(op, x, out)
    }

    fn unary_backward(
        &self,
        op: UnaryOp,
        x: ViewOf<'_, Self>,
        dy: ViewOf<'_, Self>,
        dx: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.unary_backward(op, x, dy, dx)
    }

    fn binary(
        &self,
        op: BinaryOp,
        a: ViewOf<'_, Self>,
        b: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.binary(op, a, b, out)
    }

    fn compare(
        &self,
        op: CompareOp,
        a: ViewOf<'_, Self>,
        b: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.compare(op, a, b, out)
    }

    fn select(
        &self,
        condition: ViewOf<'_, Self>,
        a: ViewOf<'_, Self>,
        b: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.select(condition, a, b, out)
    }

    fn reduce(
        &self,
        kind: ReduceKind,
        x: ViewOf<'_, Self>,
        store: Store,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.reduce(kind, x, store, out)
    }

    fn matmul(
        &self,
        alpha: f64,
        a: ViewOf<'_, Self>,
        b: ViewOf<'_, Self>,
        beta: f64,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.matmul(alpha, a, b, beta, out)
    }

    fn index_select(
        &self,
        table: ViewOf<'_, Self>,
        indices: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.index_select(table, indices, out)
    }

    fn index_add(
        &self,
        indices: ViewOf<'_, Self>,
        source: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.index_add(indices, source, out)
    }

    fn random(
        &self,
        distribution: Distribution,
        key: RandomKey,
        offset: u64,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        self.0.random(distribution, key, offset, out)
    }
}
