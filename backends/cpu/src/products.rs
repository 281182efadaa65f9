//! Products of blocks that fit into the caches, as attention needs them: with the triangle of a
//! causal mask left out, and without the packing that pays for large matrices only.
//!
//! A tile of four rows and up to four vectors of columns is summed in registers. One operand is
//! read number by number, at any strides; the other by vectors of [`WIDTH`] columns, which is what
//! its rows are padded to.

use std::ops::Range;

use crate::element::Real;
use crate::simd::{Isa, vectorized};

/// Columns of one vector.
pub(crate) const WIDTH: usize = 16;

/// Rows of a tile.
pub(crate) const TILE: usize = 4;

/// Vectors of a tile.
const VECTORS: usize = 4;

/// The columns that rows of `columns` are padded to.
pub(crate) fn padded(columns: usize) -> usize {
    columns.next_multiple_of(WIDTH)
}

/// A matrix to be read: element `(i, j)` lies at `start + i * row + j * column`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<A> {
    start: *const A,
    row: usize,
    column: usize,
}

impl<A> Matrix<A> {
    /// The matrix at `start`.
    ///
    /// # Safety
    /// Wherever the matrix is used, the elements that the sizes given there name exist, and nobody
    /// writes them meanwhile.
    pub(crate) unsafe fn new(start: *const A, row: usize, column: usize) -> Self {
        Matrix { start, row, column }
    }

    /// The matrix from row `row` on.
    pub(crate) fn at_row(self, row: usize) -> Self {
        Matrix { start: self.start.wrapping_add(row * self.row), ..self }
    }

    /// Rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        Matrix { row: self.column, column: self.row, ..self }
    }
}

/// How many columns each row of a block sees: `base + i` of row `i`, at least 0, at most `limit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stairs {
    pub(crate) base: isize,
    pub(crate) limit: usize,
}

impl Stairs {
    /// What row `row` sees.
    #[inline(always)]
    pub(crate) fn at(self, row: usize) -> usize {
        (self.base.saturating_add(row as isize).max(0) as usize).min(self.limit)
    }

    /// What the tile with row `row` sees at most, in whole vectors. Rows beyond the block count,
    /// which costs little and keeps this a function of the tile.
    #[inline(always)]
    pub(crate) fn tile(self, row: usize) -> usize {
        padded(self.at(row / TILE * TILE + TILE - 1))
    }

    /// The first row that sees `column`.
    #[inline(always)]
    fn first(self, column: usize) -> usize {
        (column as isize + 1).saturating_sub(self.base).max(0) as usize
    }
}

vectorized! {
    /// `out[i, j] = scale * sum over k of a[i, k] * b[k, j]` for the columns that each tile sees.
    ///
    /// `a` is `rows x inner`, `b` is `inner x padded(limit)`; rows of `out` have
    /// `pitch >= padded(limit)` elements.
    pub(crate) fn scores[S, A: Real](
        a: Matrix<A>,
        b: Matrix<A>,
        rows: usize,
        inner: usize,
        scale: A,
        stairs: Stairs,
        out: &mut [A],
        pitch: usize,
    ) {
        for row in (0..rows).step_by(TILE) {
            let columns = stairs.tile(row);
            let out = &mut out[row * pitch..];
            // SAFETY: the promise of `Matrix::new`.
            unsafe {
                row_tile::<S, A>(a, row..rows, b, 0..inner, columns, out, pitch, Some(scale));
            }
        }
    }

    /// `out[i, j] += sum over k of a[i, k] * b[k, j]`, `k` running over what row `i` sees; `=`
    /// without `add`.
    ///
    /// `a` is `rows x padded(limit)`, 0 where nothing is seen, `b` is `limit x columns`; rows of
    /// `out` have `pitch >= columns` elements, and `columns` is a multiple of [`WIDTH`].
    pub(crate) fn add_rows_seen[S, A: Real](
        a: Matrix<A>,
        b: Matrix<A>,
        rows: usize,
        stairs: Stairs,
        columns: usize,
        add: bool,
        out: &mut [A],
        pitch: usize,
    ) {
        let scale = if add { None } else { Some(A::ONE) };
        for row in (0..rows).step_by(TILE) {
            let seen = stairs.at((row + TILE).min(rows) - 1);
            let out = &mut out[row * pitch..];
            // SAFETY: the promise of `Matrix::new`.
            unsafe { row_tile::<S, A>(a, row..rows, b, 0..seen, columns, out, pitch, scale) };
        }
    }

    /// `out[j, c] += sum over i of a[i, j] * b[i, c]`, `i` running over the rows that see `j`; `=`
    /// without `add`.
    ///
    /// `a` is `rows x limit`, 0 where nothing is seen, `b` is `rows x columns`; rows of `out` have
    /// `pitch >= columns` elements, and `columns` is a multiple of [`WIDTH`].
    pub(crate) fn add_columns_seen[S, A: Real](
        a: Matrix<A>,
        b: Matrix<A>,
        rows: usize,
        stairs: Stairs,
        columns: usize,
        add: bool,
        out: &mut [A],
        pitch: usize,
    ) {
        let scale = if add { None } else { Some(A::ONE) };
        let a = a.transposed();
        for row in (0..stairs.limit).step_by(TILE) {
            let inner = stairs.first(row).min(rows)..rows;
            let out = &mut out[row * pitch..];
            // SAFETY: the promise of `Matrix::new`.
            unsafe {
                row_tile::<S, A>(a, row..stairs.limit, b, inner, columns, out, pitch, scale);
            }
        }
    }

    /// `out[j] = scale * sum over k of a[k] * b[j, k]` for vectors of `columns` elements, a
    /// multiple of [`WIDTH`].
    ///
    /// `a` is `1 x columns`, `b` is `out.len() x columns`, the rows of both without gaps.
    pub(crate) fn dots[S, A: Real](
        a: Matrix<A>,
        b: Matrix<A>,
        columns: usize,
        scale: A,
        out: &mut [A],
    ) {
        let mut row = 0;
        while row < out.len() {
            let count = TILE.min(out.len() - row);
            let mut sums = [[A::ZERO; WIDTH]; TILE];
            for start in (0..columns).step_by(WIDTH) {
                // SAFETY: the promise of `Matrix::new`.
                let x = unsafe { a.start.add(start).cast::<[A; WIDTH]>().read_unaligned() };
                for (at, sum) in sums.iter_mut().enumerate() {
                    // A tile that ends beyond the rows reads its last row again.
                    let row = row + at.min(count - 1);
                    // SAFETY: the promise of `Matrix::new`.
                    let y = unsafe {
                        b.start.add(row * b.row + start).cast::<[A; WIDTH]>().read_unaligned()
                    };
                    for lane in 0..WIDTH {
                        sum[lane] = S::mul_add(x[lane], y[lane], sum[lane]);
                    }
                }
            }
            for (out, sum) in out[row..row + count].iter_mut().zip(sums) {
                *out = scale * join(sum);
            }
            row += count;
        }
    }
}

/// The sum of the lanes, as a tree.
#[inline(always)]
pub(crate) fn join<A: Real>(mut lanes: [A; WIDTH]) -> A {
    let mut half = WIDTH / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Up to four rows of a product, whatever their number and that of the vectors; scaled and stored,
/// or added to `out` without a scale.
///
/// # Safety
/// As for the callers.
#[inline(always)]
unsafe fn row_tile<S: Isa, A: Real>(
    a: Matrix<A>,
    rows: Range<usize>,
    b: Matrix<A>,
    inner: Range<usize>,
    columns: usize,
    out: &mut [A],
    pitch: usize,
    scale: Option<A>,
) {
    // SAFETY: the row exists.
    let a = Matrix { start: unsafe { a.start.add(rows.start * a.row) }, ..a };
    let mut column = 0;
    while column < columns {
        let vectors = ((columns - column) / WIDTH).min(VECTORS);
        let out = &mut out[column..];
        // SAFETY: the columns exist.
        let b = Matrix { start: unsafe { b.start.add(column) }, ..b };
        let inner = inner.clone();
        // SAFETY: the caller's promise.
        unsafe {
            match (rows.len().min(TILE), vectors) {
                (4, 4) => tile::<S, A, 4, 4>(a, b, inner, out, pitch, scale),
                (4, 3) => tile::<S, A, 4, 3>(a, b, inner, out, pitch, scale),
                (4, 2) => tile::<S, A, 4, 2>(a, b, inner, out, pitch, scale),
                (4, _) => tile::<S, A, 4, 1>(a, b, inner, out, pitch, scale),
                (_, vectors) => {
                    for row in 0..rows.len().min(TILE) {
                        let a = Matrix { start: a.start.add(row * a.row), ..a };
                        let out = &mut out[row * pitch..];
                        let inner = inner.clone();
                        match vectors {
                            4 => tile::<S, A, 1, 4>(a, b, inner, out, pitch, scale),
                            3 => tile::<S, A, 1, 3>(a, b, inner, out, pitch, scale),
                            2 => tile::<S, A, 1, 2>(a, b, inner, out, pitch, scale),
                            _ => tile::<S, A, 1, 1>(a, b, inner, out, pitch, scale),
                        }
                    }
                }
            }
        }
        column += vectors * WIDTH;
    }
}

/// `M` rows of `V` vectors, summed in registers.
///
/// # Safety
/// As for the callers.
#[inline(always)]
unsafe fn tile<S: Isa, A: Real, const M: usize, const V: usize>(
    a: Matrix<A>,
    b: Matrix<A>,
    inner: Range<usize>,
    out: &mut [A],
    pitch: usize,
    scale: Option<A>,
) {
    let mut sums = [[[A::ZERO; WIDTH]; V]; M];
    for k in inner {
        // SAFETY: the caller's promise: `V` vectors of row `k` exist.
        let y = unsafe { b.start.add(k * b.row).cast::<[[A; WIDTH]; V]>().read_unaligned() };
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let x = unsafe { a.start.add(row * a.row + k * a.column).read() };
            for vector in 0..V {
                for lane in 0..WIDTH {
                    sums[vector][lane] = S::mul_add(x, y[vector][lane], sums[vector][lane]);
                }
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        let out = &mut out[row * pitch..row * pitch + V * WIDTH];
        for (out, sum) in out.chunks_exact_mut(WIDTH).zip(sums) {
            for lane in 0..WIDTH {
                out[lane] = match scale {
                    Some(scale) => scale * sum[lane],
                    None => out[lane] + sum[lane],
                };
            }
        }
    }
}
