//! Dropout from counter-based random numbers: no mask is stored, the derivative draws it again.

use sneppx_contract::{Error, RandomKey, Result, View, check};

use crate::CpuBuffer;
use crate::element::{Float, Real, with_float};
use crate::operands::Operands;
use crate::parallel::for_each_block;
use crate::random;
use crate::rows::{RowSource, RowTarget, rows_per_task};
use crate::simd::vectorized;

type V<'a> = View<'a, CpuBuffer>;

const NAME: &str = "dropout";

/// Columns that are worked on at once.
const PART: usize = 1024;

/// See [`Kernels::dropout`](sneppx_contract::Kernels::dropout).
pub(crate) fn dropout(
    probability: f64,
    key: RandomKey,
    offset: u64,
    x: V<'_>,
    out: V<'_>,
) -> Result<()> {
    check::float_elementwise(NAME, &[x], out)?;
    if !(0.0..=1.0).contains(&probability) {
        let reason = "a probability lies between 0 and 1";
        return Err(Error::invalid("probability", probability, reason));
    }
    with_float!(NAME, x.dtype(), T => apply::<T>(probability, key, offset, x, out))
}

fn apply<T: Float>(
    probability: f64,
    key: RandomKey,
    offset: u64,
    x: V<'_>,
    out: V<'_>,
) -> Result<()> {
    let operands = Operands::of(NAME);
    let out = RowTarget::new(operands.output::<T>(out)?)?;
    let x = RowSource::new(operands.input_in_place::<T>(x)?)?;
    let (count, columns) = (x.rows.count, x.rows.columns);
    // A number is a 24-bit integer times 2^-24: comparing integers is comparing numbers.
    let kept_from = (probability * 16_777_216.0).ceil() as u32;
    let scale = if probability < 1.0 { 1.0 / (1.0 - probability) } else { 0.0 };
    for_each_block(count, rows_per_task(columns), 8 * count * columns, |task| {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        let mut words = [0; PART];
        for row in task {
            for start in (0..columns).step_by(PART) {
                let part = start..columns.min(start + PART);
                let first = offset.wrapping_add((row * columns + start) as u64);
                random::words(key, first, &mut words[..part.len()]);
                // SAFETY: tasks have rows of their own, each part read before it is written.
                unsafe {
                    let x = x.read(row, part.clone(), &mut from);
                    out.write(row, part, &mut to, |out| {
                        keep(x, &words, kept_from, T::Acc::real(scale), out);
                    });
                }
            }
        }
    });
    Ok(())
}

vectorized! {
    fn keep[S, A: Real](x: &[A], words: &[u32], kept_from: u32, scale: A, out: &mut [A]) {
        for ((out, &x), &word) in out.iter_mut().zip(x).zip(words) {
            *out = if word >> 8 >= kept_from { x * scale } else { A::ZERO };
        }
    }
}
