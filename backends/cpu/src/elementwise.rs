//! Two operands at a time: arithmetic, comparisons, selection, scaled sums.

use sneppx_contract::{BinaryOp, CompareOp, DType, Element, Error, Result, View, check};

use crate::CpuBuffer;
use crate::element::{Float, Number, Real, Stored, with_element, with_float};
use crate::map::{Cost, map, map_pair, map_stored_choice, map_stored_pair};
use crate::operands::Operands;
use crate::simd::vectorized;

/// See [`Kernels::binary`](sneppx_contract::Kernels::binary).
pub(crate) fn binary(
    op: BinaryOp,
    a: View<'_, CpuBuffer>,
    b: View<'_, CpuBuffer>,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    const NAME: &str = "binary";
    check::elementwise(NAME, &[a, b], out)?;
    if out.dtype() == DType::U8 {
        return Err(Error::dtype(NAME, "a float dtype, u32 or i64", DType::U8));
    }
    with_element!(NAME, out.dtype(), T => {
        let operands = Operands::of(NAME);
        let out = operands.output::<T>(out)?;
        let a = operands.input_in_place::<T>(a)?;
        let b = operands.input_in_place::<T>(b)?;
        map_pair(a, b, out, Cost::Cheap, |a, b, out| combine(op, a, b, out))
    })
}

/// See [`Kernels::compare`](sneppx_contract::Kernels::compare).
pub(crate) fn compare(
    op: CompareOp,
    a: View<'_, CpuBuffer>,
    b: View<'_, CpuBuffer>,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    const NAME: &str = "compare";
    check::elementwise(NAME, &[a, b], out)?;
    check::dtype(NAME, out, DType::U8)?;
    check::dtype(NAME, b, a.dtype())?;
    with_element!(NAME, a.dtype(), T => {
        let operands = Operands::of(NAME);
        let out = operands.output::<u8>(out)?;
        let a = operands.input_in_place::<T>(a)?;
        let b = operands.input_in_place::<T>(b)?;
        map_stored_pair(a, b, out, |a, b, out| relate(op, a, b, out))
    })
}

/// See [`Kernels::select`](sneppx_contract::Kernels::select).
pub(crate) fn select(
    condition: View<'_, CpuBuffer>,
    a: View<'_, CpuBuffer>,
    b: View<'_, CpuBuffer>,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    const NAME: &str = "select";
    check::elementwise(NAME, &[condition, a, b], out)?;
    check::dtype(NAME, condition, DType::U8)?;
    with_element!(NAME, out.dtype(), T => {
        let operands = Operands::of(NAME);
        let out = operands.output::<T>(out)?;
        let condition = operands.input_in_place::<u8>(condition)?;
        let a = operands.input_in_place::<T>(a)?;
        let b = operands.input_in_place::<T>(b)?;
        map_stored_choice(condition, a, b, out, choose)
    })
}

/// See [`Kernels::scaled_add`](sneppx_contract::Kernels::scaled_add).
pub(crate) fn scaled_add(
    alpha: f64,
    x: View<'_, CpuBuffer>,
    beta: f64,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    const NAME: &str = "scaled_add";
    check::float_elementwise(NAME, &[x], out)?;
    with_float!(NAME, out.dtype(), T => {
        let operands = Operands::of(NAME);
        let old = out;
        let out = operands.output::<T>(out)?;
        let x = operands.input_in_place::<T>(x)?;
        let (alpha, beta) = (factor::<T>(alpha), factor::<T>(beta));
        if beta == 0.0 {
            return map(x, out, Cost::Cheap, |x, out| scale(alpha, x, out));
        }
        let old = operands.input_in_place::<T>(old)?;
        map_pair(x, old, out, Cost::Cheap, |x, old, out| scale_and_add(alpha, x, beta, old, out))
    })
}

fn factor<T: Float>(value: f64) -> T::Acc {
    T::Acc::real(value)
}

vectorized! {
    fn combine[S, T: Number](op: BinaryOp, a: &[T], b: &[T], out: &mut [T]) {
        match op {
            BinaryOp::Add => zip(a, b, out, T::plus),
            BinaryOp::Subtract => zip(a, b, out, T::minus),
            BinaryOp::Multiply => zip(a, b, out, T::times),
            BinaryOp::Divide => zip(a, b, out, T::over),
            BinaryOp::Maximum => zip(a, b, out, T::larger),
            BinaryOp::Minimum => zip(a, b, out, T::smaller),
        }
    }

    fn relate[S, T: Comparable](op: CompareOp, a: &[T], b: &[T], out: &mut [u8]) {
        match op {
            CompareOp::Equal => zip(a, b, out, |a, b| u8::from(a == b)),
            CompareOp::NotEqual => zip(a, b, out, |a, b| u8::from(a != b)),
            CompareOp::Less => zip(a, b, out, |a, b| u8::from(a < b)),
            CompareOp::LessEqual => zip(a, b, out, |a, b| u8::from(a <= b)),
            CompareOp::Greater => zip(a, b, out, |a, b| u8::from(a > b)),
            CompareOp::GreaterEqual => zip(a, b, out, |a, b| u8::from(a >= b)),
        }
    }

    fn choose[S, T: Element](condition: &[u8], a: &[T], b: &[T], out: &mut [T]) {
        for (((out, &condition), &a), &b) in out.iter_mut().zip(condition).zip(a).zip(b) {
            *out = if condition != 0 { a } else { b };
        }
    }

    fn scale[S, T: Real](alpha: T, x: &[T], out: &mut [T]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = alpha * x;
        }
    }

    fn scale_and_add[S, T: Real](alpha: T, x: &[T], beta: T, old: &[T], out: &mut [T]) {
        if beta == T::ONE {
            return zip(x, old, out, |x, old| S::mul_add(alpha, x, old));
        }
        zip(x, old, out, |x, old| S::mul_add(alpha, x, beta * old));
    }
}

#[inline(always)]
fn zip<A: Copy, O>(a: &[A], b: &[A], out: &mut [O], f: impl Fn(A, A) -> O) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
}

/// Elements with an order.
trait Comparable: Stored + PartialOrd {}

impl<T: Stored + PartialOrd> Comparable for T {}
