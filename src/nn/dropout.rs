//! Dropout as a layer.

use sneppx_contract::{Device, Error, Result};

use super::{Builder, Layer, Module, Param, Pass};
use crate::tensor::Tensor;

/// Zeroes elements in training passes; the identity in evaluation.
///
/// The first dimension of the input counts samples; the choice for a sample depends on the seed,
/// the step, this layer's path and the sample's number in the global batch.
#[derive(Clone, Debug)]
pub struct Dropout {
    probability: f64,
    path: String,
}

impl Dropout {
    /// A layer at `builder`'s place.
    ///
    /// # Errors
    /// A probability outside `[0, 1)`.
    pub fn new<D: Device>(builder: &Builder<D>, probability: f64) -> Result<Self> {
        if !(0.0..1.0).contains(&probability) {
            return Err(Error::invalid("dropout", probability, "must lie in 0 <= p < 1"));
        }
        Ok(Dropout { probability, path: builder.path().to_owned() })
    }
}

impl<D: Device> Module<D> for Dropout {
    fn visit(&self, _: &str, _: &mut dyn FnMut(&str, &Param<D>)) {}
}

impl<D: Device> Layer<D> for Dropout {
    fn forward(&self, x: &Tensor<D>, pass: &Pass) -> Result<Tensor<D>> {
        if self.probability == 0.0 {
            return Ok(x.clone());
        }
        let Some((key, first_sample)) = pass.noise(&self.path) else { return Ok(x.clone()) };
        let per_sample = x.numel() / x.shape().first().copied().unwrap_or(1).max(1);
        x.dropout(self.probability, key, first_sample * per_sample as u64)
    }
}
