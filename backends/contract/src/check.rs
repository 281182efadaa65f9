//! The preconditions of every kernel family, in one place: each backend and the framework give the
//! same error for the same mistake.
//!
//! Whatever passes here fits its buffers, has the shapes and dtypes that the family's
//! documentation states, and its outputs do not overlap themselves.

use crate::{Buffer, DType, Error, Result, Shape, Store, View};

/// Sizes of a checked product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulDims {
    /// Leading dimensions, equal for all operands.
    pub batch: Shape,
    /// Rows of the result.
    pub m: usize,
    /// The summed dimension.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
}

/// Sizes of checked attention operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionDims {
    /// Sequences.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Queries.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// Size of a query and a key.
    pub head_size: usize,
    /// Size of a value.
    pub value_size: usize,
}

/// The view lies inside its buffer.
pub fn fits<B: Buffer>(operation: &'static str, view: View<'_, B>) -> Result<()> {
    view.layout.check(operation, view.buffer.len())
}

/// The view lies inside its buffer and can be written: no two indices name one element.
pub fn output<B: Buffer>(operation: &'static str, view: View<'_, B>) -> Result<()> {
    fits(operation, view)?;
    if view.layout.may_overlap_itself() {
        let detail = format!("the output {:?} names some elements twice", view.layout);
        return Err(Error::shape(operation, detail));
    }
    Ok(())
}

/// The view holds floats.
pub fn float<B: Buffer>(operation: &'static str, view: View<'_, B>) -> Result<()> {
    if view.dtype().is_float() {
        return Ok(());
    }
    Err(Error::dtype(operation, "a float dtype", view.dtype()))
}

/// The view holds values of `dtype`.
pub fn dtype<B: Buffer>(operation: &'static str, view: View<'_, B>, dtype: DType) -> Result<()> {
    if view.dtype() == dtype {
        return Ok(());
    }
    Err(Error::dtype(operation, dtype.name(), view.dtype()))
}

/// The view holds indices: `U32` or `I64`.
pub fn indices<B: Buffer>(operation: &'static str, view: View<'_, B>) -> Result<()> {
    fits(operation, view)?;
    if matches!(view.dtype(), DType::U32 | DType::I64) {
        return Ok(());
    }
    Err(Error::dtype(operation, "u32 or i64", view.dtype()))
}

/// The view has exactly these sizes.
pub fn shape<B: Buffer>(
    operation: &'static str,
    name: &str,
    view: View<'_, B>,
    want: &[usize],
) -> Result<()> {
    if *view.layout.shape() == *want {
        return Ok(());
    }
    let detail = format!("{name} is {:?}, expected {want:?}", view.layout.shape());
    Err(Error::shape(operation, detail))
}

/// Inputs and an output of one shape, all inside their buffers; dtypes are not looked at.
pub fn elementwise<B: Buffer>(
    operation: &'static str,
    inputs: &[View<'_, B>],
    out: View<'_, B>,
) -> Result<()> {
    for input in inputs {
        fits(operation, *input)?;
        if input.layout.shape() != out.layout.shape() {
            let (input, out) = (input.layout.shape(), out.layout.shape());
            return Err(Error::shapes_differ(operation, "input", input, "output", out));
        }
    }
    output(operation, out)
}

/// Like [`elementwise`], and all of one float dtype.
pub fn float_elementwise<B: Buffer>(
    operation: &'static str,
    inputs: &[View<'_, B>],
    out: View<'_, B>,
) -> Result<()> {
    elementwise(operation, inputs, out)?;
    float(operation, out)?;
    inputs.iter().try_for_each(|input| dtype(operation, *input, out.dtype()))
}

/// Rows and columns of a view seen as a matrix over its last dimension.
///
/// # Errors
/// A scalar.
pub fn rows<B: Buffer>(operation: &'static str, view: View<'_, B>) -> Result<(usize, usize)> {
    match view.layout.shape().split_last() {
        Some((&columns, lead)) => Ok((lead.iter().product(), columns)),
        None => Err(Error::shape(operation, "a scalar has no last dimension")),
    }
}

/// `out` has the dimensions of `x`, some of them reduced to 1.
pub fn reduce<B: Buffer>(
    operation: &'static str,
    x: View<'_, B>,
    store: Store,
    sum: bool,
    out: View<'_, B>,
) -> Result<()> {
    fits(operation, x)?;
    output(operation, out)?;
    dtype(operation, x, out.dtype())?;
    let (from, to) = (x.layout.shape(), out.layout.shape());
    let matches = from.ndim() == to.ndim()
        && from.iter().zip(to.iter()).all(|(&from, &to)| to == from || to == 1);
    if !matches {
        return Err(Error::shape(operation, format!("{from:?} cannot be reduced to {to:?}")));
    }
    if !sum && (store == Store::Add || (from.numel() == 0 && to.numel() > 0)) {
        let detail = format!("{from:?} to {to:?}: only sums can be added or taken of nothing");
        return Err(Error::shape(operation, detail));
    }
    Ok(())
}

/// Shapes and dtypes of a product.
pub fn matmul<B: Buffer>(a: View<'_, B>, b: View<'_, B>, out: View<'_, B>) -> Result<MatmulDims> {
    const NAME: &str = "matmul";
    fits(NAME, a)?;
    fits(NAME, b)?;
    output(NAME, out)?;
    float(NAME, out)?;
    dtype(NAME, a, out.dtype())?;
    dtype(NAME, b, out.dtype())?;
    let dims = matmul_shapes(a.layout.shape(), b.layout.shape())?;
    let want = [&dims.batch[..], &[dims.m, dims.n]].concat();
    shape(NAME, "the output", out, &want)?;
    Ok(dims)
}

/// Sizes of the product of two shapes.
///
/// # Errors
/// Fewer than two dimensions, other leading dimensions, or inner dimensions that differ.
pub fn matmul_shapes(lhs: &Shape, rhs: &Shape) -> Result<MatmulDims> {
    let refuse = |why: String| {
        Error::shape("matmul", format!("lhs {lhs:?} and rhs {rhs:?} disagree: {why}"))
    };
    let (&[ref lead @ .., m, k], &[ref other @ .., inner, n]) = (&lhs[..], &rhs[..]) else {
        return Err(refuse("both need at least two dimensions".into()));
    };
    if k != inner {
        return Err(refuse(format!("inner dimensions {k} and {inner}")));
    }
    if lead != other {
        return Err(refuse(format!("leading dimensions {lead:?} and {other:?}")));
    }
    Ok(MatmulDims { batch: Shape::new(lead)?, m, k, n })
}

/// `table: [V, ...]`, `indices: [N]`, `rows: [N, ...]`; which one is the output is the caller's.
pub fn indexed<B: Buffer>(
    operation: &'static str,
    table: View<'_, B>,
    index: View<'_, B>,
    rows: View<'_, B>,
) -> Result<()> {
    fits(operation, table)?;
    fits(operation, rows)?;
    indices(operation, index)?;
    dtype(operation, rows, table.dtype())?;
    let (Some((_, rest)), &[count]) =
        (table.layout.shape().split_first(), &index.layout.shape()[..])
    else {
        let detail = format!(
            "table {:?} needs a dimension and indices {:?} exactly one",
            table.layout.shape(),
            index.layout.shape()
        );
        return Err(Error::shape(operation, detail));
    };
    shape(operation, "the selection", rows, &[&[count], rest].concat())
}

/// An index that lies in `0..bound`.
///
/// # Errors
/// [`Error::IndexOutOfRange`].
pub fn index(operation: &'static str, value: i64, position: usize, bound: usize) -> Result<usize> {
    match usize::try_from(value) {
        Ok(index) if index < bound => Ok(index),
        _ => Err(Error::IndexOutOfRange { operation, index: value, position, bound }),
    }
}

/// A vector over the columns of a row-wise operation.
pub fn column_vector<B: Buffer>(
    operation: &'static str,
    name: &str,
    vector: View<'_, B>,
    columns: usize,
    want: DType,
) -> Result<()> {
    fits(operation, vector)?;
    dtype(operation, vector, want)?;
    shape(operation, name, vector, &[columns])
}

/// One value per row in the accumulator dtype.
pub fn row_vector<B: Buffer>(
    operation: &'static str,
    name: &str,
    vector: View<'_, B>,
    rows: usize,
    of: DType,
) -> Result<()> {
    fits(operation, vector)?;
    dtype(operation, vector, of.accumulator())?;
    shape(operation, name, vector, &[rows])
}

/// The weight of the uniform part of a cross entropy.
///
/// # Errors
/// [`Error::InvalidArgument`] for a number outside `0 ..= 1`.
pub fn label_smoothing(weight: f64) -> Result<()> {
    if (0.0..=1.0).contains(&weight) {
        return Ok(());
    }
    Err(Error::invalid("label smoothing", weight, "must lie in 0 ..= 1"))
}

/// Logits `[N, V]`, targets `[N]` and two row vectors; gives `(N, V)`.
pub fn cross_entropy<B: Buffer>(
    logits: View<'_, B>,
    targets: View<'_, B>,
    row_values: [View<'_, B>; 2],
) -> Result<(usize, usize)> {
    const NAME: &str = "cross_entropy";
    fits(NAME, logits)?;
    float(NAME, logits)?;
    indices(NAME, targets)?;
    let &[rows, classes] = &logits.layout.shape()[..] else {
        let detail = format!("logits are {:?}, expected [rows, classes]", logits.layout.shape());
        return Err(Error::shape(NAME, detail));
    };
    shape(NAME, "targets", targets, &[rows])?;
    for values in row_values {
        row_vector(NAME, "row values", values, rows, logits.dtype())?;
    }
    Ok((rows, classes))
}

/// `q: [B, H, T, D]`, `k: [B, G, S, D]`, `v: [B, G, S, E]`, mask `[B, H, T, S]`,
/// `out: [B, H, T, E]`, `log_sum_exp: [B, H, T]`.
pub fn attention<B: Buffer>(
    q: View<'_, B>,
    k: View<'_, B>,
    v: View<'_, B>,
    mask: Option<View<'_, B>>,
    out: View<'_, B>,
    log_sum_exp: View<'_, B>,
) -> Result<AttentionDims> {
    const NAME: &str = "attention";
    for view in [q, k, v, out] {
        fits(NAME, view)?;
        float(NAME, view)?;
        dtype(NAME, view, q.dtype())?;
    }
    let shapes = (q.layout.shape(), k.layout.shape(), v.layout.shape());
    let (&[batch, heads, queries, head_size], &[_, kv_heads, keys, _], &[_, _, _, value_size]) =
        (&shapes.0[..], &shapes.1[..], &shapes.2[..])
    else {
        let detail = format!("q, k and v are {shapes:?}, expected four dimensions each");
        return Err(Error::shape(NAME, detail));
    };
    shape(NAME, "k", k, &[batch, kv_heads, keys, head_size])?;
    shape(NAME, "v", v, &[batch, kv_heads, keys, value_size])?;
    shape(NAME, "the output", out, &[batch, heads, queries, value_size])?;
    fits(NAME, log_sum_exp)?;
    dtype(NAME, log_sum_exp, q.dtype().accumulator())?;
    shape(NAME, "log_sum_exp", log_sum_exp, &[batch, heads, queries])?;
    if kv_heads == 0 || heads % kv_heads != 0 {
        let detail = format!("{heads} query heads are not a multiple of {kv_heads} key heads");
        return Err(Error::shape(NAME, detail));
    }
    if let Some(mask) = mask {
        fits(NAME, mask)?;
        dtype(NAME, mask, DType::U8)?;
        shape(NAME, "the mask", mask, &[batch, heads, queries, keys])?;
    }
    Ok(AttentionDims { batch, heads, kv_heads, queries, keys, head_size, value_size })
}

/// The root of a collective among `size` ranks.
///
/// # Errors
/// [`Error::InvalidArgument`] for a root that is not a rank.
pub fn root(root: usize, size: usize) -> Result<()> {
    if root < size {
        return Ok(());
    }
    Err(Error::invalid("root", root, format!("ranks are 0..{size}")))
}

/// The length of one of `size` equal chunks of a buffer.
///
/// # Errors
/// A length that `size` does not divide.
pub fn chunks<B: Buffer>(operation: &'static str, buffer: &B, size: usize) -> Result<usize> {
    if buffer.len().is_multiple_of(size) {
        return Ok(buffer.len() / size);
    }
    let detail = format!("{} elements do not divide among {size} ranks; pad them", buffer.len());
    Err(Error::shape(operation, detail))
}

/// The buffer holds values that ranks can combine.
///
/// # Errors
/// `U8`, which no arithmetic takes.
pub fn reducible<B: Buffer>(operation: &'static str, buffer: &B) -> Result<()> {
    if buffer.dtype() == DType::U8 {
        return Err(Error::dtype(operation, "any dtype but u8", DType::U8));
    }
    Ok(())
}

/// Contiguous runs of one length, as the optimizers take them.
pub fn runs<B: Buffer>(operation: &'static str, views: &[View<'_, B>]) -> Result<usize> {
    let len = views.first().map_or(0, View::numel);
    for view in views {
        fits(operation, *view)?;
        if !view.layout.is_contiguous() || view.numel() != len {
            let detail = format!("{:?} is not a contiguous run of {len} elements", view.layout);
            return Err(Error::shape(operation, detail));
        }
    }
    Ok(len)
}
