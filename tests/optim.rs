//! Optimizers and clipping: values of PyTorch, and the mistakes that other projects made.

mod golden;

use std::sync::Arc;

use sneppx::contract::HostVec;
use sneppx::cpu::Cpu;
use sneppx::optim::{
    AdamW, AdamWOptions, NormType, Optimizer, OptimizerState, ParamGroup, Schedule, Sgd,
    SgdOptions, clip_factor, clip_grad_norm, first_non_finite, grad_norm,
};
use sneppx::shard::OrderedSum;
use sneppx::tensor::Leaf;
use sneppx::{DType, Tensor};

use golden::{GoldenFile, assert_close, json};

type CpuLeaf = Arc<Leaf<Cpu>>;

fn device() -> Cpu {
    Cpu::with_threads(1).unwrap()
}

fn tensor(device: &Cpu, dtype: DType, values: &[f64]) -> Tensor<Cpu> {
    Tensor::from_host(device, &HostVec::from_f64(dtype, values), &[values.len()]).unwrap()
}

fn leaf(name: &str, dtype: DType, values: &[f64]) -> CpuLeaf {
    Leaf::new(name, tensor(&device(), dtype, values), true)
}

fn set_grad(leaf: &CpuLeaf, values: &[f64]) {
    let device = leaf.value().unwrap().device().clone();
    leaf.set_grad(Some(tensor(&device, leaf.dtype(), values)));
}

fn value(leaf: &CpuLeaf) -> Vec<f64> {
    leaf.value().unwrap().to_host().unwrap().to_f64()
}

fn grad(leaf: &CpuLeaf) -> Vec<f64> {
    leaf.grad().unwrap().to_host().unwrap().to_f64()
}

fn adamw(learning_rate: f64, weight_decay: f64) -> AdamWOptions {
    AdamWOptions { learning_rate, weight_decay, ..AdamWOptions::default() }
}

fn step_with(optimizer: &mut dyn Optimizer<Cpu>, leaf: &CpuLeaf, gradient: f64) {
    set_grad(leaf, &[gradient]);
    optimizer.step().unwrap();
    optimizer.zero_grad();
}

/// The state of the one parameter, as numbers.
fn numbers(optimizer: &dyn Optimizer<Cpu>) -> (u64, Vec<f64>) {
    let state = &optimizer.state()[0];
    let values = |(_, tensor): &(String, Tensor<Cpu>)| tensor.to_host().unwrap().to_f64();
    (state.step, state.tensors.iter().flat_map(values).collect())
}

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
fn dampening_holds_back_all_but_the_first_gradient() {
    let p = leaf("p", DType::F64, &[0.0]);
    let options =
        SgdOptions { learning_rate: 1.0, momentum: 0.5, dampening: 0.25, ..SgdOptions::default() };
    let mut optimizer = Sgd::of(vec![p.clone()], options).unwrap();
    step_with(&mut optimizer, &p, 2.0);
    assert_eq!(value(&p), [-2.0]);
    step_with(&mut optimizer, &p, 4.0);
    assert_eq!((value(&p), numbers(&optimizer)), (vec![-6.0], (2, vec![4.0])));
}

#[test]
fn adam_01_decay_is_decoupled() {
    for (gradient, want) in [(0.1, 0.890_000_01), (0.0, 0.99)] {
        let p = leaf("p", DType::F64, &[1.0]);
        let mut optimizer = AdamW::of(vec![p.clone()], adamw(0.1, 0.1)).unwrap();
        step_with(&mut optimizer, &p, gradient);
        assert_close("p", &value(&p), &[want], 1e-12);
    }
    let p = leaf("p", DType::F32, &[1.0]);
    let mut optimizer = AdamW::of(vec![p.clone()], adamw(0.1, 0.1)).unwrap();
    step_with(&mut optimizer, &p, 0.0);
    assert_eq!(value(&p), [f64::from(0.99f32)]);
}

#[test]
fn adam_02_epsilon_stands_beside_the_corrected_root() {
    let p = leaf("p", DType::F64, &[0.0]);
    let options = AdamWOptions { epsilon: 1e-3, ..adamw(1.0, 0.0) };
    let mut optimizer = AdamW::of(vec![p.clone()], options).unwrap();
    step_with(&mut optimizer, &p, 1e-3);
    assert_close("p", &value(&p), &[-0.5], 1e-10);
    step_with(&mut optimizer, &p, 2e-3);
    assert_close("p", &value(&p), &[-1.0912798946], 1e-10);
}

#[test]
fn adam_03_a_loaded_state_goes_on_with_its_count() {
    let p = leaf("p", DType::F64, &[0.0]);
    let mut optimizer = AdamW::of(vec![p.clone()], adamw(0.1, 0.0)).unwrap();
    (0..5).for_each(|_| step_with(&mut optimizer, &p, 1.0));
    assert_close("five steps", &value(&p), &[-0.4999999950], 1e-10);

    let fresh = leaf("p", DType::F64, &value(&p));
    let mut resumed = AdamW::of(vec![fresh.clone()], adamw(0.1, 0.0)).unwrap();
    resumed.load_state(optimizer.state()).unwrap();
    let saved = numbers(&resumed);
    step_with(&mut optimizer, &p, -2.0);
    assert_eq!(numbers(&resumed), saved, "the loaded state is a copy");
    step_with(&mut resumed, &fresh, -2.0);
    assert_close("the sixth", &value(&fresh), &[-0.5293603253], 1e-10);
    assert_eq!(value(&fresh), value(&p));
}

#[test]
fn sgd_state_goes_on_too() {
    let options = SgdOptions { learning_rate: 0.1, momentum: 0.9, ..SgdOptions::default() };
    let p = leaf("p", DType::F32, &[0.0]);
    let mut optimizer = Sgd::of(vec![p.clone()], options).unwrap();
    (0..3).for_each(|_| step_with(&mut optimizer, &p, 1.0));
    let fresh = leaf("p", DType::F32, &value(&p));
    let mut resumed = Sgd::of(vec![fresh.clone()], options).unwrap();
    resumed.load_state(optimizer.state()).unwrap();
    step_with(&mut optimizer, &p, -2.0);
    step_with(&mut resumed, &fresh, -2.0);
    assert_eq!((value(&fresh), numbers(&resumed)), (value(&p), numbers(&optimizer)));
}

#[test]
fn a_state_that_does_not_belong_is_refused_and_changes_nothing() {
    let p = leaf("p", DType::F32, &[0.0, 0.0]);
    let mut optimizer = AdamW::of(vec![p.clone()], adamw(0.1, 0.0)).unwrap();
    set_grad(&p, &[1.0, 2.0]);
    optimizer.step().unwrap();
    let good = optimizer.state();
    let before = numbers(&optimizer);
    let other = |change: &dyn Fn(&mut OptimizerState<Cpu>)| {
        let mut state = good.clone();
        change(&mut state[0]);
        state
    };
    let short = || tensor(&device(), DType::F32, &[1.0]);
    let wide = || tensor(&device(), DType::F64, &[1.0, 2.0]);
    for (state, word) in [
        (other(&|state| state.name = "q".into()), "q"),
        (other(&|state| drop(state.tensors.pop())), "first_moment"),
        (other(&|state| state.tensors[0].1 = short()), "[1]"),
        (other(&|state| state.tensors[1].1 = wide()), "f64"),
        ([good.clone(), good.clone()].concat(), "twice"),
    ] {
        let error = optimizer.load_state(state).unwrap_err().to_string();
        assert!(error.contains(word), "{error} has no {word}");
        assert_eq!(numbers(&optimizer), before);
    }
    let twins = vec![p.clone(), leaf("p", DType::F32, &[0.0, 0.0])];
    let mut optimizer = AdamW::of(twins, adamw(0.1, 0.0)).unwrap();
    let error = optimizer.load_state(good).unwrap_err().to_string();
    assert!(error.contains("two parameters"), "{error}");
}

#[test]
fn adam_04_groups_without_decay_and_parameters_listed_twice() {
    let [weight, bias, scale] = ["weight", "bias", "scale"].map(|n| leaf(n, DType::F64, &[1.0]));
    let all = vec![weight.clone(), bias.clone(), scale.clone()];
    let groups = ParamGroup::split(all.clone(), 0.1, |leaf| leaf.name() == "weight");
    let mut optimizer = AdamW::new(groups, adamw(0.1, 0.5)).unwrap();
    all.iter().for_each(|leaf| set_grad(leaf, &[0.0]));
    optimizer.step().unwrap();
    assert_close("weight", &value(&weight), &[0.99], 1e-15);
    assert_eq!((value(&bias), value(&scale)), (vec![1.0], vec![1.0]));

    let one = |leaves: &[&CpuLeaf]| ParamGroup::new(leaves.iter().copied().cloned().collect(), 0.1);
    for groups in [vec![one(&[&weight, &weight])], vec![one(&[&weight]), one(&[&weight])]] {
        let error = AdamW::new(groups.clone(), adamw(0.1, 0.0)).unwrap_err().to_string();
        assert!(error.contains("weight") && error.contains("twice"), "{error}");
        let error = Sgd::new(groups, SgdOptions::default()).unwrap_err().to_string();
        assert!(error.contains("weight") && error.contains("twice"), "{error}");
    }
}

#[test]
fn adam_05_a_missing_gradient_is_not_a_zero_gradient() {
    let p = leaf("p", DType::F64, &[1.0]);
    let mut optimizer = AdamW::of(vec![p.clone()], adamw(0.1, 0.1)).unwrap();
    step_with(&mut optimizer, &p, 1.0);
    assert_close("p", &value(&p), &[0.890000001], 1e-10);
    let after_one = (value(&p), numbers(&optimizer));
    assert_eq!(after_one.1.0, 1);
    assert_close("moments", &after_one.1.1, &[0.1, 0.001], 1e-15);
    optimizer.step().unwrap();
    assert_eq!((value(&p), numbers(&optimizer)), after_one, "without a gradient");
    p.set_trainable(false);
    step_with(&mut optimizer, &p, 1.0);
    assert_eq!((value(&p), numbers(&optimizer)), after_one, "frozen");
    p.set_trainable(true);
    step_with(&mut optimizer, &p, 0.0);
    assert_close("p", &value(&p), &[0.8140941765], 1e-10);
    let (step, moments) = numbers(&optimizer);
    assert_eq!(step, 2);
    assert_close("moments", &moments, &[0.09, 0.000999], 1e-15);
}

#[test]
fn sgd_without_a_gradient_keeps_its_momentum() {
    let p = leaf("p", DType::F64, &[1.0]);
    let options = SgdOptions {
        learning_rate: 0.1,
        momentum: 0.9,
        weight_decay: 0.1,
        ..SgdOptions::default()
    };
    let mut optimizer = Sgd::of(vec![p.clone()], options).unwrap();
    step_with(&mut optimizer, &p, 1.0);
    let before = (value(&p), numbers(&optimizer));
    optimizer.step().unwrap();
    assert_eq!((value(&p), numbers(&optimizer)), before);
}

#[test]
fn adam_06_zero_gradients_leave_half_precision_parameters_alone() {
    for dtype in [DType::F16, DType::BF16] {
        let p = leaf("p", dtype, &[1.0, -2.0, 0.5]);
        let mut optimizer = AdamW::of(vec![p.clone()], adamw(1e-3, 0.0)).unwrap();
        for _ in 0..3 {
            set_grad(&p, &[0.0; 3]);
            optimizer.step().unwrap();
        }
        assert_eq!(value(&p), [1.0, -2.0, 0.5], "{dtype}");
        assert_eq!(numbers(&optimizer), (3, vec![0.0; 6]), "{dtype}");
    }
}

#[test]
fn adam_07_nan_in_one_gradient_stays_there_and_is_seen() {
    let (a, b) = (leaf("a", DType::F32, &[0.0]), leaf("b", DType::F32, &[0.0]));
    let both = vec![a.clone(), b.clone()];
    let mut optimizer = AdamW::of(both.clone(), adamw(0.1, 0.0)).unwrap();
    set_grad(&a, &[1.0]);
    set_grad(&b, &[f64::NAN]);
    assert!(grad_norm(&both, NormType::Two).unwrap().is_nan());
    assert_eq!(first_non_finite(&both).unwrap(), Some("b".into()));
    optimizer.step().unwrap();
    assert_close("a", &value(&a), &[-0.1], 1e-6);
    assert!(value(&b)[0].is_nan());
}

#[test]
fn adam_08_a_weight_changed_by_hand_keeps_its_state() {
    let p = leaf("p", DType::F64, &[0.0]);
    let mut optimizer = AdamW::of(vec![p.clone()], adamw(0.1, 0.0)).unwrap();
    step_with(&mut optimizer, &p, 1.0);
    let clamped = value(&p)[0].max(-0.05);
    p.set_value(tensor(&device(), DType::F64, &[clamped])).unwrap();
    step_with(&mut optimizer, &p, -2.0);
    assert_close("p", &value(&p), &[-0.0133896], 1e-7);
}

#[test]
fn optimizers_refuse_settings_that_make_no_sense() {
    let p = || vec![leaf("p", DType::F32, &[0.0])];
    let refused = |options: AdamWOptions| AdamW::of(p(), options).unwrap_err().to_string();
    let base = AdamWOptions::default();
    assert!(refused(AdamWOptions { learning_rate: -1.0, ..base }).contains("-1"));
    assert!(refused(AdamWOptions { beta1: 1.0, ..base }).contains("beta1"));
    assert!(refused(AdamWOptions { beta2: f64::NAN, ..base }).contains("beta2"));
    assert!(refused(AdamWOptions { epsilon: f64::INFINITY, ..base }).contains("epsilon"));
    assert!(refused(AdamWOptions { weight_decay: -0.1, ..base }).contains("weight decay"));
    let refused = |options: SgdOptions| Sgd::of(p(), options).unwrap_err().to_string();
    let base = SgdOptions::default();
    assert!(refused(SgdOptions { learning_rate: f64::NAN, ..base }).contains("NaN"));
    assert!(refused(SgdOptions { momentum: 1.0, ..base }).contains("momentum"));
    assert!(refused(SgdOptions { dampening: -0.5, ..base }).contains("dampening"));
    assert!(refused(SgdOptions { nesterov: true, ..base }).contains("nesterov"));
    let mut optimizer = Sgd::of(p(), base).unwrap();
    assert!(optimizer.set_learning_rate(f64::INFINITY).is_err());
    assert_eq!(optimizer.learning_rate(), base.learning_rate);
}

fn leaves_with(dtype: DType, grads: &[&[f64]]) -> Vec<CpuLeaf> {
    let one = |(at, grad): (usize, &&[f64])| {
        let leaf = leaf(&at.to_string(), dtype, &vec![0.0; grad.len()]);
        set_grad(&leaf, grad);
        leaf
    };
    grads.iter().enumerate().map(one).collect()
}

fn all_grads(leaves: &[CpuLeaf]) -> Vec<f64> {
    leaves.iter().flat_map(grad).collect()
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

#[test]
fn clip_01_the_norm_is_that_of_all_gradients_together() {
    for pieces in [vec![&[3.0, 0.0][..], &[0.0, 4.0]], vec![&[3.0], &[0.0], &[0.0], &[4.0]]] {
        let leaves = leaves_with(DType::F32, &pieces);
        let clipped = clip_grad_norm(&leaves, 1.0, NormType::Two).unwrap();
        assert_eq!(clipped.norm, 5.0);
        assert_close("clipped", &all_grads(&leaves), &[0.6, 0.0, 0.0, 0.8], 1e-6);
    }
}

#[test]
fn clip_03_the_infinity_norm_is_the_largest_magnitude() {
    let leaves = leaves_with(DType::F32, &[&[-7.0, 2.0], &[3.0, -5.0]]);
    let clipped = clip_grad_norm(&leaves, 3.5, NormType::Infinity).unwrap();
    assert_eq!(clipped.norm, 7.0);
    assert_close("clipped", &all_grads(&leaves), &[-3.5, 1.0, 1.5, -2.5], 1e-6);
}

#[test]
fn clip_04_zero_gradients_a_limit_of_zero_and_a_limit_just_met() {
    for (gradient, limit, norm, want) in [
        ([0.0, 0.0], 1.0, 0.0, [0.0, 0.0]),
        ([0.0, 0.0], 0.0, 0.0, [0.0, 0.0]),
        ([3.0, 4.0], 0.0, 5.0, [0.0, 0.0]),
    ] {
        let leaves = leaves_with(DType::F32, &[&gradient]);
        assert_eq!(clip_grad_norm(&leaves, limit, NormType::Two).unwrap().norm, norm);
        assert_eq!(all_grads(&leaves), want);
    }
    let leaves = leaves_with(DType::F32, &[&[3.0, 4.0]]);
    clip_grad_norm(&leaves, 6.0, NormType::Two).unwrap();
    assert_eq!(all_grads(&leaves), [3.0, 4.0]);
    clip_grad_norm(&leaves, 5.0, NormType::Two).unwrap();
    assert_close("just met", &all_grads(&leaves), &[3.0, 4.0], 1e-6);
}

#[test]
fn clip_05_a_norm_that_is_not_finite_scales_nothing() {
    for norm_type in [NormType::Two, NormType::Infinity] {
        for bad in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let leaves = leaves_with(DType::F32, &[&[1.0, 2.0], &[bad, 3.0]]);
            let clipped = clip_grad_norm(&leaves, 1.0, norm_type).unwrap();
            assert!(!clipped.norm.is_finite() && clipped.factor == 1.0, "{clipped:?}");
            assert_eq!(grad(&leaves[0]), [1.0, 2.0]);
            assert_eq!(grad(&leaves[1])[1], 3.0);
            assert_eq!(first_non_finite(&leaves).unwrap(), Some("1".into()));
        }
    }
}

#[test]
fn clip_06_squares_of_half_precision_gradients_do_not_overflow() {
    let leaves = leaves_with(DType::F16, &[&[300.0]]);
    assert_eq!(clip_grad_norm(&leaves, 1.0, NormType::Two).unwrap().norm, 300.0);
    assert_close("one", &all_grads(&leaves), &[1.0], 1e-3);
    let leaves = leaves_with(DType::F16, &[&[300.0; 64]]);
    assert_eq!(clip_grad_norm(&leaves, 1.0, NormType::Two).unwrap().norm, 2400.0);
    assert_close("64", &all_grads(&leaves), &[0.125; 64], 1e-3);
}

#[test]
fn clip_07_gradients_are_unscaled_before_they_are_clipped() {
    let scale = 1024.0;
    let leaves = leaves_with(DType::F32, &[&[3072.0, 4096.0]]);
    let options = SgdOptions { learning_rate: 1.0, ..SgdOptions::default() };
    let mut optimizer = Sgd::of(leaves.clone(), options).unwrap();
    let norm = grad_norm(&leaves, NormType::Two).unwrap() / scale;
    assert_eq!(norm, 5.0);
    optimizer.step_scaled(clip_factor(norm, 1.0).unwrap() / scale).unwrap();
    assert_close("p", &value(&leaves[0]), &[-0.6, -0.8], 1e-6);
}

#[test]
fn clip_08_limits_that_make_no_sense_are_refused() {
    for limit in [f64::NAN, -1.0] {
        let leaves = leaves_with(DType::F32, &[&[3.0, 4.0]]);
        let error = clip_grad_norm(&leaves, limit, NormType::Two).unwrap_err().to_string();
        assert!(error.contains(&limit.to_string()), "{error}");
        assert_eq!(all_grads(&leaves), [3.0, 4.0]);
    }
    let leaves = leaves_with(DType::F32, &[&[3.0, 4.0]]);
    assert_eq!(clip_grad_norm(&leaves, f64::INFINITY, NormType::Two).unwrap().norm, 5.0);
    assert_eq!(all_grads(&leaves), [3.0, 4.0]);
    clip_grad_norm(&leaves, -0.0, NormType::Two).unwrap();
    assert_eq!(all_grads(&leaves), [0.0, 0.0]);
}

#[test]
fn clip_09_gradients_are_clipped_once_per_step() {
    let leaves = leaves_with(DType::F32, &[&[0.0, 0.0]]);
    let mut sum = OrderedSum::new(&leaves);
    for micro in [[15.0, 20.0], [0.0, -0.5]] {
        set_grad(&leaves[0], &micro);
        sum.take().unwrap();
    }
    sum.finish().unwrap();
    let clipped = clip_grad_norm(&leaves, 1.0, NormType::Two).unwrap();
    assert_close("norm", &[clipped.norm], &[24.6018292], 1e-7);
    assert_close("clipped", &all_grads(&leaves), &[0.60971074, 0.79262396], 1e-6);
}

#[test]
fn lr_01_every_step_of_the_tables() {
    let tables = json("schedules.json");
    let mut tried = 0;
    for table in tables.as_array().unwrap() {
        let (name, number) = (table["name"].as_str().unwrap(), |key: &str| table[key].as_f64());
        let count = |key: &str| table[key].as_u64().unwrap();
        let peak = number("base").unwrap();
        let min = peak * number("min_factor").unwrap();
        let (warmup, total) = (count("warmup_steps"), count("total_steps"));
        let schedule = match table["shape"].as_str().unwrap() {
            "cosine" => Schedule::cosine(peak, min, warmup, total),
            "linear" => Schedule::linear(peak, min, warmup, total),
            "constant" => Schedule::constant(peak, warmup),
            "wsd_linear" => Schedule::wsd(peak, min, warmup, total, count("decay_steps")),
            // A course that is not offered.
            "wsd_sqrt" => continue,
            other => panic!("{name} has shape {other}"),
        };
        let mut schedule = schedule.unwrap();
        if table["warmup_formula"].as_str().unwrap().starts_with("s / w") {
            schedule = schedule.with_rise_from_zero();
        }
        let steps = table["steps"].as_array().unwrap();
        let rate = |step: &serde_json::Value| schedule.learning_rate(step.as_u64().unwrap());
        let got: Vec<f64> = steps.iter().map(rate).collect();
        let values = table["values"].as_array().unwrap();
        let want: Vec<f64> = values.iter().map(|value| value.as_f64().unwrap()).collect();
        assert_close(name, &got, &want, 1e-12);
        assert!(got.iter().all(|&rate| (0.0..=peak).contains(&rate)), "{name}: {got:?}");
        tried += 1;
    }
    assert_eq!(tried, 8);
}

#[test]
fn lr_01_schedules_refuse_settings_that_make_no_sense() {
    for (result, word) in [
        (Schedule::cosine(-1.0, 0.0, 1, 2), "learning rate"),
        (Schedule::cosine(f64::NAN, 0.0, 1, 2), "NaN"),
        (Schedule::linear(0.1, 0.2, 1, 2), "0.2"),
        (Schedule::linear(1.0, 0.0, 3, 2), "warmup"),
        (Schedule::wsd(1.0, 0.0, 2, 4, 3), "decay"),
    ] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(word), "{error} has no {word}");
    }
}

#[test]
fn lr_02_a_resumed_run_repeats_and_skips_no_rate() {
    let schedule = Schedule::cosine(1.0, 0.1, 4, 10).unwrap();
    let p = leaf("p", DType::F64, &[0.0]);
    let mut optimizer = AdamW::of(vec![p.clone()], adamw(0.0, 0.0)).unwrap();
    let update = |optimizer: &mut AdamW<Cpu>, leaf: &CpuLeaf| {
        let taken = optimizer.state().first().map_or(0, |state| state.step);
        optimizer.set_learning_rate(schedule.learning_rate(taken)).unwrap();
        step_with(optimizer, leaf, 1.0);
        optimizer.learning_rate()
    };
    let before: Vec<f64> = (0..5).map(|_| update(&mut optimizer, &p)).collect();
    assert_close("before", &before, &[0.2, 0.4, 0.6, 0.8, 1.0], 1e-9);
    let fresh = leaf("p", DType::F64, &value(&p));
    let mut resumed = AdamW::of(vec![fresh.clone()], adamw(0.0, 0.0)).unwrap();
    resumed.load_state(optimizer.state()).unwrap();
    let after: Vec<f64> = (0..3).map(|_| update(&mut resumed, &fresh)).collect();
    assert_close("after", &after, &[0.9397114317, 0.775, 0.55], 1e-9);
}
