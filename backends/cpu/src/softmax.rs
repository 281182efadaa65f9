//! Softmax over the last dimension, and its derivative.

use sneppx_contract::{Result, View, check};

use crate::CpuBuffer;
use crate::element::{Float, with_float};
use crate::lanes;
use crate::math::Math;
use crate::operands::Operands;
use crate::parallel::for_each_block;
use crate::rows::{RowSource, RowTarget, rows_per_task};
use crate::simd::vectorized;

type V<'a> = View<'a, CpuBuffer>;

/// See [`Kernels::softmax`](sneppx_contract::Kernels::softmax).
pub(crate) fn softmax(x: V<'_>, out: V<'_>) -> Result<()> {
    const NAME: &str = "softmax";
    check::float_elementwise(NAME, &[x], out)?;
    check::rows(NAME, x)?;
    with_float!(NAME, out.dtype(), T => forward::<T>(NAME, x, out))
}

/// See [`Kernels::softmax_backward`](sneppx_contract::Kernels::softmax_backward).
pub(crate) fn softmax_backward(y: V<'_>, dy: V<'_>, dx: V<'_>) -> Result<()> {
    const NAME: &str = "softmax_backward";
    check::float_elementwise(NAME, &[y, dy], dx)?;
    check::rows(NAME, y)?;
    with_float!(NAME, dx.dtype(), T => backward::<T>(NAME, y, dy, dx))
}

fn forward<T: Float<Acc: Math>>(name: &'static str, x: V<'_>, out: V<'_>) -> Result<()> {
    let operands = Operands::of(name);
    let out = RowTarget::new(operands.output::<T>(out)?)?;
    let x = RowSource::new(operands.input_in_place::<T>(x)?)?;
    let (count, columns) = (x.rows.count, x.rows.columns);
    for_each_block(count, rows_per_task(columns), 8 * count * columns, |task| {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for row in task {
            // SAFETY: tasks have rows of their own, read before they are written.
            unsafe {
                let x = x.read(row, 0..columns, &mut from);
                out.write(row, 0..columns, &mut to, |out| softmax_row(x, out));
            }
        }
    });
    Ok(())
}

fn backward<T: Float<Acc: Math>>(
    name: &'static str,
    y: V<'_>,
    dy: V<'_>,
    dx: V<'_>,
) -> Result<()> {
    let operands = Operands::of(name);
    let dx = RowTarget::new(operands.output::<T>(dx)?)?;
    let y = RowSource::new(operands.input_in_place::<T>(y)?)?;
    let dy = RowSource::new(operands.input_in_place::<T>(dy)?)?;
    let (count, columns) = (y.rows.count, y.rows.columns);
    for_each_block(count, rows_per_task(columns), 2 * count * columns, |task| {
        let (mut from_y, mut from_dy, mut to) = (Vec::new(), Vec::new(), Vec::new());
        for row in task {
            // SAFETY: as in `forward`.
            unsafe {
                let y = y.read(row, 0..columns, &mut from_y);
                let dy = dy.read(row, 0..columns, &mut from_dy);
                dx.write(row, 0..columns, &mut to, |dx| derive_row(y, dy, dx));
            }
        }
    });
    Ok(())
}

vectorized! {
    fn softmax_row[S, T: Math](x: &[T], out: &mut [T]) {
        let max = lanes::max(x);
        for (out, &x) in out.iter_mut().zip(x) {
            *out = T::exp::<S>(x - max);
        }
        let factor = T::ONE / lanes::sum(out, |value| value);
        for out in out.iter_mut() {
            *out *= factor;
        }
    }

    fn derive_row[S, T: Math](y: &[T], dy: &[T], dx: &mut [T]) {
        let [dot] = lanes::sums([y, dy], |[y, dy]| [y * dy]);
        for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = y * (dy - dot);
        }
    }
}
