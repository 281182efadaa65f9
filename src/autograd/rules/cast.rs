//! Conversion between dtypes.

use sneppx_contract::{DType, Device, Result};

use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

impl<D: Device> Tensor<D> {
    /// The elements as `dtype`: floats round to nearest even, integers truncate and saturate. The
    /// gradient is converted back; conversions from or to integers carry none.
    pub fn cast(&self, dtype: DType) -> Result<Tensor<D>> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        let out = Tensor::empty(self.device(), dtype, *self.shape())?;
        self.device().cast(self.view(), out.view())?;
        if !(dtype.is_float() && self.dtype().is_float()) {
            return Ok(out);
        }
        Ok(record(out, &[self], || Box::new(Cast)))
    }
}

struct Cast;

impl<D: Device> Rule<D> for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let device = grad.tensor().device().clone();
        inputs.fresh(0, &mut |dx| device.cast(grad.tensor().view(), dx))
    }
}
