//! Intermediate values of a composition.
//!
//! A [`Scratch`] is a tensor of the device that lives for one call. Operations never change one;
//! they give a new one, broadcast by the usual rule, in the dtype of their operands.

use crate::{
    BinaryOp, CompareOp, DType, Kernels, Layout, ReduceKind, Result, Shape, Store, UnaryOp, View,
    ViewOf,
};

/// A value between the operands of a composition and its results.
pub(super) struct Scratch<'d, K: Kernels> {
    device: &'d K,
    buffer: K::Buffer,
    layout: Layout,
}

impl<'d, K: Kernels> Scratch<'d, K> {
    /// The values of `view` in its accumulator dtype: its own memory where that is its dtype.
    pub(super) fn wide(device: &'d K, view: ViewOf<'_, K>) -> Result<Self> {
        let dtype = view.dtype().accumulator();
        if view.dtype() == dtype {
            return Ok(Self::of(device, view));
        }
        let out = Self::dense(device, dtype, *view.layout.shape())?;
        device.cast(view, out.view())?;
        Ok(out)
    }

    /// The very values of `view`, in its dtype and memory.
    pub(super) fn of(device: &'d K, view: ViewOf<'_, K>) -> Self {
        Scratch { device, buffer: view.buffer.clone(), layout: view.layout }
    }

    /// One value, to be broadcast.
    pub(super) fn constant(device: &'d K, dtype: DType, value: f64) -> Result<Self> {
        let out = Self::dense(device, dtype, Shape::SCALAR)?;
        device.fill(value, out.view())?;
        Ok(out)
    }

    /// Memory of its own with unspecified values.
    pub(super) fn dense(device: &'d K, dtype: DType, shape: Shape) -> Result<Self> {
        let buffer = device.alloc(dtype, shape.numel())?;
        Ok(Scratch { device, buffer, layout: Layout::contiguous(shape) })
    }

    pub(super) fn view(&self) -> ViewOf<'_, K> {
        View::new(&self.buffer, self.layout)
    }

    pub(super) fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    fn dtype(&self) -> DType {
        self.view().dtype()
    }

    // ---- arithmetic ----------------------------------------------------------------------------

    pub(super) fn unary(&self, op: UnaryOp) -> Result<Self> {
        let out = Self::dense(self.device, self.dtype(), *self.shape())?;
        self.device.unary(op, self.view(), out.view())?;
        Ok(out)
    }

    /// `op'(self) * dy`.
    pub(super) fn unary_backward(&self, op: UnaryOp, dy: &Self) -> Result<Self> {
        let out = Self::dense(self.device, self.dtype(), *self.shape())?;
        self.device.unary_backward(op, self.view(), dy.view(), out.view())?;
        Ok(out)
    }

    /// `scale * self + shift`.
    pub(super) fn affine(&self, scale: f64, shift: f64) -> Result<Self> {
        self.unary(UnaryOp::Affine { scale, shift })
    }

    pub(super) fn scaled(&self, scale: f64) -> Result<Self> {
        self.affine(scale, 0.0)
    }

    pub(super) fn plus(&self, other: &Self) -> Result<Self> {
        self.binary(BinaryOp::Add, other)
    }

    pub(super) fn minus(&self, other: &Self) -> Result<Self> {
        self.binary(BinaryOp::Subtract, other)
    }

    pub(super) fn times(&self, other: &Self) -> Result<Self> {
        self.binary(BinaryOp::Multiply, other)
    }

    pub(super) fn over(&self, other: &Self) -> Result<Self> {
        self.binary(BinaryOp::Divide, other)
    }

    fn binary(&self, op: BinaryOp, other: &Self) -> Result<Self> {
        let shape = Shape::broadcast("binary", self.shape(), other.shape())?;
        let (a, b) = (self.stretched(&shape)?, other.stretched(&shape)?);
        let out = Self::dense(self.device, self.dtype(), shape)?;
        self.device.binary(op, a, b, out.view())?;
        Ok(out)
    }

    /// `op(self, value)` as 0 or 1 in `U8`.
    pub(super) fn compare(&self, op: CompareOp, value: f64) -> Result<Self> {
        let value = Self::constant(self.device, self.dtype(), value)?;
        let out = Self::dense(self.device, DType::U8, *self.shape())?;
        self.device.compare(op, self.view(), value.stretched(self.shape())?, out.view())?;
        Ok(out)
    }

    /// `self` where `condition` (`U8`, broadcast to this shape) is not 0, elsewhere `other`.
    pub(super) fn where_or(&self, condition: &Self, other: f64) -> Result<Self> {
        let other = Self::constant(self.device, self.dtype(), other)?;
        let out = Self::dense(self.device, self.dtype(), *self.shape())?;
        let condition = condition.stretched(self.shape())?;
        let other = other.stretched(self.shape())?;
        self.device.select(condition, self.view(), other, out.view())?;
        Ok(out)
    }

    /// `alpha * self·other`, over the last two dimensions.
    pub(super) fn matmul(&self, alpha: f64, other: &Self) -> Result<Self> {
        let dims = crate::check::matmul_shapes(self.shape(), other.shape())?;
        let shape = Shape::new(&[&dims.batch[..], &[dims.m, dims.n]].concat())?;
        let out = Self::dense(self.device, self.dtype(), shape)?;
        self.device.matmul(alpha, self.view(), other.view(), 0.0, out.view())?;
        Ok(out)
    }

    // ---- reductions ----------------------------------------------------------------------------

    /// Reduces over the last dimension, which stays as one of size 1.
    pub(super) fn reduce_last(&self, kind: ReduceKind) -> Result<Self> {
        self.reduce_to(kind, self.shape().with_dim(self.shape().ndim() - 1, 1))
    }

    /// The mean over the last dimension, which stays as one of size 1.
    pub(super) fn mean_last(&self) -> Result<Self> {
        let columns = self.shape()[self.shape().ndim() - 1];
        self.reduce_last(ReduceKind::Sum)?.scaled(1.0 / columns as f64)
    }

    /// Reduces over every dimension in which `shape` has size 1.
    pub(super) fn reduce_to(&self, kind: ReduceKind, shape: Shape) -> Result<Self> {
        let out = Self::dense(self.device, self.dtype(), shape)?;
        self.device.reduce(kind, self.view(), Store::Overwrite, out.view())?;
        Ok(out)
    }

    /// The sum over all dimensions but the last: `[C]`.
    pub(super) fn sum_rows(&self) -> Result<Self> {
        let columns = self.shape()[self.shape().ndim() - 1];
        let mut shape = *self.shape();
        for dim in 0..shape.ndim() - 1 {
            shape = shape.with_dim(dim, 1);
        }
        self.reduce_to(ReduceKind::Sum, shape)?.reshape(&[columns])
    }

    // ---- the same values under another layout --------------------------------------------------

    /// These values in row-major order under another shape; copied only where that is needed.
    pub(super) fn reshape(&self, shape: &[usize]) -> Result<Self> {
        let shape = Shape::new(shape)?;
        if let Some(layout) = self.layout.reshape(&shape)? {
            return Ok(self.with_layout(layout));
        }
        let mut out = Self::dense(self.device, self.dtype(), *self.shape())?;
        self.device.copy(self.view(), out.view())?;
        out.layout = Layout::contiguous(shape);
        Ok(out)
    }

    /// The last two dimensions exchanged.
    pub(super) fn transposed(&self) -> Result<Self> {
        let ndim = self.layout.ndim();
        Ok(self.with_layout(self.layout.transpose(ndim - 2, ndim - 1)?))
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Scratch { device: self.device, buffer: self.buffer.clone(), layout }
    }

    fn stretched(&self, shape: &Shape) -> Result<ViewOf<'_, K>> {
        Ok(View::new(&self.buffer, self.layout.broadcast_to(shape)?))
    }

    // ---- results -------------------------------------------------------------------------------

    /// Writes these values to `out`, of this number of elements, rounded to its dtype.
    pub(super) fn store(&self, out: ViewOf<'_, K>) -> Result<()> {
        let values = self.reshape(out.layout.shape())?;
        match out.dtype() == self.dtype() {
            true => self.device.copy(values.view(), out),
            false => self.device.cast(values.view(), out),
        }
    }

    /// Writes these values to `out` or adds them to it, rounded once.
    pub(super) fn store_as(&self, store: Store, out: ViewOf<'_, K>) -> Result<()> {
        match store {
            Store::Overwrite => self.store(out),
            Store::Add => Self::wide(self.device, out)?.plus(self)?.store(out),
        }
    }
}
