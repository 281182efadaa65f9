//! Sums of squares, the finite check and the tree.

use super::scratch::Scratch;
use crate::{
    CompareOp, DType, Error, Kernels, Layout, ReduceKind, Result, SUM_BLOCK, Shape, UnaryOp, View,
    ViewOf, check,
};

/// Composition of [`Kernels::sums_of_squares`].
///
/// # Errors
/// `x` is no contiguous run of floats, or `out` has not one element of the accumulator dtype per
/// block.
pub fn sums_of_squares<K: Kernels>(device: &K, x: ViewOf<'_, K>, out: ViewOf<'_, K>) -> Result<()> {
    const NAME: &str = "sums_of_squares";
    let len = check::runs(NAME, &[x])?;
    check::float(NAME, x)?;
    check::output(NAME, out)?;
    check::dtype(NAME, out, x.dtype().accumulator())?;
    check::shape(NAME, "the output", out, &[len.div_ceil(SUM_BLOCK)])?;
    let (blocks, rest) = (len / SUM_BLOCK, len % SUM_BLOCK);
    let cuts = [(0, blocks, SUM_BLOCK), (blocks, usize::from(rest > 0), rest)];
    for (first, rows, columns) in cuts.into_iter().filter(|cut| cut.1 > 0) {
        let start = x.layout.offset() + first * SUM_BLOCK;
        let layout = Layout::contiguous(Shape::new(&[rows, columns])?).with_offset(start);
        let block = Scratch::wide(device, View::new(x.buffer, layout))?;
        let sums = block.unary(UnaryOp::Square)?.reduce_last(ReduceKind::Sum)?;
        sums.store(View::new(out.buffer, out.layout.narrow(0, first, rows)?))?;
    }
    Ok(())
}

/// Composition of [`Kernels::all_finite`].
///
/// # Errors
/// `x` holds no floats, or `out` is not one `U8`.
pub fn all_finite<K: Kernels>(device: &K, x: ViewOf<'_, K>, out: ViewOf<'_, K>) -> Result<()> {
    const NAME: &str = "all_finite";
    check::fits(NAME, x)?;
    check::float(NAME, x)?;
    check::output(NAME, out)?;
    check::dtype(NAME, out, DType::U8)?;
    check::shape(NAME, "the output", out, &[1])?;
    if x.numel() == 0 {
        return device.fill(1.0, out);
    }
    let size = Scratch::wide(device, x)?.unary(UnaryOp::Abs)?;
    let finite = size.compare(CompareOp::Less, f64::INFINITY)?;
    // Bytes are no type of arithmetic; the smallest of ones and zeros is found among floats.
    let verdicts = Scratch::dense(device, DType::F32, *finite.shape())?;
    device.cast(finite.view(), verdicts.view())?;
    let mut one = *verdicts.shape();
    for dim in 0..one.ndim() {
        one = one.with_dim(dim, 1);
    }
    verdicts.reduce_to(ReduceKind::Min, one)?.store(out)
}

/// Composition of [`Kernels::tree_sum`].
///
/// # Errors
/// No nodes, or nodes of another shape or dtype than `out`.
pub fn tree_sum<K: Kernels>(device: &K, nodes: &[ViewOf<'_, K>], out: ViewOf<'_, K>) -> Result<()> {
    check::float_elementwise("tree_sum", nodes, out)?;
    if nodes.is_empty() {
        return Err(Error::shape("tree_sum", "there are no nodes to add"));
    }
    let mut level =
        nodes.iter().map(|node| Scratch::wide(device, *node)).collect::<Result<Vec<_>>>()?;
    while level.len() > 1 {
        let mut above = Vec::with_capacity(level.len().div_ceil(2));
        let mut children = level.into_iter();
        while let Some(left) = children.next() {
            above.push(match children.next() {
                Some(right) => left.plus(&right)?,
                None => left,
            });
        }
        level = above;
    }
    level.into_iter().try_for_each(|root| root.store(out))
}
