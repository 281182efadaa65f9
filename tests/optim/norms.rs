//! Norms over what leaves may hold, factors at the edge, and decisions about bad gradients.

use sneppx::DType::{F32, F64};
use sneppx::Tensor;
use sneppx::optim::{
    AdamW, NonFinitePolicy, NormType, Optimizer, Verdict, clip_factor, clip_grad_norm, grad_norm,
};
use sneppx::tensor::Leaf;

use crate::golden::assert_close;
use crate::leaves::{adamw, device, grad, leaf, leaves_with, message, set_grad, tensor, value};

#[test]
fn the_norm_spans_blocks_dtypes_layouts_and_leaves_without_gradient() {
    let long = leaf("long", F32, &vec![0.0; 10_000]);
    set_grad(&long, &vec![0.5; 10_000]);
    let wide = leaf("wide", F64, &[0.0, 0.0]);
    set_grad(&wide, &[30.0, 40.0]);
    let none = leaf("none", F32, &[0.0]);
    let empty = Leaf::new("empty", Tensor::zeros(&device(), F32, &[0]).unwrap(), true);
    empty.set_grad(Some(Tensor::zeros(&device(), F32, &[0]).unwrap()));
    let shared = leaf("shared", F32, &[0.0; 4]);
    shared.set_grad(Some(tensor(&device(), F32, &[-25.0]).broadcast_to(&[4]).unwrap().detach()));
    let leaves = [long, wide, none, empty, shared];
    // 10 000 / 4 + 2500 + 4 * 625
    let norm = grad_norm(&leaves, NormType::Two).unwrap();
    assert_close("the norm and what it leaves", &[norm], &[7500f64.sqrt()], 1e-12);
    assert_eq!(grad_norm(&leaves, NormType::Infinity).unwrap(), 40.0);
    let factor = clip_grad_norm(&leaves, 7500f64.sqrt() / 2.0, NormType::Two).unwrap().factor;
    assert_close("the norm and what it leaves", &[factor], &[0.5], 1e-7);
    assert_close("the norm and what it leaves", &grad(&leaves[0]), &vec![0.25; 10_000], 1e-7);
    assert_close("the norm and what it leaves", &grad(&leaves[4]), &[-12.5; 4], 1e-7);
    assert!(leaves[2].grad().is_none());
    assert_eq!(grad_norm(&leaves[2..4], NormType::Two).unwrap(), 0.0);
    assert_eq!(grad_norm(&leaves[2..4], NormType::Infinity).unwrap(), 0.0);
}

#[test]
fn a_leaf_that_is_listed_twice_is_not_counted_twice() {
    let leaf = leaves_with(F32, &[&[3.0, 4.0]]).remove(0);
    let twice = [leaf.clone(), leaf.clone()];
    let text = message(clip_grad_norm(&twice, 1.0, NormType::Two));
    assert!(text.starts_with("parameter = 0: is listed twice"), "{text}");
    assert_eq!(grad(&leaf), [3.0, 4.0]);
}

#[test]
fn clip_05_a_norm_that_is_not_finite_gives_no_factor() {
    for norm in [f64::INFINITY, f64::NAN] {
        for limit in [0.0, 1.0, f64::INFINITY] {
            assert_eq!(clip_factor(norm, limit).unwrap(), 1.0);
        }
    }
}

#[test]
fn clip_08_a_limit_of_minus_zero_turns_no_sign_and_a_negative_norm_is_refused() {
    let leaves = leaves_with(F32, &[&[3.0, 4.0]]);
    clip_grad_norm(&leaves, -0.0, NormType::Two).unwrap();
    assert!(grad(&leaves[0]).iter().all(|g| *g == 0.0 && g.is_sign_positive()));
    assert!(message(clip_factor(-1.0, 1.0)).starts_with("norm = -1"));
}

#[test]
fn adam_07_a_nan_gradient_follows_the_policy() {
    for policy in [NonFinitePolicy::Allow, NonFinitePolicy::Skip, NonFinitePolicy::Error] {
        let leaves = vec![leaf("a", F64, &[0.0]), leaf("b", F64, &[0.0])];
        let mut optimizer = AdamW::of(leaves.clone(), adamw(0.1, 0.0)).unwrap();
        set_grad(&leaves[0], &[1.0]);
        set_grad(&leaves[1], &[f64::NAN]);
        let norm = grad_norm(&leaves, NormType::Two).unwrap();
        let taken = policy.is_taken(norm, &leaves, "step 1");
        match policy {
            NonFinitePolicy::Allow => {
                assert!(taken.unwrap());
                optimizer.step().unwrap();
                assert_close("a", &value(&leaves[0]), &[-0.1], 1e-7);
                assert!(value(&leaves[1])[0].is_nan());
            }
            NonFinitePolicy::Skip => assert!(!taken.unwrap()),
            NonFinitePolicy::Error => {
                assert_eq!(message(taken), "the gradient of b is NaN at step 1");
            }
        }
        assert!(policy.is_taken(1.0, &leaves, "step 2").unwrap());
    }
    assert_eq!(NonFinitePolicy::default().decide(f64::INFINITY), Verdict::Stop);
    assert_eq!(NonFinitePolicy::Skip.decide(f64::INFINITY), Verdict::Skip);
}
