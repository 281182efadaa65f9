//! Softmax and its logarithm over the last dimension.

use sneppx_contract::{Device, ReduceKind, Result};

use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

impl<D: Device> Tensor<D> {
    /// Softmax over the last dimension, shifted by each row's own maximum.
    ///
    /// # Errors
    /// A scalar; integer dtypes.
    pub fn softmax(&self) -> Result<Tensor<D>> {
        let out = Tensor::empty(self.device(), self.dtype(), *self.shape())?;
        self.device().softmax(self.view(), out.view())?;
        Ok(record(out.clone(), &[self], || Box::new(Softmax { y: out })))
    }

    /// The logarithm of the softmax over the last dimension, without forming the softmax first.
    ///
    /// # Errors
    /// A scalar; integer dtypes.
    pub fn log_softmax(&self) -> Result<Tensor<D>> {
        let dim = self.ndim().saturating_sub(1);
        let shifted = self.sub(&self.detach().reduce(ReduceKind::Max, &[dim])?)?;
        shifted.sub(&shifted.exp()?.reduce(ReduceKind::Sum, &[dim])?.log()?)
    }
}

struct Softmax<D: Device> {
    y: Tensor<D>,
}

impl<D: Device> Rule<D> for Softmax<D> {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let device = self.y.device().clone();
        let (y, dy) = (self.y.view(), grad.tensor().view());
        inputs.fresh(0, &mut |dx| device.softmax_backward(y, dy, dx))
    }
}
