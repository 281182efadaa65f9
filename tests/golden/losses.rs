//! Cross entropy with its reductions, ignored rows and smoothing, and the fused head.

use sneppx::autograd::LeafGrads;
use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::nn::{CrossEntropyLoss, LossReduction};
use sneppx::{DType, Result};

use super::stored::{Stored, close, device, settings};

#[test]
fn losses_agree_with_pytorch_in_f64() -> Result<()> {
    losses_agree(DType::F64, 1e-10)
}

#[test]
fn losses_agree_with_pytorch_in_f32() -> Result<()> {
    losses_agree(DType::F32, 1e-5)
}

fn losses_agree(dtype: DType, tolerance: f64) -> Result<()> {
    let (stored, settings) = (Stored::open("losses.safetensors"), settings("losses.json"));
    let device = device();
    let ignore_index = settings["ignore_index"].as_i64().expect("an index");
    let smoothing = settings["label_smoothing"].as_f64().expect("a weight");
    let cases = [
        ("plain", "targets", 0.0),
        ("ignore", "targets_ignored", 0.0),
        ("smoothing", "targets", smoothing),
        ("smoothing_ignore", "targets_ignored", smoothing),
    ];
    let reductions =
        [("none", LossReduction::None), ("sum", LossReduction::Sum), ("mean", LossReduction::Mean)];
    for rows in ["cross_entropy", "cross_entropy_wide"] {
        for (case, targets, label_smoothing) in cases {
            let targets = stored.tensor(&device, &format!("{rows}.{targets}"));
            for (name, reduction) in reductions {
                let logits = stored.floats(&device, &format!("{rows}.logits"), dtype);
                let logits = logits.requires_grad()?;
                let options = CrossEntropyOptions { ignore_index, label_smoothing };
                let loss = CrossEntropyLoss { options, reduction }.apply(&logits, &targets)?;
                let of = |part: &str| format!("{rows}.{case}.{name}.{part}");
                let want = stored.tensor(&device, &of("output"));
                close(&of("output"), &loss, &want, tolerance);
                if reduction == LossReduction::None {
                    let upstream = format!("{rows}.grad_output_none");
                    let upstream = stored.floats(&device, &upstream, dtype);
                    loss.backward_with(upstream, &mut LeafGrads::new(&device))?;
                } else {
                    loss.backward()?;
                }
                let want = stored.tensor(&device, &of("grad_logits"));
                close(&of("grad_logits"), &logits.grad().expect("a gradient"), &want, tolerance);
            }
        }
    }
    Ok(())
}

#[test]
fn the_fused_head_agrees_with_pytorch() -> Result<()> {
    let stored = Stored::open("losses.safetensors");
    let device = device();
    let of = |part: &str| format!("linear_cross_entropy.{part}");
    let targets = stored.tensor(&device, &of("targets"));
    let counted = targets.to_vec::<i64>()?.iter().filter(|&&target| target != -100).count();
    for (dtype, tolerance) in [(DType::F64, 1e-10), (DType::F32, 1e-5)] {
        for bytes in [1 << 20, 3 * 37 * dtype.size()] {
            let hidden = stored.floats(&device, &of("hidden"), dtype).requires_grad()?;
            let weight = stored.floats(&device, &of("weight"), dtype).requires_grad()?;
            let options = CrossEntropyOptions::default();
            let losses = hidden.chunked_cross_entropy(&weight, &targets, options, bytes)?;
            let mean = losses.sum_all()?.mul_scalar(1.0 / counted as f64)?;
            close("loss", &mean, &stored.tensor(&device, &of("output")), tolerance);
            mean.backward()?;
            for (name, x) in [("grad_hidden", &hidden), ("grad_weight", &weight)] {
                let want = stored.tensor(&device, &of(name));
                close(name, &x.grad().expect("a gradient"), &want, tolerance);
            }
        }
    }
    Ok(())
}
