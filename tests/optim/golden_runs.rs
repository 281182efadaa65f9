//! Eight steps of every case of PyTorch's, and its clipping.

use sneppx::DType;
use sneppx::cpu::Cpu;
use sneppx::optim::{AdamW, AdamWOptions, NormType, Optimizer, Sgd, SgdOptions, clip_grad_norm};

use crate::golden::{GoldenFile, assert_close, json};
use crate::leaves::{CpuLeaf, grad, leaf, leaves_with, set_grad, value};

fn golden_run(case: &str, mut optimizer: Box<dyn Optimizer<Cpu>>, leaf: &CpuLeaf, stored: &[&str]) {
    let (file, options) = (GoldenFile::open("optim.safetensors"), json("optim.json"));
    let tolerance = if leaf.dtype() == DType::F64 { 1e-12 } else { 1e-6 };
    let read = |name: &str| file.tensor(&format!("{case}.{name}")).values;
    let (grads, params) = (read("grad"), read("param"));
    let states: Vec<Vec<f64>> = stored.iter().map(|name| read(name)).collect();
    let rates = options[case]["learning_rates"].as_array().unwrap();
    let row = |values: &[f64], at: usize| values[at * 13..(at + 1) * 13].to_vec();
    for (at, rate) in rates.iter().enumerate() {
        optimizer.set_learning_rate(rate.as_f64().unwrap()).unwrap();
        set_grad(leaf, &row(&grads, at));
        optimizer.step().unwrap();
        assert_close(case, &value(leaf), &row(&params, at), tolerance);
        let state = &optimizer.state()[0];
        assert_eq!(state.step, at as u64 + 1);
        assert_eq!(state.tensors.len(), stored.len());
        for ((name, tensor), want) in state.tensors.iter().zip(&states) {
            let got = tensor.to_host().unwrap().to_f64();
            assert_close(&format!("{case} {name}"), &got, &row(want, at), tolerance);
        }
    }
    assert_eq!(rates.len(), 8);
}

#[test]
fn adamw_follows_pytorch_step_by_step() {
    let (file, all) = (GoldenFile::open("optim.safetensors"), json("optim.json"));
    for case in ["adamw_default", "adamw_no_decay", "adamw_large_eps", "adamw_schedule"] {
        let options = AdamWOptions {
            learning_rate: 0.0,
            beta1: all[case]["betas"][0].as_f64().unwrap(),
            beta2: all[case]["betas"][1].as_f64().unwrap(),
            epsilon: all[case]["eps"].as_f64().unwrap(),
            weight_decay: all[case]["weight_decay"].as_f64().unwrap(),
        };
        for dtype in [DType::F64, DType::F32] {
            let leaf = leaf("p", dtype, &file.tensor(&format!("{case}.initial")).values);
            let optimizer = AdamW::of(vec![leaf.clone()], options).unwrap();
            golden_run(case, Box::new(optimizer), &leaf, &["exp_avg", "exp_avg_sq"]);
        }
    }
}

#[test]
fn sgd_follows_pytorch_step_by_step() {
    let (file, all) = (GoldenFile::open("optim.safetensors"), json("optim.json"));
    let cases = ["sgd_plain", "sgd_decay", "sgd_momentum", "sgd_momentum_decay", "sgd_nesterov"];
    for case in cases {
        let number = |name: &str| all[case][name].as_f64().unwrap();
        let options = SgdOptions {
            learning_rate: 0.0,
            momentum: number("momentum"),
            dampening: number("dampening"),
            nesterov: all[case]["nesterov"].as_bool().unwrap(),
            weight_decay: number("weight_decay"),
        };
        let stored: &[&str] = if options.momentum > 0.0 { &["momentum_buffer"] } else { &[] };
        for dtype in [DType::F64, DType::F32] {
            let leaf = leaf("p", dtype, &file.tensor(&format!("{case}.initial")).values);
            let optimizer = Sgd::of(vec![leaf.clone()], options).unwrap();
            golden_run(case, Box::new(optimizer), &leaf, stored);
        }
    }
}

#[test]
fn clipping_follows_pytorch() {
    let (file, options) = (GoldenFile::open("optim.safetensors"), json("optim.json"));
    let read = |name: String| file.tensor(&name).values;
    for case in ["l2", "l2_not_reached", "inf", "inf_not_reached"] {
        let entry = &options[format!("clip.{case}")];
        let norm_type =
            if entry["norm_type"] == "inf" { NormType::Infinity } else { NormType::Two };
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-6)] {
            let grads: Vec<_> = (0..3).map(|at| read(format!("clip.grad.{at}"))).collect();
            let grads: Vec<&[f64]> = grads.iter().map(|grad| &grad[..]).collect();
            let leaves = leaves_with(dtype, &grads);
            let limit = entry["max_norm"].as_f64().unwrap();
            let clipped = clip_grad_norm(&leaves, limit, norm_type).unwrap();
            assert_close(case, &[clipped.norm], &read(format!("clip.{case}.norm")), tolerance);
            for (at, leaf) in leaves.iter().enumerate() {
                let want = read(format!("clip.{case}.clipped.{at}"));
                assert_close(case, &grad(leaf), &want, tolerance);
            }
        }
    }
}
