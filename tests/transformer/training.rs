//! Whole training steps: bits, memory, and whether anything is learned.

use sneppx::contract::Memory;
use sneppx::cpu::Cpu;
use sneppx::nn::{Builder, Module, Pass, Transformer, TransformerConfig};
use sneppx::optim::{AdamW, AdamWOptions, Optimizer};
use sneppx::{DType, Result};

use super::fixture::{device, gpt2, grads, llama, loss, model};

#[test]
fn recomputation_changes_no_bit() -> Result<()> {
    for config in [gpt2(), llama()] {
        let model = model(&device(), TransformerConfig { dropout: 0.2, ..config })?;
        let mut runs = Vec::new();
        for recomputes in [false, true] {
            model.set_recompute(recomputes);
            model.parameters().iter().for_each(|leaf| leaf.clear_grad());
            let loss = loss(&model, 2, 8, &Pass::training(3, 1, 4))?;
            loss.backward()?;
            runs.push((loss.to_vec::<f32>()?, grads(&model)?));
        }
        assert!(runs[0] == runs[1]);
    }
    Ok(())
}

/// Losses and parameters of three steps on a device with `threads` threads.
fn trained(threads: usize, dtype: DType, config: &TransformerConfig) -> Result<Vec<Vec<f64>>> {
    let device = Cpu::with_threads(threads)?;
    let builder = Builder::new(&device, 5).with_dtype(dtype)?;
    let model = Transformer::new(config.clone(), &builder)?;
    let mut optimizer = AdamW::of(model.parameters(), AdamWOptions::default())?;
    let mut seen = Vec::new();
    for step in 0..3 {
        let loss = loss(&model, 6, 48, &Pass::training(2, step, 0))?;
        optimizer.zero_grad();
        loss.backward()?;
        optimizer.step()?;
        seen.push(loss.to_host()?.to_f64());
    }
    for leaf in model.parameters() {
        seen.push(leaf.value()?.to_host()?.to_f64());
    }
    Ok(seen)
}

#[test]
fn the_number_of_threads_changes_no_bit() -> Result<()> {
    let base =
        TransformerConfig { dropout: 0.1, ..TransformerConfig::gpt2(300, 96, 4, 2, 200, 48) };
    let grouped = TransformerConfig {
        dropout: 0.1,
        num_kv_heads: 2,
        ..TransformerConfig::llama(300, 96, 4, 2, 200, 48)
    };
    for (dtype, config) in [(DType::F32, &base), (DType::F32, &grouped), (DType::BF16, &base)] {
        let one = trained(1, dtype, config)?;
        assert!(one.iter().flatten().all(|value| value.is_finite()));
        for threads in [2, 3] {
            assert!(one == trained(threads, dtype, config)?, "{threads} threads in {dtype}");
        }
    }
    Ok(())
}

#[test]
fn live_memory_stays_flat_over_100_steps() -> Result<()> {
    let device = device();
    let model = model(&device, TransformerConfig { dropout: 0.1, ..gpt2() })?;
    let mut optimizer = AdamW::of(model.parameters(), AdamWOptions::default())?;
    let mut live = Vec::new();
    for step in 0..100 {
        let loss = loss(&model, 2, 8, &Pass::training(2, step, 0))?;
        optimizer.zero_grad();
        loss.backward()?;
        optimizer.step()?;
        drop(loss);
        let memory = device.memory();
        live.push((memory.live_bytes, memory.peak_bytes, memory.system_allocations));
    }
    assert!(live[2..].iter().all(|after| *after == live[2]), "{live:?}");
    drop((model, optimizer));
    assert_eq!(device.memory().live_bytes, 0);
    Ok(())
}

#[test]
fn a_model_learns_what_it_is_shown() -> Result<()> {
    for config in [gpt2(), llama()] {
        let model = model(&device(), config)?;
        let options = AdamWOptions { learning_rate: 1e-2, ..Default::default() };
        let mut optimizer = AdamW::of(model.parameters(), options)?;
        let mut losses = Vec::new();
        for step in 0..60 {
            let loss = loss(&model, 2, 8, &Pass::training(2, step, 0))?;
            optimizer.zero_grad();
            loss.backward()?;
            optimizer.step()?;
            losses.push(loss.item()?);
        }
        assert!((losses[0] - 11f64.ln()).abs() < 0.1, "a new model knows nothing: {}", losses[0]);
        assert!(losses[59] < 0.1, "{losses:?}");
    }
    Ok(())
}

#[test]
fn freezing_reaches_every_parameter() -> Result<()> {
    let model = model(&device(), gpt2())?;
    model.set_trainable(false);
    assert!(!loss(&model, 1, 4, &Pass::training(1, 0, 0))?.needs_grad());
    model.norm.set_trainable(true);
    for recomputes in [false, true] {
        model.set_recompute(recomputes);
        model.parameters().iter().for_each(|leaf| leaf.clear_grad());
        loss(&model, 1, 4, &Pass::training(1, 0, 0))?.backward()?;
        for (path, param) in model.named_parameters() {
            let trained = path.starts_with("norm.");
            assert_eq!(param.leaf().grad().is_some(), trained, "{path}");
        }
    }
    Ok(())
}
