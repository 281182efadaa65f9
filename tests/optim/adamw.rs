//! AdamW and the mistakes that other projects made with it.

use sneppx::DType;
use sneppx::optim::{
    AdamW, AdamWOptions, NormType, Optimizer, ParamGroup, Sgd, SgdOptions, first_non_finite,
    grad_norm,
};

use crate::golden::assert_close;
use crate::leaves::{CpuLeaf, adamw, device, leaf, numbers, set_grad, step_with, tensor, value};

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
