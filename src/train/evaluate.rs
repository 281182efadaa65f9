//! The loss on data that was not trained on.

use sneppx_contract::{Device, Result};

use super::step::{counted, upload};
use crate::autograd::no_grad;
use crate::autograd::rules::CrossEntropyOptions;
use crate::data::{Collate, Dataset, TokenDataset, TokenSample};
use crate::nn::{Pass, Transformer};
use crate::shard::TreeCounter;

/// The mean loss per token, and how many tokens, over at most `batches` batches of `batch` samples
/// spread evenly over `data`. The same samples every time; no random number is drawn.
///
/// # Errors
/// Whatever model or device report.
pub fn evaluate<D: Device>(
    model: &Transformer<D>,
    data: &TokenDataset,
    batch: usize,
    batches: usize,
) -> Result<(f64, u64)> {
    let device = model.embedding.weight.leaf().value()?.device().clone();
    let options = CrossEntropyOptions::default();
    let wanted = (batch * batches).min(data.len());
    let chosen: Vec<usize> = (0..wanted).map(|i| i * data.len() / wanted).collect();
    let mut losses = TreeCounter::default();
    let mut tokens = 0;
    for indices in chosen.chunks(batch) {
        let samples = indices.iter().map(|&index| data.get(index)).collect::<Result<Vec<_>>>()?;
        let samples = TokenSample::collate(samples)?;
        let (inputs, targets) =
            (upload(&device, &samples.tokens)?, upload(&device, &samples.targets)?);
        let sum = no_grad(|| {
            model.losses(&inputs, &targets, options, &Pass::evaluation())?.sum_all()?.item()
        })?;
        losses.push(sum, &mut |left, right| Ok(left + right))?;
        tokens += counted(samples.targets.values(), &options) as u64;
    }
    let sum = losses.finish(&mut |left, right| Ok(left + right))?.unwrap_or(0.0);
    Ok((sum / tokens.max(1) as f64, tokens))
}
