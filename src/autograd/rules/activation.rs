//! Activations fused with what stands before them: a bias, or a gate.

use sneppx_contract::{Activation, Device, Result, Shape, Store, View};

use crate::tensor::{Accumulate, Gradient, Rule, Saved, Tensor, record};

impl<D: Device> Tensor<D> {
    /// `activation(self + bias)` in one pass, with `bias` `[C]` over the last dimension.
    ///
    /// # Errors
    /// A bias that is not `[C]`; integer dtypes.
    pub fn bias_activation(&self, bias: &Tensor<D>, activation: Activation) -> Result<Tensor<D>> {
        let out = Tensor::empty(self.device(), self.dtype(), *self.shape())?;
        let device = self.device();
        let act = Some(activation);
        device.bias_activation(act, self.view(), Some(bias.view()), out.view())?;
        Ok(record(out, &[self, bias], || {
            Box::new(BiasActivation { activation, x: self.detach(), bias: Saved::new(bias) })
        }))
    }

    /// `activation(self) * up` in one pass: the gate of SwiGLU (Shazeer, 2020) with
    /// [`Activation::Silu`].
    ///
    /// # Errors
    /// Shapes that differ; integer dtypes.
    pub fn gated_activation(&self, up: &Tensor<D>, activation: Activation) -> Result<Tensor<D>> {
        let out = Tensor::empty(self.device(), self.dtype(), *self.shape())?;
        self.device().gated_activation(activation, self.view(), up.view(), out.view())?;
        Ok(record(out, &[self, up], || {
            Box::new(GatedActivation { activation, gate: self.detach(), up: up.detach() })
        }))
    }
}

struct BiasActivation<D: Device> {
    activation: Activation,
    x: Tensor<D>,
    bias: Saved<D>,
}

impl<D: Device> Rule<D> for BiasActivation<D> {
    fn name(&self) -> &'static str {
        "bias_activation"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dx = grad.reusable()?;
        let bias = self.bias.value()?;
        let dbias = if inputs.needs(1) {
            Some(Tensor::empty(dx.device(), bias.dtype(), Shape::new(&bias.shape()[..])?)?)
        } else {
            None
        };
        let dbias_buffer = dbias.as_ref().map(|dbias| dbias.buffer().clone());
        dx.device().bias_activation_backward(
            Some(self.activation),
            self.x.view(),
            Some(bias.view()),
            grad.tensor().view(),
            dx.view(),
            dbias_buffer.as_ref().map(|buffer| (View::whole(buffer), Store::Overwrite)),
        )?;
        if let Some(dbias) = dbias {
            inputs.give(1, dbias)?;
        }
        inputs.give(0, dx)
    }
}

struct GatedActivation<D: Device> {
    activation: Activation,
    gate: Tensor<D>,
    up: Tensor<D>,
}

impl<D: Device> Rule<D> for GatedActivation<D> {
    fn name(&self) -> &'static str {
        "gated_activation"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dy = grad.tensor();
        let dgate = Tensor::empty(dy.device(), dy.dtype(), *dy.shape())?;
        let dup = Tensor::empty(dy.device(), dy.dtype(), *dy.shape())?;
        dy.device().gated_activation_backward(
            self.activation,
            self.gate.view(),
            self.up.view(),
            dy.view(),
            dgate.view(),
            dup.view(),
        )?;
        inputs.give(0, dgate)?;
        inputs.give(1, dup)
    }
}
