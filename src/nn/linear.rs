//! The linear layer.

use sneppx_contract::{Activation, Device, Result};

use super::{Builder, Init, Layer, Module, Param, Pass};
use crate::tensor::Tensor;

/// What a [`Linear`] layer has and how it starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearOptions {
    /// Whether a bias is added.
    pub bias: bool,
    /// First values of the weight; `None` is uniform in `±1 / sqrt(inputs)`. Biases start at 0.
    pub init: Option<Init>,
}

impl Default for LinearOptions {
    fn default() -> Self {
        LinearOptions { bias: true, init: None }
    }
}

/// `x · weightᵀ + bias` over the last dimension, weight `[outputs, inputs]`.
#[derive(Clone, Debug, Module)]
pub struct Linear<D: Device> {
    /// `[outputs, inputs]`
    pub weight: Param<D>,
    /// `[outputs]`
    pub bias: Option<Param<D>>,
}

impl<D: Device> Linear<D> {
    /// A layer at `builder`'s place.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(
        builder: &Builder<D>,
        inputs: usize,
        outputs: usize,
        options: LinearOptions,
    ) -> Result<Self> {
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let init = options.init.unwrap_or(Init::Uniform { bound });
        let weight = builder.param("weight", &[outputs, inputs], init)?;
        let bias = if options.bias {
            Some(builder.param("bias", &[outputs], Init::Constant(0.0))?)
        } else {
            None
        };
        Ok(Linear { weight, bias })
    }

    /// The result for `x` `[..., inputs]`.
    ///
    /// # Errors
    /// Another last dimension or dtype.
    pub fn apply(&self, x: &Tensor<D>) -> Result<Tensor<D>> {
        let bias = self.bias.as_ref().map(Param::tensor).transpose()?;
        x.linear(&self.weight.tensor()?, bias.as_ref())
    }

    /// `activation` of the result for `x`, bias and activation in one pass.
    ///
    /// # Errors
    /// Another last dimension or dtype.
    pub fn apply_activated(&self, x: &Tensor<D>, activation: Activation) -> Result<Tensor<D>> {
        let product = x.linear(&self.weight.tensor()?, None)?;
        match &self.bias {
            Some(bias) => product.bias_activation(&bias.tensor()?, activation),
            None => product.unary(sneppx_contract::UnaryOp::Activation(activation)),
        }
    }
}

impl<D: Device> Layer<D> for Linear<D> {
    fn forward(&self, x: &Tensor<D>, _: &Pass) -> Result<Tensor<D>> {
        self.apply(x)
    }
}
