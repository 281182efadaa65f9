//! Softmax over the last dimension and its derivative.

use super::scratch::Scratch;
use crate::{Kernels, ReduceKind, Result, UnaryOp, ViewOf, check};

/// Composition of [`Kernels::softmax`].
///
/// # Errors
/// Operands of unequal shape or dtype, no floats, or a scalar.
pub fn softmax<K: Kernels>(device: &K, x: ViewOf<'_, K>, out: ViewOf<'_, K>) -> Result<()> {
    check::float_elementwise("softmax", &[x], out)?;
    check::rows("softmax", x)?;
    if x.numel() == 0 {
        return Ok(());
    }
    let x = Scratch::wide(device, x)?;
    let shifted = x.minus(&x.reduce_last(ReduceKind::Max)?)?;
    let exponentials = shifted.unary(UnaryOp::Exp)?;
    exponentials.over(&exponentials.reduce_last(ReduceKind::Sum)?)?.store(out)
}

/// Composition of [`Kernels::softmax_backward`].
///
/// # Errors
/// As [`softmax`].
pub fn softmax_backward<K: Kernels>(
    device: &K,
    y: ViewOf<'_, K>,
    dy: ViewOf<'_, K>,
    dx: ViewOf<'_, K>,
) -> Result<()> {
    check::float_elementwise("softmax_backward", &[y, dy], dx)?;
    check::rows("softmax_backward", y)?;
    if y.numel() == 0 {
        return Ok(());
    }
    let (y, dy) = (Scratch::wide(device, y)?, Scratch::wide(device, dy)?);
    let projection = y.times(&dy)?.reduce_last(ReduceKind::Sum)?;
    y.times(&dy.minus(&projection)?)?.store(dx)
}
