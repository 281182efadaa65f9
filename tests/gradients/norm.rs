//! Normalisations, alone and after a residual sum.

use sneppx::autograd::rules::Normalized;
use sneppx::contract::{Norm, NormKind};
use sneppx::cpu::Cpu;
use sneppx::{Result, Tensor};

use super::differences::{T, check, device};

const EPSILON: f64 = 1e-3;

#[test]
fn layer_norm_with_and_without_scale_and_shift() {
    for shape in [&[2, 3, 5][..], &[8], &[3, 1], &[0, 4], &[2, 37]] {
        let columns = &shape[shape.len() - 1..];
        check("layer_norm", &[shape], |x| x[0].layer_norm(None, None, EPSILON));
        check("layer_norm", &[shape, columns], |x| x[0].layer_norm(Some(&x[1]), None, EPSILON));
        check("layer_norm", &[shape, columns], |x| x[0].layer_norm(None, Some(&x[1]), EPSILON));
        check("layer_norm", &[shape, columns, columns], |x| {
            x[0].layer_norm(Some(&x[1]), Some(&x[2]), EPSILON)
        });
    }
}

#[test]
fn rms_norm_with_and_without_scale() {
    for shape in [&[2, 3, 5][..], &[8], &[3, 1], &[0, 4], &[2, 37]] {
        let columns = &shape[shape.len() - 1..];
        check("rms_norm", &[shape], |x| x[0].rms_norm(None, EPSILON));
        check("rms_norm", &[shape, columns], |x| x[0].rms_norm(Some(&x[1]), EPSILON));
    }
}

#[test]
fn a_norm_after_a_residual_sum() {
    type Choice = fn(Normalized<Cpu>) -> Result<T>;
    // The normalised sum alone, the sum alone, and both.
    let choices: [Choice; 3] = [|n| Ok(n.out), |n| Ok(n.sum), |n| n.sum.sin()?.mul(&n.out)];
    for kind in [NormKind::Layer, NormKind::Rms] {
        let norm = Norm { kind, epsilon: EPSILON };
        for (number, choose) in choices.into_iter().enumerate() {
            let shapes: [&[usize]; 2] = [&[2, 2, 5], &[2, 2, 5]];
            check("residual sum", &shapes, |x| {
                choose(x[0].add_normalize(&x[1], norm, None, None)?)
            });
            if number == 1 {
                continue; // The scale has no part in the sum.
            }
            let name = if kind == NormKind::Layer { "layer_norm" } else { "rms_norm" };
            check(name, &[&[4, 5], &[4, 5], &[5], &[5]], |x| {
                choose(x[0].add_normalize(&x[1], norm, Some(&x[2]), Some(&x[3]))?)
            });
        }
        check("residual sum", &[&[3, 5]], |x| {
            let both = x[0].add_normalize(&x[0], norm, None, None)?;
            both.sum.mul(&both.out)
        });
    }
}

#[test]
fn num_02_layer_norm_of_constant_and_of_large_values() -> Result<()> {
    let device = device();
    let normed = |values: &[f32]| -> Result<Vec<f32>> {
        let x = Tensor::from_slice(&device, values, &[values.len()])?;
        x.layer_norm(None, None, 1e-5)?.to_vec::<f32>()
    };
    assert_eq!(normed(&[1234.0; 8])?, [0.0; 8]);
    assert_eq!(normed(&[0.0; 4])?, [0.0; 4]);
    let large = normed(&[40_000.0, 40_001.0, 40_002.0, 40_003.0])?;
    for (got, want) in large.iter().zip([-1.341_635_4, -0.447_211_8, 0.447_211_8, 1.341_635_4]) {
        assert!((got - want).abs() < 1e-4f32, "{large:?}");
    }
    let x = Tensor::from_slice(&device, &[1234.0f32; 4], &[4])?.requires_grad()?;
    let weights = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 6.0], &[4])?;
    x.layer_norm(None, None, 1e-5)?.mul(&weights)?.sum_all()?.backward()?;
    let grad = x.grad().unwrap().to_vec::<f32>()?;
    for (got, want) in grad.iter().zip([-632.455_5, -316.227_77, 0.0, 948.683_3]) {
        assert!((got - want).abs() < 1e-2f32, "{grad:?}");
    }
    Ok(())
}
