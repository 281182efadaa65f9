//! Sums and maxima of runs, in an order that depends on the length alone.
//!
//! Element `i` goes to lane `i % LANES`; lanes are joined as a tree. The lanes are what vector
//! registers hold, so the order is also the fastest one.

use crate::element::Real;

/// Four registers of 16 `f32`: enough to hide how long an addition takes.
pub(crate) const LANES: usize = 64;

/// The sum of `term(x)` over a run.
#[inline(always)]
pub(crate) fn sum<T: Real>(x: &[T], term: impl Fn(T) -> T) -> T {
    let [total] = sums([x], |[x]| [term(x)]);
    total
}

/// The sums of `N` terms over `M` runs of one length.
#[inline(always)]
pub(crate) fn sums<T: Real, const M: usize, const N: usize>(
    runs: [&[T]; M],
    term: impl Fn([T; M]) -> [T; N],
) -> [T; N] {
    let len = runs[0].len();
    let mut lanes = [[T::ZERO; LANES]; N];
    let whole = len - len % LANES;
    for start in (0..whole).step_by(LANES) {
        let mut chunks = [&runs[0][..0]; M];
        for at in 0..M {
            chunks[at] = &runs[at][start..start + LANES];
        }
        for lane in 0..LANES {
            add_terms(&mut lanes, lane, &chunks, lane, &term);
        }
    }
    for index in whole..len {
        add_terms(&mut lanes, index - whole, &runs, index, &term);
    }
    let mut totals = [T::ZERO; N];
    for at in 0..N {
        totals[at] = join(&mut lanes[at], |a, b| a + b);
    }
    totals
}

/// Adds the terms of element `index` of the runs to one lane. Plain loops: closures over arrays are
/// not always inlined, and what is not inlined is not vectorised.
#[inline(always)]
fn add_terms<T: Real, const M: usize, const N: usize>(
    lanes: &mut [[T; LANES]; N],
    lane: usize,
    runs: &[&[T]; M],
    index: usize,
    term: &impl Fn([T; M]) -> [T; N],
) {
    let mut values = [T::ZERO; M];
    for at in 0..M {
        values[at] = runs[at][index];
    }
    let terms = term(values);
    for at in 0..N {
        lanes[at][lane] += terms[at];
    }
}

/// The largest number of a run; `-inf` if there is none. NaN is passed over: whoever subtracts the
/// maximum from the run meets it there.
#[inline(always)]
pub(crate) fn max<T: Real>(values: &[T]) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut lanes = [-T::INFINITY; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], chunk[lane]);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, value);
    }
    join(&mut lanes, larger)
}

/// Joins the lanes as a tree: the upper half to the lower, until one is left.
#[inline(always)]
fn join<T: Real>(lanes: &mut [T; LANES], join: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = join(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_maxima_of_any_length_are_right() {
        for len in 0..300usize {
            let values: Vec<f64> = (0..len).map(|i| ((i * 37) % 101) as f64 - 50.0).collect();
            let [plain, squares] = sums([&values], |[v]| [v, v * v]);
            assert_eq!(plain, values.iter().sum::<f64>());
            assert_eq!(squares, values.iter().map(|v| v * v).sum::<f64>());
            assert_eq!(max(&values), values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }
        assert_eq!(max(&[f32::NAN, 1.0]), 1.0);
    }
}
