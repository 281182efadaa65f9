//! Sums and extremes over dimensions.
//!
//! # The order of a sum
//! It depends on the shapes alone. Neighbouring dimensions that are both kept or both reduced
//! count as one; reduced groups are taken from the last to the first. A group of `n` numbers is
//! cut into chunks. Where the group is innermost, a chunk is [`ROW_CHUNK`] numbers, added in
//! [`LANES`](crate::fold::LANES) interleaved partial sums; otherwise it is [`COLUMN_CHUNK`]
//! numbers, added one after another. Partial sums and chunks are then added along binary trees. So
//! no sum is longer than some hundred additions in a row, which keeps the error of `f32` small, and
//! chunks can be given to threads.

use sneppx_contract::{Layout, ReduceKind, Result, Store, View, check};

use crate::CpuBuffer;
use crate::blocks::{BLOCK, Order, Scratch, Source, Target, scratch};
use crate::element::{Number, Stored, with_element};
use crate::fold::{Lanes, add_rows, combine_runs, tree};
use crate::operands::{Input, Operands, Output};
use crate::parallel::{for_each_block, for_each_index};
use crate::shared::Slots;

/// Numbers of one chunk of an innermost dimension.
const ROW_CHUNK: usize = 4 * BLOCK;

/// Numbers of one chunk of another dimension.
const COLUMN_CHUNK: usize = 128;

/// See [`Kernels::reduce`](sneppx_contract::Kernels::reduce).
pub(crate) fn reduce(
    kind: ReduceKind,
    x: View<'_, CpuBuffer>,
    store: Store,
    out: View<'_, CpuBuffer>,
) -> Result<()> {
    check::reduce("reduce", x, store, kind == ReduceKind::Sum, out)?;
    if out.numel() == 0 {
        return Ok(());
    }
    with_element!("reduce", out.dtype(), T => {
        let operands = Operands::of("reduce");
        let (old, out) = (out, operands.output::<T>(out)?);
        let x = operands.input_in_place::<T>(x)?;
        let old = match store {
            Store::Add => Some(operands.input_in_place::<T>(old)?),
            Store::Overwrite => None,
        };
        reduce_typed(kind, x, old, out)
    })
}

fn reduce_typed<T: Stored>(
    kind: ReduceKind,
    x: Input<'_, T>,
    old: Option<Input<'_, T>>,
    out: Output<'_, T>,
) -> Result<()> {
    if x.layout().numel() == 0 {
        // Only sums get here: the sum of nothing.
        let zeros = vec![T::Acc::ZERO; out.layout().numel()];
        return write(&zeros, old, out);
    }
    let mut groups = Groups::of(x.layout(), out.layout());
    let source = Source::new(x, &Order::AS_GIVEN)?;
    let first = Level { from: From::View(&source), sizes: groups.next() };
    let mut values = first.reduce(kind);
    while let Some(sizes) = groups.more() {
        let level = Level::<T> { from: From::Values(&values), sizes };
        values = level.reduce(kind);
    }
    write(&values, old, out)
}

fn write<T: Stored>(
    values: &[T::Acc],
    old: Option<Input<'_, T>>,
    out: Output<'_, T>,
) -> Result<()> {
    let old = old.map(|old| Source::new(old, &Order::AS_GIVEN)).transpose()?;
    let out = Target::new(out, &Order::AS_GIVEN)?;
    for_each_block(values.len(), 16 * BLOCK, values.len(), |task| {
        let (mut from, mut wide_from) = (scratch(), scratch());
        let (mut to, mut wide_to) = (scratch(), scratch());
        for start in task.clone().step_by(BLOCK) {
            let len = BLOCK.min(task.end - start);
            let values = &values[start..start + len];
            // SAFETY: tasks are disjoint, and old values are copied before they are overwritten.
            unsafe {
                let old = match &old {
                    Some(old) => old.wide_block(start, len, &mut from, &mut wide_from),
                    None => &[],
                };
                out.wide_block(start, len, &mut to, &mut wide_to, |out| {
                    out.copy_from_slice(values);
                    combine_runs(ReduceKind::Sum, out, old);
                });
            }
        }
    });
    Ok(())
}

/// The dimensions, merged into groups that are kept or reduced as a whole, outermost first.
struct Groups(Vec<(usize, bool)>);

/// One reduced group between what lies outside and what lies inside of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sizes {
    outer: usize,
    reduced: usize,
    inner: usize,
}

impl Groups {
    fn of(x: &Layout, out: &Layout) -> Self {
        let mut groups: Vec<(usize, bool)> = Vec::new();
        for (&size, &kept) in x.shape().iter().zip(out.shape().iter()) {
            let reduced = kept != size;
            match groups.last_mut() {
                _ if size == 1 => {}
                Some(last) if last.1 == reduced => last.0 *= size,
                _ => groups.push((size, reduced)),
            }
        }
        Groups(groups)
    }

    /// The last reduced group, which is then gone.
    fn more(&mut self) -> Option<Sizes> {
        let at = self.0.iter().rposition(|&(_, reduced)| reduced)?;
        let product = |groups: &[(usize, bool)]| groups.iter().map(|group| group.0).product();
        let sizes = Sizes {
            outer: product(&self.0[..at]),
            reduced: self.0[at].0,
            inner: product(&self.0[at + 1..]),
        };
        self.0.remove(at);
        Some(sizes)
    }

    /// Like [`Groups::more`]; where nothing is reduced, a group of one number.
    fn next(&mut self) -> Sizes {
        let numel = self.0.iter().map(|group| group.0).product();
        self.more().unwrap_or(Sizes { outer: numel, reduced: 1, inner: 1 })
    }
}

/// Scratch memory of one task.
type Room<T> = (Scratch<T>, Scratch<<T as Stored>::Acc>);

/// Where the numbers of a level come from: the operand, or the level before.
enum From<'a, 's, T: Stored> {
    View(&'s Source<'a, T>),
    Values(&'s [T::Acc]),
}

/// One group to be reduced.
struct Level<'a, 's, T: Stored> {
    from: From<'a, 's, T>,
    sizes: Sizes,
}

impl<T: Stored> Level<'_, '_, T> {
    fn reduce(&self, kind: ReduceKind) -> Vec<T::Acc> {
        if self.sizes.inner == 1 { self.rows(kind) } else { self.columns(kind) }
    }

    /// Elements `start..start + len`, at most a block of them.
    ///
    /// # Safety
    /// No thread writes the operand meanwhile.
    unsafe fn block<'b>(&'b self, start: usize, len: usize, room: &'b mut Room<T>) -> &'b [T::Acc] {
        match self.from {
            From::Values(values) => &values[start..start + len],
            // SAFETY: the caller's promise.
            From::View(source) => unsafe {
                source.wide_block(start, len, &mut room.0, &mut room.1)
            },
        }
    }

    fn rows(&self, kind: ReduceKind) -> Vec<T::Acc> {
        let Sizes { outer, reduced, .. } = self.sizes;
        let chunks = reduced.div_ceil(ROW_CHUNK);
        let mut partial = vec![T::Acc::ZERO; outer * chunks];
        let slots = Slots::new(&mut partial);
        // Rows that are short are taken many at a time.
        let per_task = (ROW_CHUNK / reduced.min(ROW_CHUNK)).max(1);
        for_each_block(outer * chunks, per_task, outer.saturating_mul(reduced), |task| {
            let mut room = (scratch(), scratch());
            for index in task {
                let (row, chunk) = (index / chunks, index % chunks);
                let at = chunk * ROW_CHUNK;
                let len = ROW_CHUNK.min(reduced - at);
                let mut lanes = Lanes::new(kind);
                // SAFETY: operands are only written after the reduction, and each index has a slot
                // of its own.
                unsafe {
                    for at in (at..at + len).step_by(BLOCK) {
                        let count = BLOCK.min(reduced - at);
                        lanes.take(self.block(row * reduced + at, count, &mut room));
                    }
                    slots.set(index, lanes.total());
                }
            }
        });
        if chunks > 1 {
            partial = partial.chunks_mut(chunks).map(|row| tree(kind, row)).collect();
        }
        partial
    }

    fn columns(&self, kind: ReduceKind) -> Vec<T::Acc> {
        let Sizes { outer, reduced, inner } = self.sizes;
        let chunks = reduced.div_ceil(COLUMN_CHUNK);
        let strips = inner.div_ceil(BLOCK);
        let mut partial = vec![T::Acc::ZERO; outer * chunks * inner];
        let slots = Slots::new(&mut partial);
        let cost = outer.saturating_mul(reduced).saturating_mul(inner);
        for_each_index(outer * chunks * strips, cost, |task| {
            let (part, strip) = (task / strips, task % strips);
            let (row, chunk) = (part / chunks, part % chunks);
            let left = strip * BLOCK;
            let width = BLOCK.min(inner - left);
            let first = chunk * COLUMN_CHUNK;
            let height = COLUMN_CHUNK.min(reduced - first);
            // SAFETY: each task has slots of its own; operands are only written afterwards.
            unsafe {
                let sums = slots.run(part * inner + left, width);
                let start = (row * reduced + first) * inner + left;
                if width == inner {
                    self.narrow_strip(kind, start, height, sums);
                } else {
                    self.wide_strip(kind, start, height, inner, sums);
                }
            }
        });
        if chunks > 1 { self.add_chunks(kind, chunks, partial) } else { partial }
    }

    /// Rows as wide as the strip: several of them make a block.
    ///
    /// # Safety
    /// No thread writes the operand meanwhile.
    unsafe fn narrow_strip(
        &self,
        kind: ReduceKind,
        start: usize,
        height: usize,
        sums: &mut [T::Acc],
    ) {
        let mut room = (scratch(), scratch());
        let width = sums.len();
        let rows = BLOCK / width;
        for row in (0..height).step_by(rows) {
            let len = rows.min(height - row) * width;
            // SAFETY: the caller's promise.
            let block = unsafe { self.block(start + row * width, len, &mut room) };
            add_rows(kind, sums, block, row == 0);
        }
    }

    /// A strip of rows that are wider than a block.
    ///
    /// # Safety
    /// No thread writes the operand meanwhile.
    unsafe fn wide_strip(
        &self,
        kind: ReduceKind,
        start: usize,
        height: usize,
        pitch: usize,
        sums: &mut [T::Acc],
    ) {
        let mut room = (scratch(), scratch());
        for row in 0..height {
            // SAFETY: the caller's promise.
            let block = unsafe { self.block(start + row * pitch, sums.len(), &mut room) };
            add_rows(kind, sums, block, row == 0);
        }
    }

    /// Adds the partial results of chunks along a binary tree.
    fn add_chunks(&self, kind: ReduceKind, chunks: usize, mut partial: Vec<T::Acc>) -> Vec<T::Acc> {
        let Sizes { outer, inner, .. } = self.sizes;
        let mut out = Vec::with_capacity(outer * inner);
        for part in partial.chunks_mut(chunks * inner) {
            let mut distance = 1;
            while distance < chunks {
                for at in (0..chunks - distance).step_by(2 * distance) {
                    let (left, right) = part.split_at_mut((at + distance) * inner);
                    combine_runs(kind, &mut left[at * inner..][..inner], &right[..inner]);
                }
                distance *= 2;
            }
            out.extend_from_slice(&part[..inner]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_merged_into_groups_by_shape_alone() {
        let layout =
            |shape: &[usize]| Layout::contiguous(sneppx_contract::Shape::new(shape).unwrap());
        let mut groups = Groups::of(&layout(&[2, 3, 1, 5, 7]), &layout(&[1, 1, 1, 5, 1]));
        assert_eq!(groups.next(), Sizes { outer: 30, reduced: 7, inner: 1 });
        assert_eq!(groups.more(), Some(Sizes { outer: 1, reduced: 6, inner: 5 }));
        assert_eq!(groups.more(), None);
        let mut nothing = Groups::of(&layout(&[2, 3]), &layout(&[2, 3]));
        assert_eq!(nothing.next(), Sizes { outer: 6, reduced: 1, inner: 1 });
    }
}
