//! Rows chosen by index: gathering them, and adding to them.

use sneppx_contract::{Element, Result, View, check};

use crate::CpuBuffer;
use crate::blocks::{BLOCK, Order, Source, Target, scratch};
use crate::copy::CastTo;
use crate::element::{Float, Number, with_element, with_float, with_index};
use crate::operands::{Input, Operands, Output};
use crate::parallel::for_each_index;
use crate::simd::vectorized;

/// See [`Kernels::index_select`](sneppx_contract::Kernels::index_select).
pub(crate) fn index_select(
    table: View<'_, CpuBuffer>,
    indices: View<'_, CpuBuffer>,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    const NAME: &str = "index_select";
    check::indexed(NAME, table, indices, out)?;
    check::output(NAME, out)?;
    with_element!(NAME, out.dtype(), T => {
        let operands = Operands::of(NAME);
        let out = operands.output::<T>(out)?;
        let rows = row_numbers(NAME, &operands, indices, table.layout.shape()[0])?;
        select_rows(operands.input::<T>(table)?, &rows, out)
    })
}

/// See [`Kernels::index_add`](sneppx_contract::Kernels::index_add).
pub(crate) fn index_add(
    indices: View<'_, CpuBuffer>,
    source: View<'_, CpuBuffer>,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    const NAME: &str = "index_add";
    check::indexed(NAME, out, indices, source)?;
    check::output(NAME, out)?;
    check::float(NAME, out)?;
    with_float!(NAME, out.dtype(), T => {
        let operands = Operands::of(NAME);
        let old = out;
        let out = operands.output::<T>(out)?;
        let rows = row_numbers(NAME, &operands, indices, old.layout.shape()[0])?;
        let source = operands.input::<T>(source)?;
        add_rows(source, &rows, operands.input_in_place::<T>(old)?, out)
    })
}

/// Every index, checked before anything is written.
fn row_numbers<'a>(
    operation: &'static str,
    operands: &Operands<'a>,
    indices: View<'a, CpuBuffer>,
    bound: usize,
) -> Result<Vec<usize>> {
    with_index!(operation, indices.dtype(), I => {
        let input = operands.input::<I>(indices)?;
        let mut values = vec![0 as I; indices.numel()];
        // SAFETY: an input apart from the outputs is not written by this call.
        unsafe { Source::new(input, &Order::AS_GIVEN)?.gather(0, &mut values) };
        let checked = values.into_iter().enumerate().map(|(position, value)| {
            check::index(operation, value.cast(), position, bound)
        });
        checked.collect()
    })
}

fn select_rows<T: Element>(table: Input<'_, T>, rows: &[usize], out: Output<'_, T>) -> Result<()> {
    let numel = out.layout().numel();
    if numel == 0 {
        return Ok(());
    }
    let width = numel / rows.len();
    let table = Source::new(table, &Order::AS_GIVEN)?;
    let out = Target::new(out, &Order::AS_GIVEN)?;
    for_each_index(rows.len(), numel, |number| {
        let mut to = scratch();
        for column in (0..width).step_by(BLOCK) {
            let len = BLOCK.min(width - column);
            // SAFETY: each row of the output belongs to one task.
            unsafe {
                out.block(number * width + column, len, &mut to, |out| {
                    table.gather(rows[number] * width + column, out);
                });
            }
        }
    });
    Ok(())
}

/// Sources are grouped by the row they go to, in ascending order within a group, so that each row
/// is widened, added to and rounded once, by one task.
fn add_rows<T: Float>(
    source: Input<'_, T>,
    rows: &[usize],
    old: Input<'_, T>,
    out: Output<'_, T>,
) -> Result<()> {
    let numel = source.layout().numel();
    if numel == 0 {
        return Ok(());
    }
    let width = numel / rows.len();
    let mut order: Vec<(usize, usize)> = rows.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let groups: Vec<&[(usize, usize)]> = order.chunk_by(|a, b| a.0 == b.0).collect();
    let (source, old) =
        (Source::new(source, &Order::AS_GIVEN)?, Source::new(old, &Order::AS_GIVEN)?);
    let out = Target::new(out, &Order::AS_GIVEN)?;
    let strips = width.div_ceil(BLOCK);
    for_each_index(groups.len() * strips, numel, |task| {
        let (group, column) = (groups[task / strips], task % strips * BLOCK);
        let len = BLOCK.min(width - column);
        let (mut from, mut wide_from) = (scratch(), scratch());
        let (mut to, mut wide_to) = (scratch(), scratch());
        let mut sum = scratch::<T::Acc>();
        let sum = &mut sum[..len];
        let start = group[0].0 * width + column;
        // SAFETY: each strip of a row of the output belongs to one task; its old values are copied
        // before they are overwritten.
        unsafe {
            sum.copy_from_slice(old.wide_block(start, len, &mut from, &mut wide_from));
            for &(_, number) in group {
                let at = number * width + column;
                add_to(sum, source.wide_block(at, len, &mut from, &mut wide_from));
            }
            out.wide_block(start, len, &mut to, &mut wide_to, |out| out.copy_from_slice(sum));
        }
    });
    Ok(())
}

vectorized! {
    fn add_to[S, A: Number](sum: &mut [A], run: &[A]) {
        for (sum, &x) in sum.iter_mut().zip(run) {
            *sum = sum.plus(x);
        }
    }
}
