//! The training step, on one screen.

use std::sync::Arc;

use sneppx_contract::{Device, Error, NormKind as _, Result};

use crate::autograd::rules::CrossEntropyOptions;
use crate::nn::{Pass, Transformer};
use crate::optim::{NormType, Optimizer, clip_factor, first_non_finite, grad_norm};
use crate::shard::{OrderedSum, TreeCounter};
use crate::tensor::{Leaf, Tensor};

/// The tokens and targets of one forward pass, on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// `[sequences, length]`, row-major.
    pub tokens: Vec<u32>,
    /// The token after each, or the ignored index.
    pub targets: Vec<i64>,
    /// Length of a sequence.
    pub length: usize,
}

/// What a step is told beside model and data.
#[derive(Clone, Copy, Debug)]
pub struct StepSettings {
    /// Number of this step, from 0.
    pub number: u64,
    /// The run's seed.
    pub seed: u64,
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Largest norm of the gradient, if there is one.
    pub clip: Option<f64>,
    /// Ignored targets and label smoothing.
    pub loss: CrossEntropyOptions,
}

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSums {
    /// Mean loss over counted tokens.
    pub loss: f64,
    /// Tokens that counted.
    pub tokens: u64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
}

/// One optimizer step over a global batch: the gradient is the mean over all counted tokens of all
/// micro-batches, summed along the tree on their numbers.
///
/// # Errors
/// A loss or gradient that is not finite, before any parameter is changed; whatever model, device
/// or optimizer report.
pub fn step<D: Device>(
    model: &Transformer<D>,
    leaves: &[Arc<Leaf<D>>],
    batch: &[MicroBatch],
    optimizer: &mut dyn Optimizer<D>,
    settings: &StepSettings,
) -> Result<StepSums> {
    let counted = |targets: &[i64]| targets.iter().filter(|&&t| t != settings.loss.ignore_index).count();
    let tokens = batch.iter().map(|micro| counted(&micro.targets)).sum::<usize>();
    let device = leaves_device(leaves)?;

    optimizer.zero_grad();
    let mut grads = OrderedSum::new(leaves);
    let mut losses = TreeCounter::default();
    let mut first_sample = 0;
    for micro in batch {
        let shape = [micro.tokens.len() / micro.length.max(1), micro.length];
        let inputs = Tensor::from_slice(&device, &micro.tokens, &shape)?;
        let targets = Tensor::from_slice(&device, &micro.targets, &shape)?;
        let pass = Pass::training(settings.seed, settings.number, first_sample);
        let sum = model.losses(&inputs, &targets, settings.loss, &pass)?.sum_all()?;
        sum.mul_scalar(1.0 / tokens.max(1) as f64)?.backward()?;
        grads.take()?;
        losses.push(sum.item()?, &mut |left, right| Ok(left + right))?;
        first_sample += shape[0] as u64;
    }
    grads.finish()?;
    let loss = losses.finish(&mut |left, right| Ok(left + right))?.unwrap_or(0.0);
    let loss = loss / tokens.max(1) as f64;

    let norm = grad_norm(leaves, NormType::Two)?;
    if !loss.is_finite() || !norm.is_finite() {
        return Err(non_finite(loss, norm, leaves, settings.number)?);
    }
    let factor = settings.clip.map_or(Ok(1.0), |limit| clip_factor(norm, limit))?;
    optimizer.set_learning_rate(settings.learning_rate)?;
    optimizer.step_scaled(factor)?;
    Ok(StepSums { loss, tokens: tokens as u64, grad_norm: norm })
}
