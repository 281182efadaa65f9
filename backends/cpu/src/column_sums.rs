//! Sums over rows, one per column, whose order depends on the sizes alone.
//!
//! Rows are cut into blocks; each block adds its rows in ascending order into a line of its own,
//! and the lines are then added in ascending order. Which thread had which block does not matter.

use std::ops::Range;

use sneppx_contract::{Element, Memory, Result, Store, View};

use crate::element::{Float, Number};
use crate::operands::{Operands, Output};
use crate::parallel::for_each_block;
use crate::rows::rows_per_task;
use crate::simd::vectorized;
use crate::{Cpu, CpuBuffer};

/// No more lines than this, so that they stay small beside the rows.
const LINES: usize = 64;

/// The blocks of rows and their lines.
pub(crate) struct ColumnSums {
    buffer: CpuBuffer,
    block: usize,
    rows: usize,
    columns: usize,
    width: usize,
}

impl ColumnSums {
    /// Lines for `sums` sums over `rows` rows of `columns` elements of type `A`.
    pub(crate) fn new<A: Element>(
        device: &Cpu,
        rows: usize,
        columns: usize,
        sums: usize,
    ) -> Result<Self> {
        let block = rows_per_task(columns).max(rows.div_ceil(LINES)).max(1);
        let width = sums * columns;
        let buffer = device.alloc(A::DTYPE, rows.div_ceil(block) * width)?;
        Ok(ColumnSums { buffer, block, rows, columns, width })
    }

    /// Calls `body` with each block of rows and its line, zeroed: the sums one after the other.
    pub(crate) fn for_each_block<A: Number>(
        &self,
        cost: usize,
        body: impl Fn(Range<usize>, &mut [A]) + Sync,
    ) -> Result<()> {
        let operands = Operands::of("column sums");
        let lines = operands.output::<A>(View::whole(&self.buffer))?;
        for_each_block(self.rows, self.block, cost, |rows| {
            // SAFETY: each block has a line of its own.
            let line = unsafe { lines.run(rows.start / self.block * self.width, self.width) };
            line.fill(A::ZERO);
            body(rows, line);
        });
        Ok(())
    }

    /// Adds up the lines of sum number `sum` into `out`, a vector of `T` with one element a column.
    pub(crate) fn finish<T: Float>(
        &self,
        sum: usize,
        out: &Output<'_, T>,
        store: Store,
    ) -> Result<()> {
        let operands = Operands::of("column sums");
        let lines = operands.input::<T::Acc>(View::whole(&self.buffer))?;
        let stride = out.layout().strides().first().copied().unwrap_or(1);
        // SAFETY: the whole buffer, which nobody writes now.
        let lines = unsafe { lines.run(0, self.rows.div_ceil(self.block) * self.width) };
        let mut total = vec![T::Acc::ZERO; self.columns];
        if store == Store::Add {
            for (index, total) in total.iter_mut().enumerate() {
                // SAFETY: the place belongs to the output, which this thread alone touches.
                *total = unsafe { out.pointer().add(index * stride).read() }.widen();
            }
        }
        if self.columns > 0 {
            add_lines(lines, self.width, sum * self.columns, &mut total);
        }
        for (index, &total) in total.iter().enumerate() {
            // SAFETY: as above.
            unsafe { out.pointer().add(index * stride).write(T::narrow(total)) };
        }
        Ok(())
    }
}

vectorized! {
    fn add_lines[S, A: Number](lines: &[A], width: usize, start: usize, total: &mut [A]) {
        let mut sum = vec![A::ZERO; total.len()];
        for line in lines.chunks_exact(width) {
            for (sum, &value) in sum.iter_mut().zip(&line[start..]) {
                *sum = sum.plus(value);
            }
        }
        for (total, sum) in total.iter_mut().zip(sum) {
            *total = total.plus(sum);
        }
    }
}
