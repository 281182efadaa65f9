//! Scaled dot-product attention with every score at once.
//!
//! The query heads that share one key head are stacked on top of one another, which makes each
//! product one of plain matrices: `[B, G, H / G * T, D]` against `[B, G, S, D]`.
//!
//! Scores of hidden keys are -inf and their weights 0. A row that sees nothing has a largest score
//! of -inf, for which 0 stands in wherever a difference to it is formed: its weights, its result
//! and its gradients are then 0, and -inf stays in `log_sum_exp` to tell the derivative.

use super::scratch::Scratch;
use crate::check::AttentionDims;
use crate::{
    Attention, CompareOp, HostSlice, Kernels, Layout, ReduceKind, Result, Shape, UnaryOp, View,
    ViewOf, Visibility, check,
};

/// Composition of [`Kernels::attention`].
///
/// # Errors
/// Operands of other shapes or dtypes than the method states, or query heads that are not a
/// multiple of the key heads.
pub fn attention<K: Kernels>(
    device: &K,
    spec: Attention,
    q: ViewOf<'_, K>,
    k: ViewOf<'_, K>,
    v: ViewOf<'_, K>,
    mask: Option<ViewOf<'_, K>>,
    out: ViewOf<'_, K>,
    log_sum_exp: ViewOf<'_, K>,
) -> Result<()> {
    let dims = check::attention(q, k, v, mask, out, log_sum_exp)?;
    check::output("attention", out)?;
    check::output("attention", log_sum_exp)?;
    if dims.keys == 0 || log_sum_exp.numel() == 0 {
        device.fill(0.0, out)?;
        return device.fill(f64::NEG_INFINITY, log_sum_exp);
    }
    let scores = scores(device, spec, &dims, q, k, mask)?;
    let largest = scores.reduce_last(ReduceKind::Max)?;
    let shift = finite_or_zero(&largest)?;
    let weights = scores.minus(&shift)?.unary(UnaryOp::Exp)?;
    let sums = weights.reduce_last(ReduceKind::Sum)?;
    let seen = largest.compare(CompareOp::NotEqual, f64::NEG_INFINITY)?;
    let result =
        weights.over(&sums.where_or(&seen, 1.0)?)?.matmul(1.0, &Scratch::wide(device, v)?)?;
    sums.unary(UnaryOp::Log)?.plus(&shift)?.store(log_sum_exp)?;
    result.store(out)
}

/// Composition of [`Kernels::attention_backward`].
///
/// # Errors
/// As [`attention`]; gradients must have the shapes of what they are gradients of.
pub fn attention_backward<K: Kernels>(
    device: &K,
    spec: Attention,
    q: ViewOf<'_, K>,
    k: ViewOf<'_, K>,
    v: ViewOf<'_, K>,
    mask: Option<ViewOf<'_, K>>,
    out: ViewOf<'_, K>,
    log_sum_exp: ViewOf<'_, K>,
    dout: ViewOf<'_, K>,
    dq: ViewOf<'_, K>,
    dk: ViewOf<'_, K>,
    dv: ViewOf<'_, K>,
) -> Result<()> {
    const NAME: &str = "attention_backward";
    let dims = check::attention(q, k, v, mask, out, log_sum_exp)?;
    check::elementwise(NAME, &[dout], out)?;
    check::dtype(NAME, dout, q.dtype())?;
    for (of, gradient) in [(q, dq), (k, dk), (v, dv)] {
        check::float_elementwise(NAME, &[of], gradient)?;
    }
    if dims.keys == 0 || log_sum_exp.numel() == 0 {
        return [dq, dk, dv].into_iter().try_for_each(|gradient| device.fill(0.0, gradient));
    }
    let scores = scores(device, spec, &dims, q, k, mask)?;
    let per_row = [dims.batch, dims.kv_heads, stacked(&dims), 1];
    let log_sum_exp = Scratch::of(device, log_sum_exp).reshape(&per_row)?;
    let weights = scores.minus(&finite_or_zero(&log_sum_exp)?)?.unary(UnaryOp::Exp)?;

    let q = stack(device, &dims, q)?;
    let (k, v) = (Scratch::wide(device, k)?, Scratch::wide(device, v)?);
    let (out, dout) = (stack(device, &dims, out)?, stack(device, &dims, dout)?);
    let of_v = weights.transposed()?.matmul(1.0, &dout)?;
    // sum(weights * dweights) over the keys equals sum(out * dout) over the value's elements.
    let projection = out.times(&dout)?.reduce_last(ReduceKind::Sum)?;
    let of_weights = dout.matmul(1.0, &v.transposed()?)?;
    let of_scores = weights.times(&of_weights.minus(&projection)?)?;
    let of_q = of_scores.matmul(spec.scale, &k)?;
    let of_k = of_scores.transposed()?.matmul(spec.scale, &q)?;
    of_q.store(dq)?;
    of_k.store(dk)?;
    of_v.store(dv)
}

/// `scale * q·kᵀ`, -inf where the key is hidden: `[B, G, H / G * T, S]`.
fn scores<'d, K: Kernels>(
    device: &'d K,
    spec: Attention,
    dims: &AttentionDims,
    q: ViewOf<'_, K>,
    k: ViewOf<'_, K>,
    mask: Option<ViewOf<'_, K>>,
) -> Result<Scratch<'d, K>> {
    let products =
        stack(device, dims, q)?.matmul(spec.scale, &Scratch::wide(device, k)?.transposed()?)?;
    let (queries, keys) = (dims.queries, dims.keys);
    let mut scores = products.reshape(&[dims.batch, dims.heads, queries, keys])?;
    if spec.visibility == Visibility::Causal {
        // Query i sees keys 0 ..= i + keys - queries.
        let sees = |at: usize| u8::from(at % keys + queries <= at / keys + keys);
        let visible: Vec<u8> = (0..queries * keys).map(sees).collect();
        let visible = device.upload(HostSlice::U8(&visible))?;
        let layout = Layout::contiguous(Shape::new(&[queries, keys])?);
        let visible = Scratch::of(device, View::new(&visible, layout));
        scores = scores.where_or(&visible, f64::NEG_INFINITY)?;
    }
    if let Some(mask) = mask {
        scores = scores.where_or(&Scratch::of(device, mask), f64::NEG_INFINITY)?;
    }
    scores.reshape(&[dims.batch, dims.kv_heads, stacked(dims), keys])
}

/// `[B, H, T, X]` as `[B, G, H / G * T, X]`.
fn stack<'d, K: Kernels>(
    device: &'d K,
    dims: &AttentionDims,
    view: ViewOf<'_, K>,
) -> Result<Scratch<'d, K>> {
    let size = view.layout.shape()[3];
    Scratch::wide(device, view)?.reshape(&[dims.batch, dims.kv_heads, stacked(dims), size])
}

fn stacked(dims: &AttentionDims) -> usize {
    dims.heads / dims.kv_heads * dims.queries
}

/// 0 in place of -inf; everything else, NaN included, as it is.
fn finite_or_zero<'d, K: Kernels>(values: &Scratch<'d, K>) -> Result<Scratch<'d, K>> {
    values.where_or(&values.compare(CompareOp::NotEqual, f64::NEG_INFINITY)?, 0.0)
}
