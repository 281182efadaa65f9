//! Functions of one operand, and their derivatives.

use sneppx_contract::Activation::{Gelu, GeluTanh, Relu, Silu};
use sneppx_contract::{DType, Error, Result, UnaryOp, View, check};

use crate::CpuBuffer;
use crate::activation;
use crate::element::with_float;
use crate::map::{Cost, map, map_pair};
use crate::math::Math;
use crate::operands::Operands;
use crate::simd::vectorized;

/// See [`Kernels::unary`](sneppx_contract::Kernels::unary).
pub(crate) fn unary(op: UnaryOp, x: View<'_, CpuBuffer>, out: View<'_, CpuBuffer>) -> Result<()> {
    const NAME: &str = "unary";
    if out.dtype() == DType::I64 {
        return unary_i64(op, x, out);
    }
    check::float_elementwise(NAME, &[x], out)?;
    with_float!(NAME, out.dtype(), T => {
        let operands = Operands::of(NAME);
        let out = operands.output::<T>(out)?;
        let x = operands.input_in_place::<T>(x)?;
        map(x, out, cost(op), |x, out| apply(op, x, out))
    })
}

/// See [`Kernels::unary_backward`](sneppx_contract::Kernels::unary_backward).
pub(crate) fn unary_backward(
    op: UnaryOp,
    x: View<'_, CpuBuffer>,
    dy: View<'_, CpuBuffer>,
    dx: View<'_, CpuBuffer>,
) -> Result<()> {
    const NAME: &str = "unary_backward";
    check::float_elementwise(NAME, &[x, dy], dx)?;
    with_float!(NAME, dx.dtype(), T => {
        let operands = Operands::of(NAME);
        let dx = operands.output::<T>(dx)?;
        let x = operands.input_in_place::<T>(x)?;
        let dy = operands.input_in_place::<T>(dy)?;
        map_pair(x, dy, dx, cost(op), |x, dy, dx| derive(op, x, dy, dx))
    })
}

fn unary_i64(op: UnaryOp, x: View<'_, CpuBuffer>, out: View<'_, CpuBuffer>) -> Result<()> {
    const NAME: &str = "unary";
    let function = match op {
        UnaryOp::Negate => i64::wrapping_neg,
        UnaryOp::Abs => i64::wrapping_abs,
        UnaryOp::Square => |x: i64| x.wrapping_mul(x),
        _ => return Err(Error::dtype(NAME, "a float dtype", DType::I64)),
    };
    check::elementwise(NAME, &[x], out)?;
    let operands = Operands::of(NAME);
    let out = operands.output::<i64>(out)?;
    let x = operands.input_in_place::<i64>(x)?;
    map(x, out, Cost::Cheap, |x, out| each(x, out, function))
}

fn cost(op: UnaryOp) -> Cost {
    match op {
        UnaryOp::Negate | UnaryOp::Abs | UnaryOp::Square | UnaryOp::Affine { .. } => Cost::Cheap,
        _ => Cost::Function,
    }
}

vectorized! {
    fn apply[S, T: Math](op: UnaryOp, x: &[T], out: &mut [T]) {
        match op {
            UnaryOp::Negate => each(x, out, |x| -x),
            UnaryOp::Abs => each(x, out, T::magnitude),
            UnaryOp::Square => each(x, out, |x| x * x),
            UnaryOp::Sqrt => each(x, out, T::square_root),
            UnaryOp::Reciprocal => each(x, out, |x| T::ONE / x),
            UnaryOp::Exp => each(x, out, T::exp::<S>),
            UnaryOp::Log => each(x, out, T::ln::<S>),
            UnaryOp::Sin => each(x, out, T::sin),
            UnaryOp::Cos => each(x, out, T::cos),
            UnaryOp::Tanh => each(x, out, T::tanh::<S>),
            UnaryOp::Sigmoid => each(x, out, T::sigmoid::<S>),
            UnaryOp::Affine { scale, shift } => {
                let (scale, shift) = (T::real(scale), T::real(shift));
                each(x, out, |x| S::mul_add(scale, x, shift));
            }
            UnaryOp::Power(exponent) => each(x, out, |x| x.pow(T::real(exponent))),
            // One loop for each function: the choice is made outside of it.
            UnaryOp::Activation(Gelu) => each(x, out, |x| activation::value::<S, T>(Gelu, x)),
            UnaryOp::Activation(GeluTanh) => {
                each(x, out, |x| activation::value::<S, T>(GeluTanh, x));
            }
            UnaryOp::Activation(Silu) => each(x, out, |x| activation::value::<S, T>(Silu, x)),
            UnaryOp::Activation(Relu) => each(x, out, |x| activation::value::<S, T>(Relu, x)),
        }
    }

    fn derive[S, T: Math](op: UnaryOp, x: &[T], dy: &[T], dx: &mut [T]) {
        let (one, two) = (T::ONE, T::real(2.0));
        match op {
            UnaryOp::Negate => each_pair(x, dy, dx, |_, dy| -dy),
            UnaryOp::Abs => each_pair(x, dy, dx, |x, dy| {
                if x > T::ZERO { dy } else if x < T::ZERO { -dy } else { T::ZERO * x }
            }),
            UnaryOp::Square => each_pair(x, dy, dx, |x, dy| two * x * dy),
            UnaryOp::Sqrt => each_pair(x, dy, dx, |x, dy| dy / (two * x.square_root())),
            UnaryOp::Reciprocal => each_pair(x, dy, dx, |x, dy| -dy / (x * x)),
            UnaryOp::Exp => each_pair(x, dy, dx, |x, dy| dy * T::exp::<S>(x)),
            UnaryOp::Log => each_pair(x, dy, dx, |x, dy| dy / x),
            UnaryOp::Sin => each_pair(x, dy, dx, |x, dy| dy * x.cos()),
            UnaryOp::Cos => each_pair(x, dy, dx, |x, dy| -dy * x.sin()),
            UnaryOp::Tanh => each_pair(x, dy, dx, |x, dy| {
                let t = T::tanh::<S>(x);
                dy * (one - t * t)
            }),
            UnaryOp::Sigmoid => each_pair(x, dy, dx, |x, dy| {
                let s = T::sigmoid::<S>(x);
                dy * s * (one - s)
            }),
            UnaryOp::Affine { scale, .. } => {
                let scale = T::real(scale);
                each_pair(x, dy, dx, |_, dy| scale * dy);
            }
            // The power of a constant: 0 * x^-1 would be NaN at 0.
            UnaryOp::Power(0.0) => each_pair(x, dy, dx, |_, dy| T::ZERO * dy),
            UnaryOp::Power(exponent) => {
                let (factor, lower) = (T::real(exponent), T::real(exponent - 1.0));
                each_pair(x, dy, dx, |x, dy| dy * factor * x.pow(lower));
            }
            UnaryOp::Activation(Gelu) => {
                each_pair(x, dy, dx, |x, dy| dy * activation::slope::<S, T>(Gelu, x));
            }
            UnaryOp::Activation(GeluTanh) => {
                each_pair(x, dy, dx, |x, dy| dy * activation::slope::<S, T>(GeluTanh, x));
            }
            UnaryOp::Activation(Silu) => {
                each_pair(x, dy, dx, |x, dy| dy * activation::slope::<S, T>(Silu, x));
            }
            UnaryOp::Activation(Relu) => {
                each_pair(x, dy, dx, |x, dy| dy * activation::slope::<S, T>(Relu, x));
            }
        }
    }
}

#[inline(always)]
fn each<T: Copy>(x: &[T], out: &mut [T], f: impl Fn(T) -> T) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = f(x);
    }
}

#[inline(always)]
fn each_pair<T: Copy>(x: &[T], dy: &[T], dx: &mut [T], f: impl Fn(T, T) -> T) {
    for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
        *dx = f(x, dy);
    }
}
