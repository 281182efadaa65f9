//! Dropout, with numbers that depend on what they are for and not on when they are drawn.

use sneppx_contract::{Device, Error, RandomKey, Result};

use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

impl<D: Device> Tensor<D> {
    /// Zeroes each element with `probability` and scales the others by `1 / (1 - probability)`
    /// (Srivastava et al., 2014). Element `i` in row-major order uses number `offset + i` of
    /// stream `key`: the same key and offset give the same choice.
    ///
    /// # Errors
    /// A probability outside `[0, 1)`.
    pub fn dropout(&self, probability: f64, key: RandomKey, offset: u64) -> Result<Tensor<D>> {
        if !(0.0..1.0).contains(&probability) {
            return Err(Error::invalid("dropout", probability, "must lie in 0 <= p < 1"));
        }
        if probability == 0.0 {
            return Ok(self.clone());
        }
        let out = self.empty_like()?;
        self.device().dropout(probability, key, offset, self.view(), out.view())?;
        Ok(record(out, &[self], || Box::new(Dropout { probability, key, offset })))
    }
}

struct Dropout {
    probability: f64,
    key: RandomKey,
    offset: u64,
}

impl<D: Device> Rule<D> for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dx = grad.reusable()?;
        let (dy, device) = (grad.tensor().view(), dx.device());
        device.dropout(self.probability, self.key, self.offset, dy, dx.view())?;
        inputs.give(0, dx)
    }
}
