//! Clipping by the norm of all gradients together.

use sneppx::DType;
use sneppx::optim::{
    NormType, Optimizer, Sgd, SgdOptions, clip_factor, clip_grad_norm, first_non_finite, grad_norm,
};
use sneppx::shard::OrderedSum;

use crate::golden::assert_close;
use crate::leaves::{all_grads, grad, leaves_with, set_grad, value};

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
