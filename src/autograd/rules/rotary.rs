//! Rotary position embedding.

use sneppx_contract::{Device, Result, Rotation};

use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

impl<D: Device> Tensor<D> {
    /// Rotates pairs of the last dimension by given angles (Su et al., 2021; the half-split form
    /// of Llama): `self` `[..., T, D]`, `cos` and `sin` `[T, D / 2]` in the accumulator dtype.
    ///
    /// # Errors
    /// An odd `D`; tables of another size or dtype.
    pub fn rotary(&self, cos: &Tensor<D>, sin: &Tensor<D>) -> Result<Tensor<D>> {
        let out = Tensor::empty(self.device(), self.dtype(), *self.shape())?;
        let (cos, sin) = (cos.detach(), sin.detach());
        let device = self.device();
        device.rotary(Rotation::Forward, self.view(), cos.view(), sin.view(), out.view())?;
        Ok(record(out, &[self], || Box::new(Rotary { cos, sin })))
    }
}

struct Rotary<D: Device> {
    cos: Tensor<D>,
    sin: Tensor<D>,
}

impl<D: Device> Rule<D> for Rotary<D> {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let device = self.cos.device().clone();
        let (dy, cos, sin) = (grad.tensor().view(), self.cos.view(), self.sin.view());
        inputs.fresh(0, &mut |dx| device.rotary(Rotation::Backward, dy, cos, sin, dx))
    }
}
