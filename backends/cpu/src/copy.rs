//! Filling, copying and converting.

use half::{bf16, f16};
use sneppx_contract::{DType, Element, Error, Layout, Result, View, check};

use crate::CpuBuffer;
use crate::blocks::{BLOCK, Order, Source, Target, scratch};
use crate::element::{Stored, with_element};
use crate::map::{Cost, generate, map_stored};
use crate::operands::{Input, Operands, Output};
use crate::parallel::{for_each_block, for_each_index};
use crate::simd::vectorized;

/// Side of the square tiles that transposes are made of: 4 KiB of `f32`, two cache lines a row.
const TILE: usize = 32;

/// See [`Kernels::fill`](sneppx_contract::Kernels::fill).
pub(crate) fn fill(value: f64, out: View<'_, CpuBuffer>) -> Result<()> {
    check::output("fill", out)?;
    with_element!("fill", out.dtype(), T => {
        let operands = Operands::of("fill");
        let value = T::from_f64(value);
        generate(operands.output::<T>(out)?, Cost::Cheap, |_, out| out.fill(value))
    })
}

/// See [`Kernels::copy`](sneppx_contract::Kernels::copy).
pub(crate) fn copy(x: View<'_, CpuBuffer>, out: View<'_, CpuBuffer>) -> Result<()> {
    check::elementwise("copy", &[x], out)?;
    check::dtype("copy", x, out.dtype())?;
    with_element!("copy", out.dtype(), T => {
        let operands = Operands::of("copy");
        let out = operands.output::<T>(out)?;
        let x = operands.input_in_place::<T>(x)?;
        if x.in_place() { Ok(()) } else { copy_apart(x, out) }
    })
}

/// See [`Kernels::cast`](sneppx_contract::Kernels::cast).
pub(crate) fn cast(x: View<'_, CpuBuffer>, out: View<'_, CpuBuffer>) -> Result<()> {
    check::elementwise("cast", &[x], out)?;
    if x.dtype() == out.dtype() {
        return copy(x, out);
    }
    with_element!("cast", x.dtype(), A => match out.dtype() {
        DType::F32 => convert::<A, f32>(x, out),
        DType::F64 => convert::<A, f64>(x, out),
        DType::BF16 => convert::<A, bf16>(x, out),
        DType::F16 => convert::<A, f16>(x, out),
        DType::U32 => convert::<A, u32>(x, out),
        DType::I64 => convert::<A, i64>(x, out),
        DType::U8 => convert::<A, u8>(x, out),
        other => Err(Error::dtype("cast", "a dtype of the CPU", other)),
    })
}

fn convert<A: Element + CastTo<B>, B: Element>(
    x: View<'_, CpuBuffer>,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    let operands = Operands::of("cast");
    let out = operands.output::<B>(out)?;
    let x = operands.input::<A>(x)?;
    map_stored(x, out, Cost::Cheap, A::cast_run)
}

fn copy_apart<T: Element>(x: Input<'_, T>, out: Output<'_, T>) -> Result<()> {
    let order = Order::of_memory(out.layout());
    let numel = out.layout().numel();
    if let Some(plan) = Transpose::of(&order.apply(x.layout())?, &order.apply(out.layout())?) {
        plan.run(x, out);
        return Ok(());
    }
    let (x, out) = (Source::new(x, &order)?, Target::new(out, &order)?);
    let bytes = numel.saturating_mul(size_of::<T>()) / 4;
    for_each_block(numel, 16 * BLOCK, bytes, |task| {
        let mut to = scratch();
        for start in task.clone().step_by(BLOCK) {
            let len = BLOCK.min(task.end - start);
            // SAFETY: tasks are disjoint, and the input is apart from the output.
            unsafe { out.block(start, len, &mut to, |out| x.gather(start, out)) };
        }
    });
    Ok(())
}

/// A copy in which neighbours of the input are not neighbours of the output.
struct Transpose {
    /// Sizes, input strides and output strides; the last dimension has output stride 1.
    outer: Vec<(usize, usize, usize)>,
    /// The dimension with input stride 1.
    rows: (usize, usize),
    /// The dimension with output stride 1.
    columns: (usize, usize),
}

impl Transpose {
    /// A plan for layouts of one shape, if both have a dimension of stride 1, these are two, and
    /// both are long enough for tiles to pay.
    fn of(x: &Layout, out: &Layout) -> Option<Self> {
        let sizes = out.shape();
        let dims: Vec<_> = (0..out.ndim())
            .filter(|&axis| sizes[axis] != 1)
            .map(|axis| (sizes[axis], x.strides()[axis], out.strides()[axis]))
            .collect();
        let row = dims.iter().position(|&(size, from, _)| from == 1 && size >= 8)?;
        let column = dims.iter().position(|&(size, _, to)| to == 1 && size >= 8)?;
        if row == column || dims[column].1 < 8 {
            return None;
        }
        let outer = (0..dims.len()).filter(|&d| d != row && d != column).map(|d| dims[d]).collect();
        let rows = (dims[row].0, dims[row].2);
        Some(Transpose { outer, rows, columns: (dims[column].0, dims[column].1) })
    }

    fn run<T: Element>(&self, x: Input<'_, T>, out: Output<'_, T>) {
        let ((rows, row_step), (columns, column_step)) = (self.rows, self.columns);
        let strips = rows.div_ceil(TILE);
        let matrices: usize = self.outer.iter().map(|dim| dim.0).product();
        let cost = matrices.saturating_mul(rows * columns).saturating_mul(2);
        for_each_index(matrices * strips, cost, |task| {
            let (mut matrix, first) = (task / strips, task % strips * TILE);
            let (mut from, mut to) = (0, 0);
            for &(size, from_step, to_step) in self.outer.iter().rev() {
                from += matrix % size * from_step;
                to += matrix % size * to_step;
                matrix /= size;
            }
            let height = TILE.min(rows - first);
            for left in (0..columns).step_by(TILE) {
                let width = TILE.min(columns - left);
                // Through a small square: where the strides are large powers of two, the lines of
                // a tile would evict one another before they are used up.
                let mut tile = [[T::zeroed(); TILE]; TILE];
                // SAFETY: all places belong to their views, and strips are disjoint.
                unsafe {
                    for (column, run) in tile[..width].iter_mut().enumerate() {
                        let at = from + first + (left + column) * column_step;
                        run[..height].copy_from_slice(x.run(at, height));
                    }
                    for row in 0..height {
                        let at = to + (first + row) * row_step + left;
                        for (out, run) in out.run(at, width).iter_mut().zip(&tile) {
                            *out = run[row];
                        }
                    }
                }
            }
        });
    }
}

/// Conversion of one dtype into another.
pub(crate) trait CastTo<B>: Sized {
    /// Floats round to nearest even; to integers everything truncates and saturates.
    fn cast(self) -> B;

    /// The same for a run of equal length.
    fn cast_run(from: &[Self], to: &mut [B]);
}

vectorized! {
    fn cast_each[S, A: CopyCast<B>, B: Copy](from: &[A], to: &mut [B]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = from.cast();
        }
    }
}

/// [`CastTo`] for plain values.
trait CopyCast<B>: Copy + CastTo<B> {}

impl<A: Copy + CastTo<B>, B> CopyCast<B> for A {}

macro_rules! casts {
    ($($from:ident => $($to:ident: $how:expr),*;)*) => { $( $(
        impl CastTo<$to> for $from {
            #[inline(always)]
            fn cast(self) -> $to {
                ($how)(self)
            }

            fn cast_run(from: &[$from], to: &mut [$to]) {
                cast_each(from, to);
            }
        }
    )* )* };
}

fn clamped_u32(value: i64) -> u32 {
    value.clamp(0, i64::from(u32::MAX)) as u32
}

fn clamped_u8(value: i64) -> u8 {
    value.clamp(0, 255) as u8
}

casts! {
    f32 => f32: |v| v, f64: f64::from, u32: |v| v as u32, i64: |v| v as i64, u8: |v| v as u8;
    f64 => f32: |v| v as f32, f64: |v| v, u32: |v| v as u32, i64: |v| v as i64, u8: |v| v as u8,
        bf16: |v| bf16::narrow(v as f32), f16: f16::from_f64;
    u32 => f32: |v| v as f32, f64: f64::from, u32: |v| v, i64: i64::from,
        u8: |v: u32| v.min(255) as u8, bf16: |v| bf16::narrow(v as f32),
        f16: |v| f16::narrow(v as f32);
    i64 => f32: |v| v as f32, f64: |v| v as f64, u32: clamped_u32, i64: |v| v, u8: clamped_u8,
        bf16: |v| bf16::narrow(v as f32), f16: |v| f16::narrow(v as f32);
    u8 => f32: f32::from, f64: f64::from, u32: u32::from, i64: i64::from, u8: |v| v,
        bf16: |v| bf16::narrow(f32::from(v)), f16: |v| f16::narrow(f32::from(v));
    bf16 => f64: |v: bf16| f64::from(v.widen()), u32: |v: bf16| v.widen() as u32,
        i64: |v: bf16| v.widen() as i64, u8: |v: bf16| v.widen() as u8, bf16: |v| v,
        f16: |v: bf16| f16::narrow(v.widen());
    f16 => f64: |v: f16| f64::from(v.widen()), u32: |v: f16| v.widen() as u32,
        i64: |v: f16| v.widen() as i64, u8: |v: f16| v.widen() as u8, f16: |v| v,
        bf16: |v: f16| bf16::narrow(v.widen());
}

macro_rules! casts_through_runs {
    ($($half:ident)*) => { $(
        impl CastTo<$half> for f32 {
            #[inline(always)]
            fn cast(self) -> $half {
                $half::narrow(self)
            }

            fn cast_run(from: &[f32], to: &mut [$half]) {
                $half::store(from, to);
            }
        }

        impl CastTo<f32> for $half {
            #[inline(always)]
            fn cast(self) -> f32 {
                self.widen()
            }

            fn cast_run(from: &[$half], to: &mut [f32]) {
                $half::load(from, to);
            }
        }
    )* };
}

casts_through_runs! { bf16 f16 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_to_integers_truncate_and_saturate() {
        assert_eq!([-1.5f32, 2.9, 1e20, f32::NAN].map(CastTo::<u32>::cast), [0, 2, u32::MAX, 0]);
        assert_eq!([-1.5f64, 300.0].map(CastTo::<u8>::cast), [0, 255]);
        assert_eq!([-1i64, i64::MAX].map(CastTo::<u32>::cast), [0, u32::MAX]);
        assert_eq!(CastTo::<i64>::cast(bf16::from_f32(-2.5)), -2);
    }
}
