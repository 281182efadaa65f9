//! Stochastic gradient descent, and what all optimizers refuse.

use sneppx::DType;
use sneppx::cpu::Cpu;
use sneppx::optim::{AdamW, AdamWOptions, Optimizer, OptimizerState, Sgd, SgdOptions};

use crate::leaves::{adamw, device, leaf, numbers, set_grad, step_with, tensor, value};

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
