//! Blocks of queries, keys and values, brought into the form that products read.
//!
//! A block is lent out where it lies if the product can read it there; otherwise it is widened,
//! padded or turned around into scratch memory.

use sneppx_contract::Attention;
use sneppx_contract::check::AttentionDims;

use crate::element::{Float, Number, Real, Stored};
use crate::operands::{Input, Output};
use crate::products::{Matrix, Stairs, WIDTH, padded};
use crate::simd::vectorized;

/// Queries of a block.
pub(crate) const QUERIES: usize = 64;

/// Keys of a block.
pub(crate) const KEYS: usize = 64;

/// What is computed, and on how much.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) spec: Attention,
    pub(crate) dims: AttentionDims,
}

impl Grid {
    /// The key and value head of a query head.
    pub(crate) fn kv_head(&self, head: usize) -> usize {
        head / (self.dims.heads / self.dims.kv_heads)
    }
}

/// Memory that grows to what is asked of it.
pub(crate) struct Scratch<A>(Vec<A>);

impl<A> Default for Scratch<A> {
    fn default() -> Self {
        Scratch(Vec::new())
    }
}

impl<A: Number> Scratch<A> {
    /// The first `len` elements, whatever they hold.
    fn take(&mut self, len: usize) -> &mut [A] {
        if self.0.len() < len {
            self.0.resize(len, A::ZERO);
        }
        &mut self.0[..len]
    }
}

/// An input of four dimensions: sequence, head, position, element.
pub(crate) struct Heads<'a, T>(pub(crate) Input<'a, T>);

impl<T: Float> Heads<'_, T> {
    /// `count` positions from `first` on, for a product that takes them one number at a time.
    pub(crate) fn numbers(
        &self,
        head: [usize; 2],
        first: usize,
        count: usize,
        scratch: &mut Scratch<T::Acc>,
    ) -> Matrix<T::Acc> {
        let (from, row, column) = self.locate(head, first);
        if T::NATIVE {
            // SAFETY: a native type is its own type of arithmetic; the positions exist, and the
            // outputs are disjoint from the inputs.
            return unsafe { Matrix::new(from.cast(), row, column) };
        }
        self.packed(head, first, count, scratch)
    }

    /// `count` positions from `first` on as padded rows, to be read once.
    pub(crate) fn rows(
        &self,
        head: [usize; 2],
        first: usize,
        count: usize,
        scratch: &mut Scratch<T::Acc>,
    ) -> Matrix<T::Acc> {
        let (from, row, column) = self.locate(head, first);
        if T::NATIVE && column == 1 && self.0.layout().shape()[3].is_multiple_of(WIDTH) {
            // SAFETY: as in `numbers`; the rows have no gaps and need no padding.
            return unsafe { Matrix::new(from.cast(), row, 1) };
        }
        self.packed(head, first, count, scratch)
    }

    /// `count` positions from `first` on as padded rows one after the other, to be read often.
    ///
    /// Rows of a fused projection lie kilobytes apart, at distances that share a few sets of the
    /// first cache; together they stay in it.
    pub(crate) fn packed(
        &self,
        head: [usize; 2],
        first: usize,
        count: usize,
        scratch: &mut Scratch<T::Acc>,
    ) -> Matrix<T::Acc> {
        let (from, row, column) = self.locate(head, first);
        let columns = self.0.layout().shape()[3];
        let pitch = padded(columns);
        let to = scratch.take(count * pitch);
        for (position, to) in to.chunks_exact_mut(pitch.max(1)).enumerate() {
            let (to, rest) = to.split_at_mut(columns);
            rest.fill(T::Acc::ZERO);
            // SAFETY: the position exists.
            let from = unsafe { from.add(position * row) };
            if column == 1 {
                // SAFETY: the elements of the position follow one another.
                T::load(unsafe { std::slice::from_raw_parts(from, columns) }, to);
                continue;
            }
            for (index, to) in to.iter_mut().enumerate() {
                // SAFETY: the element exists.
                *to = unsafe { from.add(index * column).read() }.widen();
            }
        }
        // SAFETY: scratch that lives and stays as it is until the next call.
        unsafe { Matrix::new(to.as_ptr(), pitch, 1) }
    }

    /// `count` positions from `first` on as columns, padded with zeros, and as the packed rows that
    /// they are made from.
    pub(crate) fn columns(
        &self,
        head: [usize; 2],
        first: usize,
        count: usize,
        rows: &mut Scratch<T::Acc>,
        scratch: &mut Scratch<T::Acc>,
    ) -> [Matrix<T::Acc>; 2] {
        self.packed(head, first, count, rows);
        let size = padded(self.0.layout().shape()[3]);
        let pitch = padded(count);
        rows.take(pitch * size)[count * size..].fill(T::Acc::ZERO);
        let (rows, to) = (rows.take(pitch * size), scratch.take(size * pitch));
        transpose(rows, size, to);
        // SAFETY: as in `packed`.
        unsafe { [Matrix::new(to.as_ptr(), pitch, 1), Matrix::new(rows.as_ptr(), size, 1)] }
    }

    /// One position without padding.
    pub(crate) fn row<'s>(
        &'s self,
        head: [usize; 2],
        position: usize,
        scratch: &'s mut Scratch<T::Acc>,
    ) -> &'s [T::Acc] {
        let (from, _, column) = self.locate(head, position);
        let columns = self.0.layout().shape()[3];
        if T::NATIVE && (column == 1 || columns <= 1) {
            // SAFETY: a native type is its own type of arithmetic; the row exists, and the
            // outputs are disjoint from the inputs.
            return unsafe { std::slice::from_raw_parts(from.cast(), columns) };
        }
        let to = scratch.take(columns);
        for (index, to) in to.iter_mut().enumerate() {
            // SAFETY: the element exists.
            *to = unsafe { from.add(index * column).read() }.widen();
        }
        to
    }

    fn locate(&self, [batch, head]: [usize; 2], position: usize) -> (*const T, usize, usize) {
        let strides = self.0.layout().strides();
        let at = batch * strides[0] + head * strides[1] + position * strides[2];
        // SAFETY: the position exists, or there are none and nothing is read.
        (unsafe { self.0.pointer().add(at) }, strides[2], strides[3])
    }
}

/// An output of four dimensions: sequence, head, position, element.
pub(crate) struct HeadsOut<'a, T>(pub(crate) Output<'a, T>);

impl<T: Stored> HeadsOut<'_, T> {
    /// Rounds `values` to one position, which only this thread may touch.
    pub(crate) fn write_row(&self, [batch, head]: [usize; 2], position: usize, values: &[T::Acc]) {
        let strides = self.0.layout().strides();
        let at = batch * strides[0] + head * strides[1] + position * strides[2];
        if strides[3] == 1 {
            // SAFETY: the row exists, and no other thread touches it.
            T::store(values, unsafe { self.0.run(at, values.len()) });
            return;
        }
        for (index, &value) in values.iter().enumerate() {
            // SAFETY: as above.
            unsafe { self.0.pointer().add(at + index * strides[3]).write(T::narrow(value)) };
        }
    }
}

/// An explicit mask; 0 hides.
pub(crate) struct Mask<'a>(pub(crate) Input<'a, u8>);

impl Mask<'_> {
    /// Sets the scores of hidden keys to `-inf`.
    pub(crate) fn hide<A: Real>(
        &self,
        [batch, head]: [usize; 2],
        first: usize,
        start: usize,
        rows: usize,
        stairs: Stairs,
        scores: &mut [A],
    ) {
        let strides = self.0.layout().strides();
        for row in 0..rows {
            let at = batch * strides[0] + head * strides[1] + (first + row) * strides[2];
            let at = at + start * strides[3];
            for (key, score) in scores[row * KEYS..][..stairs.at(row)].iter_mut().enumerate() {
                // SAFETY: the element exists; masks are never outputs.
                if unsafe { self.0.pointer().add(at + key * strides[3]).read() } == 0 {
                    *score = -A::INFINITY;
                }
            }
        }
    }
}

vectorized! {
    /// Rows of `columns` elements to columns; both sizes are multiples of [`WIDTH`].
    ///
    /// Squares of four by four are what the compiler turns into shuffles.
    fn transpose[S, A: Real](from: &[A], columns: usize, to: &mut [A]) {
        let rows = from.len() / columns.max(1);
        for row in (0..rows).step_by(4) {
            let from = &from[row * columns..(row + 4) * columns];
            let (upper, lower) = from.split_at(2 * columns);
            let ((a, b), (c, d)) = (upper.split_at(columns), lower.split_at(columns));
            let lines = a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0);
            let lines = lines.zip(c.as_chunks::<4>().0).zip(d.as_chunks::<4>().0);
            for (square, (((a, b), c), d)) in lines.enumerate() {
                let to = &mut to[4 * square * rows + row..][..3 * rows + 4];
                for at in 0..4 {
                    to[at * rows..][..4].copy_from_slice(&[a[at], b[at], c[at], d[at]]);
                }
            }
        }
    }
}
