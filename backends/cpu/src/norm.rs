//! Layer norm and RMS norm with the residual addition before them, and their derivatives.
//!
//! Each row is read once from memory; what follows happens in the first cache. The mean is
//! corrected by the mean of the differences to it, so that a row of equal values has exactly that
//! mean, and the variance is formed from differences.

use sneppx_contract::{Error, Norm, NormKind, NormOperands, Result, Store, View, check};

use crate::column_sums::ColumnSums;
use crate::element::{Float, Number, Real, with_float};
use crate::lanes;
use crate::operands::{Operands, Output};
use crate::parallel::for_each_block;
use crate::rows::{RowSource, RowTarget, rows_per_task, vector};
use crate::simd::vectorized;
use crate::{Cpu, CpuBuffer};

type V<'a> = View<'a, CpuBuffer>;

/// See [`Kernels::normalize`](sneppx_contract::Kernels::normalize).
pub(crate) fn normalize(
    norm: Norm,
    operands: NormOperands<'_, CpuBuffer>,
    sum: Option<V<'_>>,
    statistics: V<'_>,
    out: V<'_>,
) -> Result<()> {
    const NAME: &str = "normalize";
    let NormOperands { x, residual, weight, bias } = operands;
    check::float_elementwise(NAME, &[x], out)?;
    let (rows, columns) = check::rows(NAME, x)?;
    if let Some(residual) = residual {
        check::float_elementwise(NAME, &[residual], out)?;
        if sum.is_none() {
            return Err(Error::shape(NAME, "a residual needs a view for the sum, none was given"));
        }
    }
    if let Some(sum) = sum {
        check::float_elementwise(NAME, &[x], sum)?;
    }
    for (name, vector) in [("the weight", weight), ("the bias", bias)] {
        if let Some(vector) = vector {
            check::column_vector(NAME, name, vector, columns, x.dtype())?;
        }
    }
    check_statistics(NAME, statistics, rows, x)?;
    check::output(NAME, statistics)?;
    with_float!(NAME, x.dtype(), T => forward::<T>(norm, operands, sum, statistics, out))
}

/// See [`Kernels::normalize_backward`](sneppx_contract::Kernels::normalize_backward).
pub(crate) fn normalize_backward(
    device: &Cpu,
    norm: Norm,
    sum: V<'_>,
    weight: Option<V<'_>>,
    statistics: V<'_>,
    dy: V<'_>,
    dsum: Option<V<'_>>,
    dx: V<'_>,
    dweight: Option<(V<'_>, Store)>,
    dbias: Option<(V<'_>, Store)>,
) -> Result<()> {
    const NAME: &str = "normalize_backward";
    check::float_elementwise(NAME, &[sum, dy], dx)?;
    let (rows, columns) = check::rows(NAME, sum)?;
    if let Some(dsum) = dsum {
        check::float_elementwise(NAME, &[dsum], dx)?;
    }
    if let Some(weight) = weight {
        check::column_vector(NAME, "the weight", weight, columns, sum.dtype())?;
    }
    for (name, gradient) in [("dweight", dweight), ("dbias", dbias)] {
        if let Some((view, _)) = gradient {
            check::column_vector(NAME, name, view, columns, sum.dtype())?;
            check::output(NAME, view)?;
        }
    }
    check_statistics(NAME, statistics, rows, sum)?;
    with_float!(NAME, sum.dtype(), T => {
        let views = Backward { sum, weight, statistics, dy, dsum, dx, dweight, dbias };
        backward::<T>(device, norm, views)
    })
}

/// Rows of no elements have no statistics.
fn check_statistics(
    operation: &'static str,
    statistics: V<'_>,
    rows: usize,
    of: V<'_>,
) -> Result<()> {
    if of.layout.shape().last() == Some(&0) {
        let detail = format!("the rows of {:?} have no elements", of.layout.shape());
        return Err(Error::shape(operation, detail));
    }
    check::fits(operation, statistics)?;
    check::dtype(operation, statistics, of.dtype().accumulator())?;
    check::shape(operation, "statistics", statistics, &[2, rows])
}

fn forward<'a, T: Float>(
    norm: Norm,
    views: NormOperands<'a, CpuBuffer>,
    sum: Option<V<'a>>,
    statistics: V<'a>,
    out: V<'a>,
) -> Result<()> {
    let operands = Operands::of("normalize");
    let out = RowTarget::new(operands.output::<T>(out)?)?;
    let sum = sum.map(|view| RowTarget::new(operands.output::<T>(view)?)).transpose()?;
    let statistics: Output<'_, T::Acc> = operands.output(statistics)?;
    let x = RowSource::new(operands.input_in_place::<T>(views.x)?)?;
    let residual = views.residual.map(|view| RowSource::new(operands.input_in_place::<T>(view)?));
    let residual = residual.transpose()?;
    let column = |view: Option<V<'a>>, default| -> Result<_> {
        Ok(match view {
            Some(view) => vector(&operands.input::<T>(view)?).into_owned(),
            None => vec![default; x.rows.columns],
        })
    };
    let weight = column(views.weight, T::Acc::ONE)?;
    let bias = column(views.bias, T::Acc::ZERO)?;
    let (count, columns) = (x.rows.count, x.rows.columns);
    let all = 0..columns;
    for_each_block(count, rows_per_task(columns), 4 * count * columns, |task| {
        let (mut from_x, mut from_residual, mut to) = (Vec::new(), Vec::new(), Vec::new());
        let mut added = vec![T::Acc::ZERO; if sum.is_some() { columns } else { 0 }];
        for row in task {
            // SAFETY: tasks have rows of their own, read before they are written.
            unsafe {
                let mut input = x.read(row, all.clone(), &mut from_x);
                if let Some(sum) = &sum {
                    match &residual {
                        Some(from) => {
                            let residual = from.read(row, all.clone(), &mut from_residual);
                            add(input, residual, &mut added);
                        }
                        None => added.copy_from_slice(input),
                    }
                    // The derivative sees the sum as it is stored; so must the norm.
                    for value in added.iter_mut().filter(|_| !T::NATIVE) {
                        *value = T::narrow(*value).widen();
                    }
                    sum.write(row, all.clone(), &mut to, |to| to.copy_from_slice(&added));
                    input = &added;
                }
                let (mean, rstd) = statistics_of(norm, input);
                out.write(row, all.clone(), &mut to, |out| {
                    scale_and_shift(input, mean, rstd, &weight, &bias, out);
                });
                let strides = statistics.layout().strides();
                let at = statistics.pointer().add(row * strides[1]);
                at.write(mean);
                at.add(strides[0]).write(rstd);
            }
        }
    });
    Ok(())
}

/// The views of one derivative.
struct Backward<'a> {
    sum: V<'a>,
    weight: Option<V<'a>>,
    statistics: V<'a>,
    dy: V<'a>,
    dsum: Option<V<'a>>,
    dx: V<'a>,
    dweight: Option<(V<'a>, Store)>,
    dbias: Option<(V<'a>, Store)>,
}

fn backward<'a, T: Float>(device: &Cpu, norm: Norm, views: Backward<'a>) -> Result<()> {
    let operands = Operands::of("normalize_backward");
    let dx = RowTarget::new(operands.output::<T>(views.dx)?)?;
    let gradient = |(view, store)| Ok((operands.output::<T>(view)?, store));
    let dweight = views.dweight.map(gradient).transpose()?;
    let dbias = views.dbias.map(gradient).transpose()?;
    let source = |view| RowSource::new(operands.input_in_place::<T>(view)?);
    let (sum, dy) = (source(views.sum)?, source(views.dy)?);
    let dsum = views.dsum.map(source).transpose()?;
    let statistics = operands.input::<T::Acc>(views.statistics)?;
    let weight = views.weight.map(|view| Ok(vector(&operands.input::<T>(view)?))).transpose()?;
    let (count, columns) = (sum.rows.count, sum.rows.columns);
    let all = 0..columns;
    let lines = ColumnSums::new::<T::Acc>(device, count, columns, 2)?;
    let wanted = dweight.is_some() || dbias.is_some();
    lines.for_each_block(8 * count * columns, |task, line| {
        let mut scratch = [const { Vec::new() }; 4];
        let [from_sum, from_dy, from_dsum, to] = &mut scratch;
        let mut product = vec![T::Acc::ZERO; if weight.is_some() { columns } else { 0 }];
        for row in task {
            // SAFETY: tasks have rows of their own, read before they are written.
            unsafe {
                let x = sum.read(row, all.clone(), from_sum);
                let dy = dy.read(row, all.clone(), from_dy);
                let dsum = dsum.as_ref().map(|dsum| dsum.read(row, all.clone(), from_dsum));
                let strides = statistics.layout().strides();
                let at = statistics.pointer().add(row * strides[1]);
                let (mean, rstd) = (at.read(), at.add(strides[0]).read());
                if wanted {
                    add_parameter_gradients(x, dy, mean, rstd, line);
                }
                let dy = match &weight {
                    Some(weight) => {
                        multiply(dy, weight, &mut product);
                        &product[..]
                    }
                    None => dy,
                };
                dx.write(row, all.clone(), to, |dx| {
                    derive_row(norm.kind, x, dy, mean, rstd, dsum, dx);
                });
            }
        }
    })?;
    for (sum, gradient) in [dweight, dbias].iter().enumerate() {
        if let Some((out, store)) = gradient {
            lines.finish(sum, out, *store)?;
        }
    }
    Ok(())
}

vectorized! {
    fn add[S, A: Real](x: &[A], y: &[A], out: &mut [A]) {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out = x + y;
        }
    }

    fn multiply[S, A: Real](x: &[A], y: &[A], out: &mut [A]) {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out = x * y;
        }
    }

    /// The mean (0 for RMS) and the reciprocal deviation of a row.
    fn statistics_of[S, A: Real](norm: Norm, x: &[A]) -> (A, A) {
        let count = A::real(x.len().max(1) as f64);
        let epsilon = A::real(norm.epsilon);
        let (mean, variance) = match norm.kind {
            NormKind::Rms => (A::ZERO, lanes::sum(x, |x| x * x) / count),
            NormKind::Layer => {
                let near = lanes::sum(x, |x| x) / count;
                let [rest, squares] = lanes::sums([x], |[x]| {
                    let difference = x - near;
                    [difference, difference * difference]
                });
                let rest = rest / count;
                let variance = squares / count - rest * rest;
                // Rounding alone can bring a variance of 0 below it; NaN stays.
                let variance = if variance < A::ZERO { A::ZERO } else { variance };
                (near + rest, variance)
            }
        };
        (mean, A::ONE / (variance + epsilon).square_root())
    }

    fn scale_and_shift[S, A: Real](
        x: &[A],
        mean: A,
        rstd: A,
        weight: &[A],
        bias: &[A],
        out: &mut [A],
    ) {
        for (((out, &x), &weight), &bias) in out.iter_mut().zip(x).zip(weight).zip(bias) {
            *out = S::mul_add((x - mean) * rstd, weight, bias);
        }
    }

    /// `line = [dweight, dbias]`, one row added.
    fn add_parameter_gradients[S, A: Real](x: &[A], dy: &[A], mean: A, rstd: A, line: &mut [A]) {
        let (dweight, dbias) = line.split_at_mut(x.len());
        let gradients = dweight.iter_mut().zip(dbias);
        for (((dweight, dbias), &x), &dy) in gradients.zip(x).zip(dy) {
            *dweight = S::mul_add((x - mean) * rstd, dy, *dweight);
            *dbias += dy;
        }
    }

    /// `dx = rstd * (dy - mean(dy) - x̂ * mean(dy * x̂))`, the first mean for layer norm only.
    fn derive_row[S, A: Real](
        kind: NormKind,
        x: &[A],
        dy: &[A],
        mean: A,
        rstd: A,
        dsum: Option<&[A]>,
        dx: &mut [A],
    ) {
        let count = A::real(x.len().max(1) as f64);
        let [total, dot] = lanes::sums([x, dy], |[x, dy]| [dy, dy * (x - mean)]);
        let total = if kind == NormKind::Layer { total / count } else { A::ZERO };
        let slope = dot / count * rstd * rstd;
        match dsum {
            Some(dsum) => {
                for (((dx, &x), &dy), &dsum) in dx.iter_mut().zip(x).zip(dy).zip(dsum) {
                    let inner = S::mul_add(x - mean, -slope, dy - total);
                    *dx = S::mul_add(inner, rstd, dsum);
                }
            }
            None => {
                for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
                    *dx = S::mul_add(x - mean, -slope, dy - total) * rstd;
                }
            }
        }
    }
}
