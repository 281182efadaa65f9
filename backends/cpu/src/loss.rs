//! Cross entropy straight from logits, and its derivative: probabilities never exist in memory
//! beside the logits.
//!
//! The loss is formed from differences to the row's maximum, not from `log_sum_exp`, whose last
//! bits are lost where logits are large.

use sneppx_contract::{CrossEntropy, Result, View, check};

use crate::CpuBuffer;
use crate::element::{Float, Number, Real, with_float, with_index};
use crate::lanes;
use crate::math::Math;
use crate::operands::{Input, Operands};
use crate::parallel::for_each_block;
use crate::rows::{RowSource, RowTarget, rows_per_task, vector};
use crate::simd::vectorized;

type V<'a> = View<'a, CpuBuffer>;

/// Beyond this size of `log_sum_exp` its last bit, a relative error of every probability, is larger
/// than what the exponential errs by; the row's probabilities are then divided by their sum.
const LARGE: f64 = 32.0;

/// Columns that are worked on at once where scratch memory is needed.
const PART: usize = 4096;

/// See [`Kernels::cross_entropy`](sneppx_contract::Kernels::cross_entropy).
pub(crate) fn cross_entropy(
    spec: CrossEntropy,
    logits: V<'_>,
    targets: V<'_>,
    losses: V<'_>,
    log_sum_exp: V<'_>,
) -> Result<()> {
    const NAME: &str = "cross_entropy";
    let (_, classes) = check::cross_entropy(logits, targets, [losses, log_sum_exp])?;
    check::output(NAME, losses)?;
    check::output(NAME, log_sum_exp)?;
    let targets = read_targets(spec, targets, classes)?;
    with_float!(NAME, logits.dtype(), T => {
        forward::<T>(NAME, spec, logits, &targets, losses, log_sum_exp)
    })
}

/// See [`Kernels::cross_entropy_backward`](sneppx_contract::Kernels::cross_entropy_backward).
pub(crate) fn cross_entropy_backward(
    spec: CrossEntropy,
    logits: V<'_>,
    targets: V<'_>,
    log_sum_exp: V<'_>,
    dlosses: V<'_>,
    dlogits: V<'_>,
) -> Result<()> {
    const NAME: &str = "cross_entropy_backward";
    let (_, classes) = check::cross_entropy(logits, targets, [log_sum_exp, dlosses])?;
    check::float_elementwise(NAME, &[logits], dlogits)?;
    let targets = read_targets(spec, targets, classes)?;
    with_float!(NAME, logits.dtype(), T => {
        backward::<T>(NAME, spec, logits, &targets, log_sum_exp, dlosses, dlogits)
    })
}

/// The class of each row, `None` where it is ignored. The settings are checked on the way.
fn read_targets(spec: CrossEntropy, view: V<'_>, classes: usize) -> Result<Vec<Option<usize>>> {
    const NAME: &str = "cross_entropy";
    check::label_smoothing(spec.label_smoothing)?;
    let operands = Operands::of(NAME);
    with_index!(NAME, view.dtype(), T => {
        let targets = operands.input::<T>(view)?;
        let stride = targets.layout().strides()[0];
        (0..view.numel())
            .map(|row| {
                // SAFETY: the place belongs to the view, and nothing is written.
                let target: T = unsafe { targets.pointer().add(row * stride).read() };
                // One of the two index types is this one already.
                #[allow(clippy::useless_conversion)]
                let target = i64::from(target);
                if target == spec.ignore_index {
                    return Ok(None);
                }
                check::index(NAME, target, row, classes).map(Some)
            })
            .collect()
    })
}

fn forward<T: Float<Acc: Math>>(
    name: &'static str,
    spec: CrossEntropy,
    logits: V<'_>,
    targets: &[Option<usize>],
    losses: V<'_>,
    log_sum_exp: V<'_>,
) -> Result<()> {
    let operands = Operands::of(name);
    let losses = operands.output::<T::Acc>(losses)?;
    let log_sum_exp = operands.output::<T::Acc>(log_sum_exp)?;
    let logits = RowSource::new(operands.input::<T>(logits)?)?;
    let columns = logits.rows.columns;
    let cost = 8 * targets.len() * columns;
    for_each_block(targets.len(), rows_per_task(columns), cost, |task| {
        let mut scratch = Vec::new();
        for row in task {
            // SAFETY: tasks have rows of their own.
            let x = unsafe { logits.read(row, 0..columns, &mut scratch) };
            let (max, sum) = max_and_sum(x);
            let log_sum = T::Acc::ln::<crate::simd::Baseline>(sum);
            let loss = match targets[row] {
                None => T::Acc::ZERO,
                Some(target) => {
                    let loss = log_sum + (max - x[target]);
                    smoothed(spec.label_smoothing, loss, || log_sum + mean_below(x, max))
                }
            };
            // SAFETY: as above.
            unsafe {
                losses.pointer().add(row * losses.layout().strides()[0]).write(loss);
                let at = row * log_sum_exp.layout().strides()[0];
                log_sum_exp.pointer().add(at).write(max + log_sum);
            }
        }
    });
    Ok(())
}

/// `(1 - e) * loss + e * uniform`, the latter only formed if `e` is not 0.
fn smoothed<A: Real>(e: f64, loss: A, uniform: impl FnOnce() -> A) -> A {
    if e == 0.0 { loss } else { A::real(1.0 - e) * loss + A::real(e) * uniform() }
}

fn backward<T: Float<Acc: Math>>(
    name: &'static str,
    spec: CrossEntropy,
    logits: V<'_>,
    targets: &[Option<usize>],
    log_sum_exp: V<'_>,
    dlosses: V<'_>,
    dlogits: V<'_>,
) -> Result<()> {
    let operands = Operands::of(name);
    let dlogits = RowTarget::new(operands.output::<T>(dlogits)?)?;
    let logits = RowSource::new(operands.input_in_place::<T>(logits)?)?;
    let log_sum_exp: Input<'_, T::Acc> = operands.input(log_sum_exp)?;
    let dlosses: Input<'_, T::Acc> = operands.input(dlosses)?;
    let (log_sum_exp, dlosses) = (vector(&log_sum_exp), vector(&dlosses));
    let columns = logits.rows.columns;
    let real = T::Acc::real;
    let uniform = real(spec.label_smoothing / columns.max(1) as f64);
    let certain = real(1.0 - spec.label_smoothing);
    let cost = 8 * targets.len() * columns;
    for_each_block(targets.len(), rows_per_task(columns), cost, |task| {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for row in task {
            let mut scale = T::Acc::real(1.0);
            let large = log_sum_exp[row] > real(LARGE) || log_sum_exp[row] < real(-LARGE);
            if targets[row].is_some() && large {
                // SAFETY: tasks have rows of their own, and this one is not written yet.
                let x = unsafe { logits.read(row, 0..columns, &mut from) };
                scale = scale / sum_below(x, log_sum_exp[row]);
            }
            for start in (0..columns).step_by(PART) {
                let part = start..columns.min(start + PART);
                // SAFETY: tasks have rows of their own, each part read before it is written.
                unsafe {
                    let Some(target) = targets[row] else {
                        dlogits.write(row, part, &mut to, |out| out.fill(T::Acc::ZERO));
                        continue;
                    };
                    let x = logits.read(row, part.clone(), &mut from);
                    dlogits.write(row, part.clone(), &mut to, |out| {
                        derive_part(x, log_sum_exp[row], scale, dlosses[row], uniform, out);
                        if part.contains(&target) {
                            out[target - start] -= certain * dlosses[row];
                        }
                    });
                }
            }
        }
    });
    Ok(())
}

vectorized! {
    /// The row's maximum, and the sum of `exp(x - maximum)`.
    fn max_and_sum[S, T: Math](x: &[T]) -> (T, T) {
        let max = lanes::max(x);
        (max, lanes::sum(x, |x| T::exp::<S>(x - max)))
    }

    /// The mean of `max - x`.
    fn mean_below[S, T: Math](x: &[T], max: T) -> T {
        lanes::sum(x, |x| max - x) / T::real(x.len() as f64)
    }

    /// The sum of `exp(x - log_sum_exp)`: 1 but for the rounding of `log_sum_exp`.
    fn sum_below[S, T: Math](x: &[T], log_sum_exp: T) -> T {
        lanes::sum(x, |x| T::exp::<S>(x - log_sum_exp))
    }

    /// `out = d * (scale * exp(x - log_sum_exp) - uniform)`
    fn derive_part[S, T: Math](
        x: &[T],
        log_sum_exp: T,
        scale: T,
        d: T,
        uniform: T,
        out: &mut [T],
    ) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = d * (scale * T::exp::<S>(x - log_sum_exp) - uniform);
        }
    }
}
