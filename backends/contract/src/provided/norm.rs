//! Layer normalisation and root-mean-square normalisation over the last dimension.
//!
//! With `y = n * weight + bias`, `n = (x - mean) * rstd` and `g = dy * weight`, the derivative is
//! `dx = rstd * (g - mean(g) - n * mean(g * n))`; without a mean in the forward pass there is none
//! of `g` in the backward pass either.

use super::scratch::Scratch;
use crate::{
    DType, Error, Kernels, Norm, NormKind, NormOperands, Result, Store, UnaryOp, View, ViewOf,
    check,
};

/// Composition of [`Kernels::normalize`].
///
/// # Errors
/// Operands of other shapes or dtypes than the method states, a residual without a place for the
/// sum, or rows of no elements.
pub fn normalize<K: Kernels>(
    device: &K,
    norm: Norm,
    operands: NormOperands<'_, K::Buffer>,
    sum: Option<ViewOf<'_, K>>,
    statistics: ViewOf<'_, K>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    const NAME: &str = "normalize";
    let NormOperands { x, residual, weight, bias } = operands;
    check::float_elementwise(NAME, &[x], out)?;
    let columns = check_rows(NAME, x, statistics)?;
    check::output(NAME, statistics)?;
    check_columns(NAME, &[("weight", weight), ("bias", bias)], columns, x.dtype())?;
    if let Some(residual) = residual {
        check::float_elementwise(NAME, &[residual], out)?;
        if sum.is_none() {
            return Err(Error::shape(NAME, "a residual needs a view for the sum"));
        }
    }
    if let Some(sum) = sum {
        check::float_elementwise(NAME, &[x], sum)?;
    }

    let mut x = Scratch::wide(device, x)?;
    if let Some(residual) = residual {
        x = x.plus(&Scratch::wide(device, residual)?)?;
    }
    if let Some(sum) = sum {
        // What is normalised is the sum as it is stored: the derivative sees nothing else.
        x.store(sum)?;
        x = Scratch::wide(device, sum)?;
    }
    let mean = match norm.kind {
        NormKind::Layer => x.mean_last()?,
        NormKind::Rms => {
            let shape = x.shape().with_dim(x.shape().ndim() - 1, 1);
            let zeros = Scratch::dense(device, x.view().dtype(), shape)?;
            device.fill(0.0, zeros.view())?;
            zeros
        }
    };
    let centered = x.minus(&mean)?;
    let spread = centered.unary(UnaryOp::Square)?.mean_last()?.affine(1.0, norm.epsilon)?;
    let rstd = spread.unary(UnaryOp::Sqrt)?.unary(UnaryOp::Reciprocal)?;
    let mut y = centered.times(&rstd)?;
    if let Some(weight) = weight {
        y = y.times(&Scratch::wide(device, weight)?)?;
    }
    if let Some(bias) = bias {
        y = y.plus(&Scratch::wide(device, bias)?)?;
    }
    mean.store(part::<K>(statistics, 0)?)?;
    rstd.store(part::<K>(statistics, 1)?)?;
    y.store(out)
}

/// Composition of [`Kernels::normalize_backward`].
///
/// # Errors
/// Operands of other shapes or dtypes than the method states, or rows of no elements.
pub fn normalize_backward<K: Kernels>(
    device: &K,
    norm: Norm,
    sum: ViewOf<'_, K>,
    weight: Option<ViewOf<'_, K>>,
    statistics: ViewOf<'_, K>,
    dy: ViewOf<'_, K>,
    dsum: Option<ViewOf<'_, K>>,
    dx: ViewOf<'_, K>,
    dweight: Option<(ViewOf<'_, K>, Store)>,
    dbias: Option<(ViewOf<'_, K>, Store)>,
) -> Result<()> {
    const NAME: &str = "normalize_backward";
    check::float_elementwise(NAME, &[sum, dy], dx)?;
    if let Some(dsum) = dsum {
        check::float_elementwise(NAME, &[dsum], dx)?;
    }
    let columns = check_rows(NAME, sum, statistics)?;
    let vectors =
        [("weight", weight), ("dweight", dweight.map(|d| d.0)), ("dbias", dbias.map(|d| d.0))];
    check_columns(NAME, &vectors, columns, sum.dtype())?;
    for (vector, _) in dweight.iter().chain(&dbias) {
        check::output(NAME, *vector)?;
    }

    let x = Scratch::wide(device, sum)?;
    let per_row = x.shape().with_dim(x.shape().ndim() - 1, 1);
    let mean = Scratch::of(device, part::<K>(statistics, 0)?).reshape(&per_row)?;
    let rstd = Scratch::of(device, part::<K>(statistics, 1)?).reshape(&per_row)?;
    let normal = match norm.kind {
        NormKind::Layer => x.minus(&mean)?.times(&rstd)?,
        NormKind::Rms => x.times(&rstd)?,
    };
    let dy = Scratch::wide(device, dy)?;
    let of_normal = match weight {
        Some(weight) => dy.times(&Scratch::wide(device, weight)?)?,
        None => dy.scaled(1.0)?,
    };
    let along = of_normal.times(&normal)?.mean_last()?;
    let mut across = of_normal.minus(&normal.times(&along)?)?;
    if norm.kind == NormKind::Layer {
        across = across.minus(&of_normal.mean_last()?)?;
    }
    let mut of_x = across.times(&rstd)?;
    if let Some(dsum) = dsum {
        of_x = of_x.plus(&Scratch::wide(device, dsum)?)?;
    }
    if let Some((dweight, store)) = dweight {
        dy.times(&normal)?.sum_rows()?.store_as(store, dweight)?;
    }
    if let Some((dbias, store)) = dbias {
        dy.sum_rows()?.store_as(store, dbias)?;
    }
    of_x.store(dx)
}

/// Checks the statistics of `x` and gives the number of columns.
fn check_rows<B: crate::Buffer>(
    operation: &'static str,
    x: View<'_, B>,
    statistics: View<'_, B>,
) -> Result<usize> {
    let (rows, columns) = check::rows(operation, x)?;
    if columns == 0 {
        let detail = format!("the rows of {:?} have no elements", x.layout.shape());
        return Err(Error::shape(operation, detail));
    }
    check::fits(operation, statistics)?;
    check::dtype(operation, statistics, x.dtype().accumulator())?;
    check::shape(operation, "statistics", statistics, &[2, rows])?;
    Ok(columns)
}

fn check_columns<B: crate::Buffer>(
    operation: &'static str,
    vectors: &[(&str, Option<View<'_, B>>)],
    columns: usize,
    dtype: DType,
) -> Result<()> {
    for (name, vector) in vectors {
        if let Some(vector) = vector {
            check::column_vector(operation, name, *vector, columns, dtype)?;
        }
    }
    Ok(())
}

/// Means (0) or reciprocal deviations (1) of the statistics: `[rows]`.
fn part<K: Kernels>(statistics: ViewOf<'_, K>, index: usize) -> Result<ViewOf<'_, K>> {
    Ok(View::new(statistics.buffer, statistics.layout.select(0, index)?))
}
