//! The training step, on one screen.

use std::sync::Arc;

use sneppx_contract::{Device, Error, HostVec, Result};

use crate::autograd::rules::CrossEntropyOptions;
use crate::data::{MicroBatch, TokenBatch};
use crate::nn::{Pass, Transformer};
use crate::optim::{NormType, Optimizer, clip_factor, first_non_finite, grad_norm};
use crate::shard::{OrderedSum, TreeCounter};
use crate::tensor::{Leaf, Tensor};

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
    batch: &[MicroBatch<TokenBatch>],
    optimizer: &mut dyn Optimizer<D>,
    settings: &StepSettings,
) -> Result<StepSums> {
    let device = model.embedding.weight.leaf().value()?.device().clone();
    let counts = batch.iter().map(|micro| counted(micro.batch.targets.values(), &settings.loss));
    let tokens = counts.sum::<usize>();
    let weight = 1.0 / tokens.max(1) as f64;

    optimizer.zero_grad();
    let mut grads = OrderedSum::new(leaves);
    let mut losses = TreeCounter::default();
    for micro in batch {
        let inputs = upload(&device, &micro.batch.tokens)?;
        let targets = upload(&device, &micro.batch.targets)?;
        let pass = Pass::training(settings.seed, settings.number, micro.first_sample);
        let sum = model.losses(&inputs, &targets, settings.loss, &pass)?.sum_all()?;
        sum.mul_scalar(weight)?.backward()?;
        grads.take()?;
        losses.push(sum.item()?, &mut |left, right| Ok(left + right))?;
    }
    grads.finish()?;
    let loss = losses.finish(&mut |left, right| Ok(left + right))?.unwrap_or(0.0) * weight;

    let norm = grad_norm(leaves, NormType::Two)?;
    if !loss.is_finite() || !norm.is_finite() {
        return Err(non_finite(loss, norm, leaves, settings.number));
    }
    let factor = settings.clip.map_or(Ok(1.0), |limit| clip_factor(norm, limit))?;
    optimizer.set_learning_rate(settings.learning_rate)?;
    optimizer.step_scaled(factor)?;
    Ok(StepSums { loss, tokens: tokens as u64, grad_norm: norm })
}

/// A host tensor on `device`.
pub(super) fn upload<D: Device>(device: &D, tensor: &crate::data::HostTensor) -> Result<Tensor<D>> {
    Tensor::from_host(device, tensor.values(), tensor.shape())
}

/// How many targets are not ignored.
pub(super) fn counted(targets: &HostVec, loss: &CrossEntropyOptions) -> usize {
    let ignored = loss.ignore_index;
    match targets {
        HostVec::U32(targets) => targets.iter().filter(|&&t| i64::from(t) != ignored).count(),
        HostVec::I64(targets) => targets.iter().filter(|&&t| t != ignored).count(),
        other => other.len(),
    }
}

/// Names what went wrong: the loss, or the first parameter with a bad gradient.
fn non_finite<D: Device>(loss: f64, norm: f64, leaves: &[Arc<Leaf<D>>], step: u64) -> Error {
    let place = format!("step {}", step + 1);
    if !loss.is_finite() {
        return Error::NonFinite { what: "the loss".into(), value: loss, place };
    }
    let what = match first_non_finite(leaves) {
        Ok(Some(name)) => format!("the gradient of {name}"),
        _ => "the norm of the gradient".into(),
    };
    Error::NonFinite { what, value: norm, place }
}
