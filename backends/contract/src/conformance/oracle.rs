//! What kernels should give, as plain `f64` loops over row-major values.
//!
//! Written for reading and independent of every backend: one function per formula, no blocks, no
//! shortcuts. The tests below hold the derivatives against differences of the functions.

use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

use crate::{Activation, BinaryOp, CompareOp, ReduceKind, UnaryOp};

pub mod fused;

/// A function of one operand.
pub fn unary(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Negate => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Square => x * x,
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Affine { scale, shift } => scale * x + shift,
        UnaryOp::Power(exponent) => x.powf(exponent),
        UnaryOp::Activation(activation) => activate(activation, x),
    }
}

/// The derivative of [`unary`].
pub fn slope(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Negate => -1.0,
        UnaryOp::Abs if x == 0.0 => 0.0,
        UnaryOp::Abs => x.signum(),
        UnaryOp::Square => 2.0 * x,
        UnaryOp::Sqrt => 0.5 / x.sqrt(),
        UnaryOp::Reciprocal => -1.0 / (x * x),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => 1.0 / x,
        UnaryOp::Sin => x.cos(),
        UnaryOp::Cos => -x.sin(),
        UnaryOp::Tanh => 1.0 - x.tanh().powi(2),
        UnaryOp::Sigmoid => sigmoid(x) * (1.0 - sigmoid(x)),
        UnaryOp::Affine { scale, .. } => scale,
        UnaryOp::Power(0.0) => 0.0,
        UnaryOp::Power(exponent) => exponent * x.powf(exponent - 1.0),
        UnaryOp::Activation(activation) => activation_slope(activation, x),
    }
}

/// An activation function.
pub fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Gelu => x * normal_cdf(x),
        Activation::GeluTanh => 0.5 * x * (1.0 + gelu_inner(x).tanh()),
        Activation::Silu => x * sigmoid(x),
        Activation::Relu => x.max(0.0),
    }
}

/// The derivative of [`activate`].
pub fn activation_slope(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Gelu => normal_cdf(x) + x * (-0.5 * x * x).exp() / (2.0 * PI).sqrt(),
        Activation::GeluTanh => {
            let t = gelu_inner(x).tanh();
            let inner = (2.0 / PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
            0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
        }
        Activation::Silu => sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))),
        Activation::Relu => f64::from(u8::from(x > 0.0)),
    }
}

/// A function of two floats.
pub fn binary(op: BinaryOp, a: f64, b: f64) -> f64 {
    let either_nan = a.is_nan() || b.is_nan();
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Subtract => a - b,
        BinaryOp::Multiply => a * b,
        BinaryOp::Divide => a / b,
        BinaryOp::Maximum | BinaryOp::Minimum if either_nan => f64::NAN,
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Minimum => a.min(b),
    }
}

/// A comparison, as 0 or 1.
pub fn compare(op: CompareOp, a: f64, b: f64) -> f64 {
    f64::from(u8::from(match op {
        CompareOp::Equal => a == b,
        CompareOp::NotEqual => a != b,
        CompareOp::Less => a < b,
        CompareOp::LessEqual => a <= b,
        CompareOp::Greater => a > b,
        CompareOp::GreaterEqual => a >= b,
    }))
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu_inner(x: f64) -> f64 {
    (2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))
}

fn normal_cdf(x: f64) -> f64 {
    0.5 * (1.0 + erf(x / SQRT_2))
}

/// The error function by the series of positive terms
/// `2/√π · exp(-x²) · Σ 2ⁿ x²ⁿ⁺¹ / (1·3·5···(2n+1))`, which cancels nothing.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Row-major numbers of the elements of `shape` that fall together in `onto`, where a size of 1
/// takes the whole dimension: for element `i` of `shape`, the number of its place in `onto`.
fn places_onto(shape: &[usize], onto: &[usize]) -> Vec<usize> {
    let count: usize = shape.iter().product();
    let place = |mut index: usize| {
        let (mut place, mut step) = (0, 1);
        for axis in (0..shape.len()).rev() {
            let coordinate = index % shape[axis];
            index /= shape[axis];
            if onto[axis] != 1 {
                place += coordinate * step;
            }
            step *= onto[axis];
        }
        place
    };
    (0..count).map(place).collect()
}

/// Sums or extremes of `values` of `from` over the dimensions in which `to` has size 1.
pub fn reduce(kind: ReduceKind, from: &[usize], to: &[usize], values: &[f64]) -> Vec<f64> {
    let start = match kind {
        ReduceKind::Sum => 0.0,
        ReduceKind::Max => f64::NEG_INFINITY,
        ReduceKind::Min => f64::INFINITY,
    };
    let mut out = vec![start; to.iter().product()];
    for (&value, place) in values.iter().zip(places_onto(from, to)) {
        out[place] = match kind {
            ReduceKind::Sum => out[place] + value,
            ReduceKind::Max => binary(BinaryOp::Maximum, out[place], value),
            ReduceKind::Min => binary(BinaryOp::Minimum, out[place], value),
        };
    }
    out
}

/// `a·b` of `batch` pairs of matrices `[m, k]` and `[k, n]`.
pub fn matmul(batch: usize, (m, k, n): (usize, usize, usize), a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut out = Vec::with_capacity(batch * m * n);
    for pair in 0..batch {
        for row in 0..m {
            for column in 0..n {
                let a_at = |inner| a[(pair * m + row) * k + inner];
                let b_at = |inner| b[(pair * k + inner) * n + column];
                out.push((0..k).map(|inner| a_at(inner) * b_at(inner)).sum());
            }
        }
    }
    out
}

/// Softmax of each row of `columns` elements.
pub fn softmax(x: &[f64], columns: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks(columns.max(1)) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
        out.extend(row.iter().map(|x| (x - largest).exp() / sum));
    }
    out
}

/// The gradient of the input of [`softmax`] with result `y`.
pub fn softmax_backward(y: &[f64], dy: &[f64], columns: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(y.len());
    for (y, dy) in y.chunks(columns.max(1)).zip(dy.chunks(columns.max(1))) {
        let along: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
        out.extend(y.iter().zip(dy).map(|(y, dy)| y * (dy - along)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_has_its_published_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, want) in [(0.0, 0.0), (0.5, 0.5204998778), (1.0, 0.8427007929), (2.0, 0.9953222650)]
        {
            assert!((erf(x) - want).abs() < 1e-10, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!((erf(5.9) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn slopes_are_those_of_differences() {
        let activations =
            [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu];
        let mut ops = activations.map(UnaryOp::Activation).to_vec();
        ops.extend([UnaryOp::Tanh, UnaryOp::Sigmoid, UnaryOp::Sqrt, UnaryOp::Log, UnaryOp::Cos]);
        ops.extend([UnaryOp::Reciprocal, UnaryOp::Power(2.5), UnaryOp::Abs, UnaryOp::Negate]);
        for op in ops {
            for x in [0.3, 0.9, 2.1] {
                let step = 1e-5;
                let got = (unary(op, x + step) - unary(op, x - step)) / (2.0 * step);
                let want = slope(op, x);
                assert!((got - want).abs() < 1e-8 * want.abs().max(1.0), "{op:?} at {x}: {got}");
            }
        }
    }

    #[test]
    fn the_gradient_of_softmax_is_that_of_differences() {
        let (x, dy) = ([0.1, -0.7, 0.4, 1.0, 0.2, -0.3], [0.5, -1.0, 0.25, 2.0, 1.0, -0.5]);
        let gradient = softmax_backward(&softmax(&x, 3), &dy, 3);
        for index in 0..6 {
            let moved = |step: f64| -> f64 {
                let mut x = x;
                x[index] += step;
                softmax(&x, 3).iter().zip(&dy).map(|(y, dy)| y * dy).sum()
            };
            let got = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((got - gradient[index]).abs() < 1e-9, "element {index}");
        }
    }
}
