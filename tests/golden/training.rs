//! Twenty steps of AdamW with clipping: losses, norms, and the weights at the end.

use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::nn::{Module, Pass};
use sneppx::optim::{AdamW, AdamWOptions, NormType, Optimizer, ParamGroup, clip_grad_norm};
use sneppx::{DType, Result};

use super::stored::{Stored, T, close, close_values, device, settings};
use super::weights::Family;

#[test]
fn twenty_steps_agree_with_pytorch_in_f64() -> Result<()> {
    twenty_steps_agree(DType::F64, "f64", 1e-9)
}

/// Both runs round differently and drift apart; after twenty steps they still agree to this.
#[test]
fn twenty_steps_agree_with_pytorch_in_f32() -> Result<()> {
    twenty_steps_agree(DType::F32, "f32", 2e-5)
}

fn twenty_steps_agree(dtype: DType, run: &str, tolerance: f64) -> Result<()> {
    let (stored, settings) =
        (Stored::open("twenty_losses.safetensors"), settings("twenty_losses.json"));
    let number = |key: &str| settings[key].as_f64().unwrap_or_else(|| panic!("{key} is missing"));
    let device = device();
    let model = Family::Gpt2.model(&device, dtype)?;
    let options = AdamWOptions {
        learning_rate: number("learning_rate"),
        beta1: settings["betas"][0].as_f64().expect("beta1"),
        beta2: settings["betas"][1].as_f64().expect("beta2"),
        epsilon: number("eps"),
        weight_decay: 0.0,
    };
    let leaves = model.parameters();
    let groups = ParamGroup::decay_matrices(leaves.clone(), number("weight_decay"));
    let mut optimizer = AdamW::new(groups, options)?;

    let tokens = stored.tensor(&device, "tokens");
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for step in 0..number("steps") as usize {
        let batch = tokens.at(0, step)?;
        let length = batch.dim(1)? - 1;
        let (ids, targets) = (batch.slice(1, 0, length)?, batch.slice(1, 1, length)?);
        let pass = Pass::training(1, step as u64, 0);
        let loss = model.losses(&ids, &targets, CrossEntropyOptions::default(), &pass)?;
        let loss = loss.mean_all()?;
        optimizer.zero_grad();
        loss.backward()?;
        losses.push(loss.item()?);
        norms.push(clip_grad_norm(&leaves, number("clip_norm"), NormType::Two)?.norm);
        optimizer.step()?;
    }
    let recorded = |name: &str| stored.values(&format!("{name}.{run}")).1.to_f64();
    close_values("losses", &losses, &recorded("losses"), tolerance);
    close_values("norms", &norms, &recorded("grad_norms"), tolerance);
    for (path, param) in model.named_parameters() {
        let prefix = format!("final.{run}.");
        let want = Family::Gpt2.assemble(&stored, &prefix, &path, &device, dtype)?;
        let got = param.leaf().value()?;
        for (start, len) in determined(&path, dtype, got.dim(0)?) {
            let part = |x: &T| x.slice(0, start, len);
            close(&path, &part(&got)?, &part(&want)?, tolerance);
        }
    }
    Ok(())
}

/// First row and number of rows of those parts of a parameter that follow from the data.
///
/// The bias of the keys adds one number to all scores of a query, which softmax takes out again:
/// its gradient is 0 but for rounding. Adam divides by the size of the gradient and so makes steps
/// of that rounding, which nobody repeats in `f32`; in `f64` epsilon is far above it.
fn determined(path: &str, dtype: DType, rows: usize) -> Vec<(usize, usize)> {
    if dtype == DType::F32 && path.ends_with("attention.qkv.bias") {
        let third = rows / 3;
        return vec![(0, third), (2 * third, third)];
    }
    vec![(0, rows)]
}
