//! Windows of micro-batches: what one optimizer step adds up, and where the windows end.

use std::sync::Arc;

use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::contract::HostVec;
use sneppx::cpu::Cpu;
use sneppx::data::{
    Dealing, GlobalBatchSampler, HostTensor, LastBatch, MicroBatch, Order, TokenBatch,
};
use sneppx::nn::{Builder, Module, Pass, Transformer, TransformerConfig};
use sneppx::optim::{Optimizer, Schedule, Sgd, SgdOptions};
use sneppx::shard::OrderedSum;
use sneppx::tensor::Leaf;
use sneppx::train::{StepSettings, step};
use sneppx::{DType, Result, Tensor};

const IGNORED: i64 = -100;

fn descent(leaves: Vec<Arc<Leaf<Cpu>>>, learning_rate: f64) -> Sgd<Cpu> {
    Sgd::of(leaves, SgdOptions { learning_rate, ..SgdOptions::default() }).unwrap()
}

/// Passes over a data set whose every sample has gradient 1, in windows of `window` samples; gives
/// the parameter, which starts at 0, and the number of updates after each of two epochs.
fn two_epochs(samples: usize, window: usize, last: LastBatch) -> Result<[(f64, usize); 2]> {
    let device = Cpu::with_threads(1)?;
    let sampler = GlobalBatchSampler::new(samples, window, 1, Order::Sequential, last)?;
    let leaf = Leaf::new("p", Tensor::zeros(&device, DType::F64, &[])?, true);
    let leaves = [leaf.clone()];
    let mut optimizer = descent(leaves.to_vec(), 1.0);
    let mut found = [(f64::NAN, 0); 2];
    let (mut consumed, mut updates) = (0, 0);
    for (epoch, found) in found.iter_mut().enumerate() {
        loop {
            let batch = sampler.batch_at(consumed)?;
            if batch.position >= (epoch as u64 + 1) * samples as u64 {
                break;
            }
            let micro_batches = batch.share(0, 1, Dealing::Contiguous)?;
            let weight = 1.0 / batch.draws.len() as f64;
            optimizer.zero_grad();
            let mut sum = OrderedSum::new(&leaves);
            for _ in &micro_batches {
                leaf.tensor()?.mul_scalar(weight)?.backward()?;
                sum.take()?;
            }
            sum.finish()?;
            optimizer.step()?;
            (consumed, updates) = (batch.end(), updates + 1);
        }
        *found = (leaf.value()?.item()?, updates);
    }
    Ok(found)
}

#[test]
fn acc_01_the_last_window_is_short_dropped_or_filled_and_never_divided_by_the_full_one() {
    assert_eq!(two_epochs(10, 4, LastBatch::Short).unwrap(), [(-3.0, 3), (-6.0, 6)]);
    assert_eq!(two_epochs(10, 4, LastBatch::Drop).unwrap(), [(-2.0, 2), (-4.0, 4)]);
    // The third window has two samples of the second epoch, which the fifth ends with.
    assert_eq!(two_epochs(10, 4, LastBatch::CarryOver).unwrap(), [(-3.0, 3), (-5.0, 5)]);
}

#[test]
fn acc_03_window_settings_at_the_edge() {
    let error = two_epochs(3, 0, LastBatch::Short).unwrap_err().to_string();
    assert!(error.contains("global_batch"), "{error}");
    for (window, want) in [(1, -3.0), (3, -1.0), (8, -1.0)] {
        assert_eq!(two_epochs(3, window, LastBatch::Short).unwrap()[0].0, want, "{window}");
    }
    // A window that no epoch fills is refused where windows have to be full.
    for last in [LastBatch::Drop, LastBatch::CarryOver] {
        let error = two_epochs(3, 8, last).unwrap_err().to_string();
        assert!(error.contains("global_batch = 8") && error.contains('3'), "{error}");
    }
}

#[test]
fn acc_02_sums_over_tokens_divided_by_all_tokens() {
    let device = Cpu::with_threads(1).unwrap();
    let leaf = Leaf::new("p", Tensor::zeros(&device, DType::F64, &[]).unwrap(), true);
    let leaves = [leaf.clone()];
    let mut sum = OrderedSum::new(&leaves);
    // Micro-batches of 1 and of 3 tokens with sums of gradients of -1 and 5.
    for gradient in [-1.0, 5.0] {
        leaf.tensor().unwrap().mul_scalar(gradient / 4.0).unwrap().backward().unwrap();
        sum.take().unwrap();
    }
    sum.finish().unwrap();
    assert_eq!(leaf.grad().unwrap().item().unwrap(), 1.0);
}

fn model(device: &Cpu) -> Transformer<Cpu> {
    let config = TransformerConfig::gpt2(7, 8, 2, 1, 16, 4);
    let builder = Builder::new(device, 5).with_dtype(DType::F64).unwrap();
    Transformer::new(config, &builder).unwrap()
}

fn micro_batch(tokens: [i64; 4], targets: [i64; 4]) -> MicroBatch<TokenBatch> {
    let tensor =
        |values: [i64; 4]| HostTensor::new(HostVec::I64(values.to_vec()), &[1, 4]).unwrap();
    let batch = TokenBatch { tokens: tensor(tokens), targets: tensor(targets) };
    MicroBatch { number: 0, first_sample: 0, samples: 1, batch }
}

fn settings(number: u64, learning_rate: f64) -> StepSettings {
    let loss = CrossEntropyOptions { ignore_index: IGNORED, ..CrossEntropyOptions::default() };
    StepSettings { number, seed: 0, learning_rate, clip: None, loss }
}

fn values(leaves: &[Arc<Leaf<Cpu>>]) -> Vec<f64> {
    leaves.iter().flat_map(|leaf| leaf.value().unwrap().to_host().unwrap().to_f64()).collect()
}

#[test]
fn acc_02_a_step_weighs_every_counted_token_alike() {
    let device = Cpu::with_threads(1).unwrap();
    let one = ([1, 2, 3, 4], [2, IGNORED, IGNORED, IGNORED]);
    let three = ([5, 6, 1, 0], [6, 1, 0, IGNORED]);
    let none = ([1, 1, 1, 1], [IGNORED; 4]);

    // The gradient of the sum over the four tokens, halved twice.
    let whole = model(&device);
    let leaves = whole.parameters();
    let before = values(&leaves);
    let mut losses = 0.0;
    for (tokens, targets) in [one, three] {
        let tensor = |values: [i64; 4]| Tensor::from_slice(&device, &values, &[1, 4]).unwrap();
        let (tokens, targets) = (tensor(tokens), tensor(targets));
        let (loss, pass) = (settings(0, 1.0).loss, Pass::training(0, 0, 0));
        let sum = whole.losses(&tokens, &targets, loss, &pass).unwrap().sum_all().unwrap();
        losses += sum.item().unwrap();
        sum.mul_scalar(0.25).unwrap().backward().unwrap();
    }
    descent(leaves.clone(), 1.0).step().unwrap();
    let want = values(&leaves);
    assert_ne!(before, want);

    for batch in [vec![one, three], vec![three, one], vec![one, none, three]] {
        let model = model(&device);
        let leaves = model.parameters();
        let mut optimizer = descent(leaves.clone(), 1.0);
        let batch: Vec<_> = batch.into_iter().map(|(x, y)| micro_batch(x, y)).collect();
        let sums = step(&model, &leaves, &batch, &mut optimizer, &settings(0, 1.0)).unwrap();
        assert_eq!(sums.tokens, 4);
        assert!((sums.loss - losses / 4.0).abs() < 1e-12, "{} {losses}", sums.loss);
        for (got, want) in values(&leaves).iter().zip(&want) {
            assert!((got - want).abs() < 1e-12, "{got} {want}");
        }
    }
}

#[test]
fn ce_02_a_step_whose_every_target_is_ignored_has_loss_0_and_moves_nothing() {
    let device = Cpu::with_threads(1).unwrap();
    let model = model(&device);
    let leaves = model.parameters();
    let before = values(&leaves);
    let mut optimizer = descent(leaves.clone(), 1.0);
    let batch = [micro_batch([1, 2, 3, 4], [IGNORED; 4])];
    let sums = step(&model, &leaves, &batch, &mut optimizer, &settings(0, 1.0)).unwrap();
    assert_eq!((sums.loss, sums.tokens, sums.grad_norm), (0.0, 0, 0.0));
    assert_eq!(values(&leaves), before);
}

#[test]
fn a_parameter_without_a_part_in_any_micro_batch_has_no_gradient_after_the_sum() {
    let device = Cpu::with_threads(1).unwrap();
    let leaf = |name: &str| Leaf::new(name, Tensor::ones(&device, DType::F64, &[2]).unwrap(), true);
    let (always, once, never) = (leaf("always"), leaf("once"), leaf("never"));
    let leaves = [always.clone(), once.clone(), never.clone()];
    let mut sum = OrderedSum::new(&leaves);
    for number in 0..3 {
        let mut loss = always.tensor().unwrap().sum_all().unwrap();
        if number == 1 {
            loss = loss.add(&once.tensor().unwrap().sum_all().unwrap()).unwrap();
        }
        loss.backward().unwrap();
        sum.take().unwrap();
        assert!(leaves.iter().all(|leaf| leaf.grad().is_none()), "{number}");
    }
    sum.finish().unwrap();
    let grad = |leaf: &Leaf<Cpu>| leaf.grad().map(|grad| grad.to_vec::<f64>().unwrap());
    assert_eq!(grad(&always), Some(vec![3.0, 3.0]));
    assert_eq!(grad(&once), Some(vec![1.0, 1.0]));
    assert_eq!(grad(&never), None);
}

#[test]
fn lr_03_the_rate_advances_once_per_step_whatever_the_micro_batches() {
    let device = Cpu::with_threads(1).unwrap();
    let schedule = Schedule::cosine(1.0, 0.1, 4, 10).unwrap();
    let model = model(&device);
    let leaves = model.parameters();
    let mut optimizer = descent(leaves.clone(), 0.0);
    let micro_batches: Vec<_> =
        (0..16).map(|at| micro_batch([at % 7, 1, 2, 3], [1, 2, 3, at % 5])).collect();
    let mut rates = Vec::new();
    for (number, window) in micro_batches.chunks(4).enumerate() {
        let rate = schedule.learning_rate(number as u64);
        let settings = settings(number as u64, rate);
        step(&model, &leaves, window, &mut optimizer, &settings).unwrap();
        rates.push(optimizer.learning_rate());
    }
    let want = [0.2, 0.4, 0.6, 0.8];
    assert!(rates.len() == 4 && rates.iter().zip(want).all(|(r, w)| (r - w).abs() < 1e-9));
    assert_eq!(schedule.learning_rate(4), 1.0);
}
