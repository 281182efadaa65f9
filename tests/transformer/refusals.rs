//! What a model refuses, and in what words.

use sneppx::autograd::no_grad;
use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::nn::{KeyValueCache, Pass, Position, TransformerConfig};
use sneppx::{DType, Result};

use super::fixture::{T, device, gpt2, llama, model, tokens};

#[test]
fn attn_03_positions_beyond_the_table_are_refused() -> Result<()> {
    let device = device();
    for config in [gpt2(), llama()] {
        let model = model(&device, config)?;
        let pass = Pass::evaluation();
        model.forward(&tokens(&device, 1, 8)?, &pass)?;
        let text = model.forward(&tokens(&device, 1, 9)?, &pass).unwrap_err().to_string();
        assert!(text.contains('9') && text.contains("positions for 8"), "{text}");

        let cached = |len: usize| -> Result<usize> {
            let mut cache = KeyValueCache::new(&device, DType::F32, model.config(), 1)?;
            no_grad(|| model.forward_cached(&tokens(&device, 1, 6)?, &mut cache))?;
            no_grad(|| model.forward_cached(&tokens(&device, 1, len)?, &mut cache))?;
            Ok(cache.len())
        };
        assert_eq!(cached(2)?, 8);
        let text = cached(3).unwrap_err().to_string();
        assert!(text.contains('9') && text.contains("positions for 8"), "{text}");

        for bad in [11i64, -1, 1 << 32] {
            let ids = T::from_slice(&device, &[1, 2, 3, bad], &[2, 2])?;
            let text = model.forward(&ids, &pass).unwrap_err().to_string();
            let want = format!("index {bad} at position 3 is outside 0..11");
            assert!(text.contains(&want), "{text}");
        }
    }
    Ok(())
}

#[test]
fn attn_04_head_sizes_are_checked_at_construction() {
    let refused = |config: TransformerConfig, numbers: [&str; 2]| {
        let error = model(&device(), config).expect_err("an error").to_string();
        assert!(numbers.iter().all(|number| error.contains(number)), "{error}");
    };
    refused(TransformerConfig::llama(11, 520, 8, 1, 16, 8), ["65", "520"]);
    refused(TransformerConfig::gpt2(11, 10, 3, 1, 16, 8), ["10", "3"]);
    let grouped =
        TransformerConfig { num_kv_heads: 2, ..TransformerConfig::gpt2(11, 9, 3, 1, 4, 8) };
    refused(grouped, ["2", "3"]);
    let odd = model(&device(), TransformerConfig::gpt2(11, 9, 3, 1, 16, 8)).expect("a model");
    let ids = tokens(&device(), 1, 4).expect("tokens");
    odd.forward(&ids, &Pass::evaluation()).expect("logits");
}

#[test]
fn settings_that_make_no_sense_are_named() {
    for (config, name) in [
        (TransformerConfig { vocab_size: 0, ..gpt2() }, "vocab_size"),
        (TransformerConfig { dim: 0, ..gpt2() }, "dim"),
        (TransformerConfig { num_heads: 0, ..gpt2() }, "num_heads"),
        (TransformerConfig { num_kv_heads: 0, ..gpt2() }, "num_kv_heads"),
        (TransformerConfig { ffn_dim: 0, ..gpt2() }, "ffn_dim"),
        (TransformerConfig { max_seq_len: 0, ..gpt2() }, "max_seq_len"),
        (TransformerConfig { dropout: 1.0, ..gpt2() }, "dropout"),
        (TransformerConfig { dropout: f64::NAN, ..gpt2() }, "dropout"),
        (TransformerConfig { norm_epsilon: 0.0, ..gpt2() }, "norm_epsilon"),
        (TransformerConfig { position: Position::Rotary(-1.0), ..llama() }, "rotary base"),
    ] {
        let error = model(&device(), config).expect_err("an error").to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn shapes_that_disagree_are_named() -> Result<()> {
    let device = device();
    let model = model(&device, gpt2())?;
    let pass = Pass::evaluation();
    let text = model.forward(&T::from_slice(&device, &[1u32], &[1])?, &pass).unwrap_err();
    assert!(text.to_string().contains("[batch, length]"), "{text}");
    let options = CrossEntropyOptions::default();
    let (ids, targets) = (tokens(&device, 2, 3)?, tokens(&device, 3, 2)?);
    let text = model.losses(&ids, &targets, options, &pass).unwrap_err().to_string();
    assert!(text.contains("[2, 3]") && text.contains("[3, 2]"), "{text}");
    let floats = T::zeros(&device, DType::F32, &[1, 2])?;
    let text = model.forward(&floats, &pass).unwrap_err().to_string();
    assert!(text.contains("f32"), "{text}");
    Ok(())
}
