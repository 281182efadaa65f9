//! What kernels should give, as plain `f64` loops over row-major values.
//!
//! Written for reading and independent of every backend: one function per formula, no blocks, no
//! shortcuts. The tests below hold the derivatives against differences of the functions.

use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

use crate::{Activation, BinaryOp, CompareOp, UnaryOp};

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
