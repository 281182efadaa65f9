//! Rotary position embedding: pairs of elements rotated by position-dependent angles.

use sneppx_contract::{Error, Result, Rotation, View, check};

use crate::CpuBuffer;
use crate::element::{Float, Real, with_float};
use crate::operands::Operands;
use crate::parallel::for_each_block;
use crate::rows::{RowSource, RowTarget, rows_per_task};
use crate::simd::vectorized;

type V<'a> = View<'a, CpuBuffer>;

const NAME: &str = "rotary";

/// See [`Kernels::rotary`](sneppx_contract::Kernels::rotary).
pub(crate) fn rotary(
    rotation: Rotation,
    x: V<'_>,
    cos: V<'_>,
    sin: V<'_>,
    out: V<'_>,
) -> Result<()> {
    check::float_elementwise(NAME, &[x], out)?;
    let &[.., positions, size] = &x.layout.shape()[..] else {
        let detail = format!("x is {:?}, expected [..., positions, size]", x.layout.shape());
        return Err(Error::shape(NAME, detail));
    };
    if size % 2 != 0 {
        let detail = format!("the size {size} of a head is odd; elements are rotated in pairs");
        return Err(Error::shape(NAME, detail));
    }
    for (name, table) in [("cos", cos), ("sin", sin)] {
        check::fits(NAME, table)?;
        check::dtype(NAME, table, x.dtype().accumulator())?;
        check::shape(NAME, name, table, &[positions, size / 2])?;
    }
    with_float!(NAME, x.dtype(), T => rotate::<T>(rotation, x, cos, sin, out))
}

fn rotate<T: Float>(
    rotation: Rotation,
    x: V<'_>,
    cos: V<'_>,
    sin: V<'_>,
    out: V<'_>,
) -> Result<()> {
    let operands = Operands::of(NAME);
    let out = RowTarget::new(operands.output::<T>(out)?)?;
    let x = RowSource::new(operands.input_in_place::<T>(x)?)?;
    let cos = RowSource::new(operands.input::<T::Acc>(cos)?)?;
    let sin = RowSource::new(operands.input::<T::Acc>(sin)?)?;
    let (count, columns, positions) = (x.rows.count, x.rows.columns, cos.rows.count);
    for_each_block(count, rows_per_task(columns), 2 * count * columns, |task| {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        let (mut from_cos, mut from_sin) = (Vec::new(), Vec::new());
        for row in task {
            let position = row % positions;
            // SAFETY: tasks have rows of their own, read before they are written.
            unsafe {
                let x = x.read(row, 0..columns, &mut from);
                let cos = cos.read(position, 0..columns / 2, &mut from_cos);
                let sin = sin.read(position, 0..columns / 2, &mut from_sin);
                out.write(row, 0..columns, &mut to, |out| match rotation {
                    Rotation::Forward => rotate_row(x, cos, sin, T::Acc::ONE, out),
                    Rotation::Backward => rotate_row(x, cos, sin, -T::Acc::ONE, out),
                });
            }
        }
    });
    Ok(())
}

vectorized! {
    /// Turns the pairs by the angles, times `sign`.
    fn rotate_row[S, A: Real](x: &[A], cos: &[A], sin: &[A], sign: A, out: &mut [A]) {
        let (first, second) = x.split_at(cos.len());
        let (out_first, out_second) = out.split_at_mut(cos.len());
        for ((((out, &x), &y), &cos), &sin) in
            out_first.iter_mut().zip(first).zip(second).zip(cos).zip(sin)
        {
            *out = S::mul_add(x, cos, -(y * (sin * sign)));
        }
        for ((((out, &x), &y), &cos), &sin) in
            out_second.iter_mut().zip(first).zip(second).zip(cos).zip(sin)
        {
            *out = S::mul_add(y, cos, x * (sin * sign));
        }
    }
}
