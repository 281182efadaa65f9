//! Dropout.

use super::scratch::Scratch;
use crate::{CompareOp, Distribution, Error, Kernels, RandomKey, Result, ViewOf, check};

/// Steps of the uniform numbers of the contract.
const UNIFORM_STEPS: f64 = 16_777_216.0;

/// Composition of [`Kernels::dropout`].
///
/// # Errors
/// Operands of unequal shape or dtype, no floats, or a probability outside `0 ..= 1`.
pub fn dropout<K: Kernels>(
    device: &K,
    probability: f64,
    key: RandomKey,
    offset: u64,
    x: ViewOf<'_, K>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    check::float_elementwise("dropout", &[x], out)?;
    if !(0.0..=1.0).contains(&probability) {
        return Err(Error::invalid("dropout", probability, "a probability lies in 0 ..= 1"));
    }
    let x = Scratch::wide(device, x)?;
    let numbers = Scratch::dense(device, x.view().dtype(), *x.shape())?;
    let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
    device.random(uniform, key, offset, numbers.view())?;
    // The next number of the generator's grid: exact in f32, and on the same side of every draw.
    let threshold = (probability * UNIFORM_STEPS).ceil() / UNIFORM_STEPS;
    let kept = numbers.compare(CompareOp::GreaterEqual, threshold)?;
    let scale = if probability < 1.0 { 1.0 / (1.0 - probability) } else { 0.0 };
    x.scaled(scale)?.where_or(&kept, 0.0)?.store(out)
}
