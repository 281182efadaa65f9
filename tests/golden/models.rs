//! GPT-2 and Llama: logits, loss, all gradients, and greedy continuations.

use sneppx::autograd::no_grad;
use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::nn::{Generator, KeyValueCache, Module, Pass, Sampling};
use sneppx::{DType, Result};

use super::stored::{Stored, T, close, close_values, device};
use super::weights::Family;

const FAMILIES: [(Family, &str); 2] =
    [(Family::Gpt2, "gpt2_expected.safetensors"), (Family::Llama, "llama_expected.safetensors")];

#[test]
fn models_agree_with_transformers_in_f64() -> Result<()> {
    models_agree(DType::F64, 1e-10)
}

#[test]
fn models_agree_with_transformers_in_f32() -> Result<()> {
    models_agree(DType::F32, 2e-5)
}

fn models_agree(dtype: DType, tolerance: f64) -> Result<()> {
    let device = device();
    for (family, expected) in FAMILIES {
        let (model, expected) = (family.model(&device, dtype)?, Stored::open(expected));
        let tokens = expected.tensor(&device, "input_ids");
        let targets = expected.tensor(&device, "targets");
        let what = |part: &str| format!("{family:?} {part} in {dtype}");

        let logits = model.forward(&tokens, &Pass::evaluation())?;
        close(&what("logits"), &logits, &expected.tensor(&device, "logits"), tolerance);
        let options = CrossEntropyOptions::default();
        let losses = model.losses(&tokens, &targets, options, &Pass::training(1, 0, 0))?;
        let loss = losses.mean_all()?;
        close(&what("loss"), &loss, &expected.tensor(&device, "loss"), tolerance);

        for recomputes in [false, true] {
            model.set_recompute(recomputes);
            model.parameters().iter().for_each(|leaf| leaf.clear_grad());
            let losses = model.losses(&tokens, &targets, options, &Pass::training(1, 0, 0))?;
            losses.mean_all()?.backward()?;
            for (path, param) in model.named_parameters() {
                let want = family.assemble(&expected, "grad.", &path, &device, DType::F64)?;
                let grad = param.leaf().grad().expect("a gradient");
                close(&what(&path), &grad, &want, tolerance);
            }
        }
    }
    Ok(())
}

#[test]
fn greedy_continuations_agree_with_transformers() -> Result<()> {
    let device = device();
    for (family, expected) in FAMILIES {
        let expected = Stored::open(expected);
        let greedy = expected.tensor(&device, "greedy");
        for dtype in [DType::F64, DType::F32] {
            let model = family.model(&device, dtype)?;
            for row in 0..greedy.dim(0)? {
                let text: Vec<u32> =
                    greedy.at(0, row)?.to_vec::<i64>()?.iter().map(|&id| id as u32).collect();
                let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
                let generator = Generator::new(&model, &text[..5], sampling)?;
                let continued: Vec<u32> = generator.take(text.len() - 5).collect::<Result<_>>()?;
                assert_eq!(continued, text[5..], "{family:?} in {dtype}, row {row}");
            }
        }
    }
    Ok(())
}

#[test]
fn positions_read_piece_by_piece_equal_a_whole_pass() -> Result<()> {
    let device = device();
    for (family, expected) in FAMILIES {
        let model = family.model(&device, DType::F64)?;
        let expected = Stored::open(expected);
        let (tokens, want) =
            (expected.tensor(&device, "input_ids"), expected.tensor(&device, "logits"));
        for pieces in [vec![1; 16], vec![5, 1, 7, 3], vec![16]] {
            let mut cache = KeyValueCache::new(&device, DType::F64, model.config(), 2)?;
            let mut start = 0;
            for len in pieces {
                let piece = tokens.slice(1, start, len)?;
                let logits = no_grad(|| model.forward_cached(&piece, &mut cache))?;
                let want: T = want.slice(1, start, len)?;
                close(&format!("{family:?} from {start}"), &logits, &want, 1e-10);
                start += len;
            }
            assert_eq!(cache.len(), 16);
        }
    }
    Ok(())
}

/// Beyond the last position the older half is forgotten, as if the rest were a new prompt.
#[test]
fn a_text_longer_than_the_model_goes_on() -> Result<()> {
    let device = device();
    for (family, expected) in FAMILIES {
        let model = family.model(&device, DType::F64)?;
        let expected = Stored::open(expected);
        let ids = expected.tensor(&device, "input_ids").at(0, 0)?.to_vec::<i64>()?;
        let prompt: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let long: Vec<u32> =
            Generator::new(&model, &prompt, greedy)?.take(8).collect::<Result<_>>()?;
        // 16 positions are full after the prompt: one token comes from all of them, and then the
        // last 8 tokens are read again.
        let context = [&prompt[9..], &long[..1]].concat();
        let again: Vec<u32> =
            Generator::new(&model, &context, greedy)?.take(7).collect::<Result<_>>()?;
        assert_eq!(long[1..], again, "{family:?}");
        let beyond = [&[1, 2, 3], &prompt[..]].concat();
        let cut: Vec<u32> =
            Generator::new(&model, &beyond, greedy)?.take(2).collect::<Result<_>>()?;
        assert_eq!(cut, long[..2], "{family:?}: a long prompt counts with its end");
    }
    Ok(())
}

#[test]
fn one_sequence_does_not_feel_the_other() -> Result<()> {
    let device = device();
    for (family, expected) in FAMILIES {
        let model = family.model(&device, DType::F64)?;
        let expected = Stored::open(expected);
        let (tokens, want) =
            (expected.tensor(&device, "input_ids"), expected.tensor(&device, "logits"));
        for row in 0..2 {
            let alone = model.forward(&tokens.slice(0, row, 1)?, &Pass::evaluation())?;
            let want = want.slice(0, row, 1)?.to_vec::<f64>()?;
            close_values(&format!("{family:?} {row}"), &alone.to_vec::<f64>()?, &want, 1e-10);
        }
    }
    Ok(())
}
