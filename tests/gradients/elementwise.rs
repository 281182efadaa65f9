//! Arithmetic element by element, comparisons, casts and dropout.

use std::ops::Range;

use sneppx::contract::RandomKey;
use sneppx::{DType, Result};

use super::differences::{T, check, check_in, device};

#[test]
fn functions_of_one_operand() {
    type Function = fn(&T) -> Result<T>;
    let table: [(Range<f64>, Function); 20] = [
        (-2.0..2.0, T::neg),
        (-2.0..2.0, T::abs),
        (-2.0..2.0, T::square),
        (0.3..2.0, T::sqrt),
        (0.5..2.0, T::reciprocal),
        (-2.0..2.0, T::exp),
        (0.3..3.0, T::log),
        (-4.0..4.0, T::sin),
        (-4.0..4.0, T::cos),
        (-3.0..3.0, T::tanh),
        (-6.0..6.0, T::sigmoid),
        (-4.0..4.0, T::gelu),
        (-4.0..4.0, T::gelu_tanh),
        (-4.0..4.0, T::silu),
        (-2.0..2.0, T::relu),
        (-2.0..2.0, |x| x.affine(1.5, -0.3)),
        (-2.0..2.0, |x| x.mul_scalar(-0.7)?.add_scalar(2.0)),
        (0.3..2.0, |x| x.powf(2.5)),
        (-2.0..2.0, |x| x.powf(3.0)),
        (0.5..2.0, |x| x.powf(-1.5)),
    ];
    for (range, function) in table {
        check_in("unary", range, &[&[3, 5]], |x| function(&x[0]));
    }
    for shape in [&[][..], &[0, 3], &[37], &[2, 1, 19]] {
        check("unary", &[shape], |x| x[0].tanh());
    }
}

#[test]
fn sums_differences_products_and_quotients() {
    let pairs: [[&[usize]; 2]; 8] = [
        [&[3, 4], &[3, 4]],
        [&[3, 4], &[4]],
        [&[3, 1], &[1, 4]],
        [&[], &[2, 3]],
        [&[2, 3, 4], &[3, 1]],
        [&[2, 1, 2], &[1, 3, 1]],
        [&[0, 3], &[3]],
        [&[3], &[0, 3]],
    ];
    for shapes in pairs {
        check("add", &shapes, |x| x[0].add(&x[1]));
        check("sub", &shapes, |x| x[0].sub(&x[1]));
        check("mul", &shapes, |x| x[0].mul(&x[1]));
        check_in("div", 0.5..2.0, &shapes, |x| x[0].div(&x[1]));
        check("maximum", &shapes, |x| x[0].maximum(&x[1]));
        check("minimum", &shapes, |x| x[0].minimum(&x[1]));
    }
}

#[test]
fn an_operand_used_on_both_sides() {
    check("mul", &[&[4]], |x| x[0].mul(&x[0]));
    check("add", &[&[4]], |x| x[0].add(&x[0]));
    check("sub", &[&[4]], |x| x[0].sub(&x[0]));
    check_in("div", 0.5..2.0, &[&[2, 4]], |x| x[0].div(&x[0].slice(0, 1, 1)?));
}

#[test]
fn a_shared_expression_gets_the_sum_of_its_uses() {
    check("mul", &[&[3, 2], &[2]], |x| {
        let shared = x[0].mul(&x[1])?;
        shared
            .sin()?
            .add(&shared.mul(&shared)?)?
            .sub(&shared.transpose(0, 1)?.sum(&[0])?.unsqueeze(1)?)
    });
}

#[test]
fn equal_operands_of_an_extreme_share_the_gradient() -> Result<()> {
    let device = device();
    let a = T::from_slice(&device, &[1.0, 2.0, 3.0], &[3])?.requires_grad()?;
    let b = T::from_slice(&device, &[1.0, 5.0, 0.0], &[3])?.requires_grad()?;
    a.maximum(&b)?.add(&a.minimum(&b)?.mul_scalar(10.0)?)?.sum_all()?.backward()?;
    assert_eq!(a.grad().unwrap().to_vec::<f64>()?, [5.5, 10.0, 1.0]);
    assert_eq!(b.grad().unwrap().to_vec::<f64>()?, [5.5, 1.0, 10.0]);
    Ok(())
}

#[test]
fn the_derivative_of_abs_and_relu_at_0_is_0() -> Result<()> {
    let zeros = T::zeros(&device(), DType::F64, &[3])?.requires_grad()?;
    zeros.abs()?.add(&zeros.relu()?)?.sum_all()?.backward()?;
    assert_eq!(zeros.grad().unwrap().to_vec::<f64>()?, [0.0; 3]);
    Ok(())
}

#[test]
fn choices_between_two_tensors() {
    let shapes: [[&[usize]; 2]; 4] =
        [[&[2, 3], &[2, 3]], [&[3], &[2, 1]], [&[], &[2, 3]], [&[2, 3], &[]]];
    for shapes in shapes {
        check("select_where", &shapes, |x| {
            let condition = T::from_slice(x[0].device(), &[1u8, 0, 7, 0, 1, 0], &[2, 3])?;
            x[0].select_where(&condition, &x[1])
        });
    }
    check("select_where", &[&[2, 3], &[2, 3]], |x| {
        let condition = T::from_slice(x[0].device(), &[0u8, 1], &[2, 1])?;
        x[0].select_where(&condition, &x[1])
    });
}

#[test]
fn comparisons_carry_no_gradient() -> Result<()> {
    let x = T::from_slice(&device(), &[1.0, 2.0], &[2])?.requires_grad()?;
    for compare in [T::eq, T::ne, T::lt, T::le, T::gt, T::ge] {
        assert!(!compare(&x, &x)?.needs_grad());
    }
    assert_eq!(x.le(&x.mul_scalar(0.75)?)?.to_vec::<u8>()?, [0, 0]);
    Ok(())
}

#[test]
fn dropout_with_a_fixed_key() {
    let key = RandomKey::from_seed(3);
    for shape in [&[4, 5][..], &[0, 2], &[33]] {
        check("dropout", &[shape], |x| x[0].dropout(0.4, key, 7));
    }
}

#[test]
fn dropout_keeps_the_mean_and_the_same_places_for_the_same_numbers() -> Result<()> {
    let (device, key) = (device(), RandomKey::from_seed(3));
    let ones = T::ones(&device, DType::F64, &[10_000])?;
    let dropped = ones.dropout(0.25, key, 0)?;
    let mean = dropped.mean_all()?.item()?;
    assert!((mean - 1.0).abs() < 0.03, "{mean}");
    let tail = ones.slice(0, 0, 9_000)?.dropout(0.25, key, 1_000)?.to_vec::<f64>()?;
    assert_eq!(tail, dropped.to_vec::<f64>()?[1_000..]);
    for bad in [1.0, -0.1, f64::NAN] {
        assert!(ones.dropout(bad, key, 0).unwrap_err().to_string().contains("dropout"));
    }
    Ok(())
}

/// Differences would drown in the rounding, so the gradient is held against its own definition:
/// the upstream gradient, rounded once.
#[test]
fn casts_round_the_gradient_on_its_way_back() -> Result<()> {
    use sneppx::autograd::LeafGrads;
    use sneppx::tensor::Rule;
    let device = device();
    let upstream = [0.1, -3.0, 1e-3, 7.7];
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let x = T::from_slice(&device, &[1.0, 2.0, 3.0, 4.0], &[2, 2])?.requires_grad()?;
        let y = x.transpose(0, 1)?.cast(dtype)?.cast(DType::F64)?;
        let grad = T::from_slice(&device, &upstream, &[2, 2])?;
        y.backward_with(grad.clone(), &mut LeafGrads::new(&device))?;
        let want = grad.cast(dtype)?.cast(DType::F64)?.transpose(0, 1)?.to_vec::<f64>()?;
        assert_eq!(x.grad().unwrap().to_vec::<f64>()?, want, "{dtype}");
        let rule = x.cast(dtype)?.origin().unwrap().take_rule().unwrap();
        assert_eq!(Rule::<sneppx::cpu::Cpu>::name(&*rule), "cast");
    }
    assert!(!T::ones(&device, DType::F64, &[2])?.requires_grad()?.cast(DType::I64)?.needs_grad());
    Ok(())
}
