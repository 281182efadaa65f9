//! The inner loops of reductions: many numbers into one, and many rows into one.

use sneppx_contract::{Element, ReduceKind};

use crate::element::Number;
use crate::simd::vectorized;

/// Partial sums of a run: four registers of the widest instruction set in `f32`.
pub(crate) const LANES: usize = 64;

/// Interleaved partial results of one chunk.
pub(crate) struct Lanes<A> {
    kind: ReduceKind,
    values: [A; LANES],
    /// How many lanes hold a value; the others do not count.
    filled: usize,
}

impl<A: Number> Lanes<A> {
    pub(crate) fn new(kind: ReduceKind) -> Self {
        Lanes { kind, values: [A::ZERO; LANES], filled: 0 }
    }

    /// Takes a run; every run but the last has a multiple of [`LANES`] elements.
    pub(crate) fn take(&mut self, mut run: &[A]) {
        if self.filled < LANES {
            self.filled = run.len().min(LANES);
            self.values[..self.filled].copy_from_slice(&run[..self.filled]);
            run = &run[self.filled..];
        }
        add_lanes(self.kind, &mut self.values, run);
    }

    pub(crate) fn total(&mut self) -> A {
        tree(self.kind, &mut self.values[..self.filled])
    }
}

vectorized! {
    fn add_lanes[S, A: Number](kind: ReduceKind, lanes: &mut [A; LANES], run: &[A]) {
        match kind {
            ReduceKind::Sum => fold_lanes(lanes, run, A::plus),
            ReduceKind::Max => fold_lanes(lanes, run, A::larger),
            ReduceKind::Min => fold_lanes(lanes, run, A::smaller),
        }
    }

    /// Combines the rows of `block` into `sums`, whose old values do not count if `first`.
    pub(crate) fn add_rows[S, A: Number](
        kind: ReduceKind,
        sums: &mut [A],
        block: &[A],
        first: bool,
    ) {
        let mut rows = block.chunks_exact(sums.len());
        if first && let Some(row) = rows.next() {
            sums.copy_from_slice(row);
        }
        for row in rows {
            match kind {
                ReduceKind::Sum => fold_run(sums, row, A::plus),
                ReduceKind::Max => fold_run(sums, row, A::larger),
                ReduceKind::Min => fold_run(sums, row, A::smaller),
            }
        }
    }

    /// Combines the second half with the first until one is left.
    pub(crate) fn tree[S, A: Number](kind: ReduceKind, values: &mut [A]) -> A {
        let mut len = values.len();
        while len > 1 {
            let half = len.div_ceil(2);
            let (left, right) = values[..len].split_at_mut(half);
            match kind {
                ReduceKind::Sum => fold_run(left, right, A::plus),
                ReduceKind::Max => fold_run(left, right, A::larger),
                ReduceKind::Min => fold_run(left, right, A::smaller),
            }
            len = half;
        }
        values.first().copied().unwrap_or(A::ZERO)
    }

    pub(crate) fn combine_runs[S, A: Number](kind: ReduceKind, left: &mut [A], right: &[A]) {
        match kind {
            ReduceKind::Sum => fold_run(left, right, A::plus),
            ReduceKind::Max => fold_run(left, right, A::larger),
            ReduceKind::Min => fold_run(left, right, A::smaller),
        }
    }
}

#[inline(always)]
fn fold_lanes<A: Element>(lanes: &mut [A; LANES], run: &[A], f: impl Fn(A, A) -> A) {
    // A copy that the compiler can keep in registers.
    let mut values = *lanes;
    let mut chunks = run.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (value, &x) in values.iter_mut().zip(chunk) {
            *value = f(*value, x);
        }
    }
    for (value, &x) in values.iter_mut().zip(chunks.remainder()) {
        *value = f(*value, x);
    }
    *lanes = values;
}

#[inline(always)]
fn fold_run<A: Element>(left: &mut [A], right: &[A], f: impl Fn(A, A) -> A) {
    for (left, &right) in left.iter_mut().zip(right) {
        *left = f(*left, right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_combines_every_value_once() {
        for len in 1..70i64 {
            let mut values: Vec<i64> = (1..=len).collect();
            assert_eq!(tree(ReduceKind::Sum, &mut values), len * (len + 1) / 2);
        }
    }
}
