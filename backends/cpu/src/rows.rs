//! Views seen as rows over their last dimension.
//!
//! A row that lies in one piece and holds its own type of arithmetic is lent out as it is. Any
//! other goes through scratch memory: strided rows, rows of 16-bit floats, and inputs that are
//! about to be overwritten. Kernels thus have one loop, over slices that do not overlap.

use std::borrow::Cow;
use std::ops::Range;

use sneppx_contract::{Layout, Result};

use crate::element::{Number, Stored};
use crate::operands::{Input, Output};

/// Where the rows of a view lie, relative to its first element.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// The dimensions before the last.
    lead: Layout,
    /// How many rows there are.
    pub(crate) count: usize,
    /// Elements of a row.
    pub(crate) columns: usize,
    /// From one element of a row to the next.
    pub(crate) step: usize,
}

impl Rows {
    /// The rows of `layout`; a scalar is one row of one element.
    pub(crate) fn of(layout: &Layout) -> Result<Self> {
        let (shape, strides) = (layout.shape(), layout.strides());
        let (Some((&columns, sizes)), Some((&step, steps))) =
            (shape.split_last(), strides.split_last())
        else {
            return Ok(Rows { lead: Layout::flat(0, 1), count: 1, columns: 1, step: 1 });
        };
        let lead = Layout::strided(sizes, steps, 0)?.coalesce();
        Ok(Rows { lead, count: sizes.iter().product(), columns, step: step.max(1) })
            .map(|rows| if columns > 1 { Rows { step, ..rows } } else { Rows { step: 1, ..rows } })
    }

    /// Where row `row` begins.
    pub(crate) fn start(&self, row: usize) -> usize {
        match (self.lead.ndim(), self.lead.strides().first()) {
            (1, Some(&stride)) => row * stride,
            _ => self.lead.position(row),
        }
    }
}

/// An input, read row by row.
pub(crate) struct RowSource<'a, T> {
    input: Input<'a, T>,
    pub(crate) rows: Rows,
}

impl<'a, T: Stored> RowSource<'a, T> {
    /// The rows of `input`.
    pub(crate) fn new(input: Input<'a, T>) -> Result<Self> {
        Ok(RowSource { rows: Rows::of(input.layout())?, input })
    }

    /// Columns `part` of row `row` in the type of arithmetic; in `scratch`, which is made long
    /// enough, where the memory itself cannot be lent.
    ///
    /// # Safety
    /// No other thread writes this row.
    #[inline(always)]
    pub(crate) unsafe fn read<'s>(
        &self,
        row: usize,
        part: Range<usize>,
        scratch: &'s mut Vec<T::Acc>,
    ) -> &'s [T::Acc]
    where
        'a: 's,
    {
        let len = part.len();
        if len == 0 {
            return &[];
        }
        let at = self.rows.start(row) + part.start * self.rows.step;
        if self.rows.step == 1 && !self.input.in_place() {
            // SAFETY: the run is a part of the row, and no output overlaps it.
            let run = unsafe { self.input.run(at, len) };
            if let Some(native) = T::native(run) {
                return native;
            }
        }
        if scratch.len() < len {
            scratch.resize(len, T::Acc::ZERO);
        }
        let to = &mut scratch[..len];
        // SAFETY: the caller's promise; `at` is the first of `len` elements of the row.
        unsafe { self.gather(at, to) };
        to
    }

    /// # Safety
    /// `at` is the place of an element of a row that has as many after it as `to` needs, and no
    /// other thread writes them.
    unsafe fn gather(&self, at: usize, to: &mut [T::Acc]) {
        if self.rows.step == 1 {
            // SAFETY: the caller's promise; the slice ends before anybody writes.
            T::load(unsafe { self.input.run(at, to.len()) }, to);
            return;
        }
        let from = self.input.pointer();
        for (index, to) in to.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *to = unsafe { from.add(at + index * self.rows.step).read() }.widen();
        }
    }
}

/// An output, written row by row.
pub(crate) struct RowTarget<'a, T> {
    output: Output<'a, T>,
    pub(crate) rows: Rows,
}

impl<'a, T: Stored> RowTarget<'a, T> {
    /// The rows of `output`.
    pub(crate) fn new(output: Output<'a, T>) -> Result<Self> {
        Ok(RowTarget { rows: Rows::of(output.layout())?, output })
    }

    /// Lets `write` set columns `part` of row `row`. What it is given holds old values or none; it
    /// must set every element.
    ///
    /// # Safety
    /// No other thread touches this row, and no slice of it exists.
    #[inline(always)]
    pub(crate) unsafe fn write(
        &self,
        row: usize,
        part: Range<usize>,
        scratch: &mut Vec<T::Acc>,
        write: impl FnOnce(&mut [T::Acc]),
    ) {
        let len = part.len();
        if len == 0 {
            return;
        }
        let at = self.rows.start(row) + part.start * self.rows.step;
        if self.rows.step == 1 {
            // SAFETY: the run is a part of the row; the rest is the caller's promise.
            let run = unsafe { self.output.run(at, len) };
            if let Some(native) = T::native_mut(run) {
                return write(native);
            }
        }
        if scratch.len() < len {
            scratch.resize(len, T::Acc::ZERO);
        }
        let from = &mut scratch[..len];
        write(from);
        // SAFETY: the caller's promise; `at` is the first of `len` elements of the row.
        unsafe { self.scatter(at, from) };
    }

    /// # Safety
    /// As for [`RowTarget::write`], `at` being the place of the first element.
    unsafe fn scatter(&self, at: usize, from: &[T::Acc]) {
        if self.rows.step == 1 {
            // SAFETY: the caller's promise.
            T::store(from, unsafe { self.output.run(at, from.len()) });
            return;
        }
        let to = self.output.pointer();
        for (index, &value) in from.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { to.add(at + index * self.rows.step).write(T::narrow(value)) };
        }
    }
}

/// Every element of a one-dimensional input in the type of arithmetic.
pub(crate) fn vector<'a, T: Stored>(input: &Input<'a, T>) -> Cow<'a, [T::Acc]> {
    if let Some(native) = input.slice().and_then(T::native) {
        return Cow::Borrowed(native);
    }
    let len = input.layout().numel();
    let stride = input.layout().strides().first().copied().unwrap_or(1);
    // SAFETY: the places belong to the view; nothing is written while vectors are copied.
    let at = |index| unsafe { input.pointer().add(index * stride).read() };
    Cow::Owned((0..len).map(|index| at(index).widen()).collect())
}

/// How many rows a task gets, so that it covers about 16 Ki elements; depends on sizes alone.
pub(crate) fn rows_per_task(columns: usize) -> usize {
    (1 << 14) / columns.clamp(1, 1 << 14)
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use sneppx_contract::{Element, HostSlice, Memory, View};

    use super::*;
    use crate::element::Float;
    use crate::operands::Operands;
    use crate::{Cpu, CpuOptions};

    fn doubled<T: Float>(values: &[T], from: Layout, to: Layout) -> Vec<f64> {
        let device = Cpu::new(CpuOptions { threads: Some(1) }).unwrap();
        let x = device.upload(T::host_slice(values)).unwrap();
        let out = device.upload(T::host_slice(&[T::from_f64(0.0); 24])).unwrap();
        {
            let operands = Operands::of("trial");
            let out = RowTarget::new(operands.output::<T>(View::new(&out, to)).unwrap()).unwrap();
            let x = RowSource::new(operands.input::<T>(View::new(&x, from)).unwrap()).unwrap();
            let (mut first, mut second) = (Vec::new(), Vec::new());
            for row in 0..x.rows.count {
                // SAFETY: one thread.
                unsafe {
                    let part = 1..x.rows.columns;
                    let values = x.read(row, part.clone(), &mut first);
                    out.write(row, part, &mut second, |out| {
                        for (out, &value) in out.iter_mut().zip(values) {
                            *out = value + value;
                        }
                    });
                }
            }
        }
        device.download(&out).unwrap().to_f64()
    }

    #[test]
    fn rows_of_any_stride_and_dtype_are_read_and_written() {
        let values: Vec<f64> = (0..24).map(f64::from).collect();
        let layouts = [
            Layout::strided(&[2, 3, 4], &[12, 4, 1], 0),
            Layout::strided(&[2, 3, 4], &[4, 8, 1], 0),
            Layout::strided(&[2, 3, 4], &[1, 2, 6], 0),
        ];
        for from in layouts.clone().map(Result::unwrap) {
            for to in layouts.clone().map(Result::unwrap) {
                let mut want = vec![0.0; 24];
                for index in (0..24).filter(|index| index % 4 != 0) {
                    want[to.position(index)] = 2.0 * values[from.position(index)];
                }
                let stored: Vec<bf16> = values.iter().map(|&v| bf16::from_f64(v)).collect();
                assert_eq!(doubled(&stored, from, to), want);
                assert_eq!(doubled(&values, from, to), want);
            }
        }
        assert!(matches!(bf16::host_slice(&[]), HostSlice::BF16(_)));
    }
}
