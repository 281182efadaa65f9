//! Layer norm and RMS norm as layers.

use sneppx_contract::{Device, Norm, NormKind, Result};

use super::{Builder, Init, Layer, Module, Param, Pass};
use crate::autograd::rules::Normalized;
use crate::tensor::Tensor;

/// A normalisation over the last dimension with a learned scale and, if wanted, shift.
#[derive(Clone, Debug, Module)]
pub struct NormLayer<D: Device> {
    /// `[C]`, starts at 1.
    pub weight: Param<D>,
    /// `[C]`, starts at 0.
    pub bias: Option<Param<D>>,
    #[module(skip)]
    norm: Norm,
}

impl<D: Device> NormLayer<D> {
    /// Layer norm; `bias` adds a shift.
    ///
    /// # Errors
    /// Out of memory.
    pub fn layer_norm(
        builder: &Builder<D>,
        dim: usize,
        epsilon: f64,
        bias: Option<Init>,
    ) -> Result<Self> {
        let weight = builder.param("weight", &[dim], Init::Constant(1.0))?;
        let bias = bias.map(|init| builder.param("bias", &[dim], init)).transpose()?;
        Ok(NormLayer { weight, bias, norm: Norm { kind: NormKind::Layer, epsilon } })
    }

    /// RMS norm.
    ///
    /// # Errors
    /// Out of memory.
    pub fn rms_norm(builder: &Builder<D>, dim: usize, epsilon: f64) -> Result<Self> {
        let weight = builder.param("weight", &[dim], Init::Constant(1.0))?;
        Ok(NormLayer { weight, bias: None, norm: Norm { kind: NormKind::Rms, epsilon } })
    }

    /// `x + residual` and its normalisation, in one pass.
    ///
    /// # Errors
    /// Shapes that differ.
    pub fn apply_after_sum(&self, x: &Tensor<D>, residual: &Tensor<D>) -> Result<Normalized<D>> {
        let bias = self.bias.as_ref().map(Param::tensor).transpose()?;
        x.add_normalize(residual, self.norm, Some(&self.weight.tensor()?), bias.as_ref())
    }
}

impl<D: Device> Layer<D> for NormLayer<D> {
    fn forward(&self, x: &Tensor<D>, _: &Pass) -> Result<Tensor<D>> {
        let bias = self.bias.as_ref().map(Param::tensor).transpose()?;
        x.normalize(self.norm, Some(&self.weight.tensor()?), bias.as_ref())
    }
}
