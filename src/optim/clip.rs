//! The norm of all gradients together, and keeping it within a limit.

use std::sync::Arc;

use sneppx_contract::{
    DType, Device, Error, Layout, ReduceKind, Result, SUM_BLOCK, Shape, Store, View,
};

use super::group::check_distinct;
use crate::tensor::{Leaf, Tensor};

/// How the size of a gradient is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormType {
    /// The root of the sum of squares.
    #[default]
    Two,
    /// The largest magnitude.
    Infinity,
}

/// What [`clip_grad_norm`] found and did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClippedNorm {
    /// The norm before.
    pub norm: f64,
    /// What every gradient was multiplied by.
    pub factor: f64,
}

/// The norm of the gradients of `leaves` as one vector; 0 if there is no gradient, and not finite
/// if any element is not.
///
/// Squares are summed in the accumulator dtype over blocks of [`SUM_BLOCK`] elements of each
/// gradient on the device, and the blocks in `f64` here, so the order of addition depends on the
/// shapes alone. A square or a block's sum beyond the accumulator dtype makes the norm infinite.
///
/// # Errors
/// A leaf that is listed twice and would count twice; whatever the device reports.
pub fn grad_norm<D: Device>(leaves: &[Arc<Leaf<D>>], norm_type: NormType) -> Result<f64> {
    check_distinct(leaves)?;
    let grads = leaves.iter().filter_map(|leaf| leaf.grad()).filter(|grad| grad.numel() > 0);
    let grads: Vec<Tensor<D>> = grads.map(|grad| grad.packed()).collect::<Result<_>>()?;
    match norm_type {
        NormType::Two => Ok(sum_of_squares(&grads)?.sqrt()),
        NormType::Infinity => largest_magnitude(&grads),
    }
}

/// What gradients of norm `norm` are multiplied by to stay within `limit`:
/// `min(1, limit / (norm + 1e-6))`, as in PyTorch. A norm that is not finite gives 1: any other
/// factor would erase what is finite and keep what is not.
///
/// ```
/// use sneppx::optim::clip_factor;
/// assert_eq!(clip_factor(0.5, 1.0)?, 1.0);
/// assert!((clip_factor(5.0, 1.0)? - 0.2).abs() < 1e-6);
/// assert_eq!(clip_factor(5.0, f64::INFINITY)?, 1.0);
/// assert!(clip_factor(5.0, f64::NAN).is_err());
/// # Ok::<(), sneppx::Error>(())
/// ```
///
/// # Errors
/// A limit that is negative or NaN; a negative norm.
pub fn clip_factor(norm: f64, limit: f64) -> Result<f64> {
    check_limit(limit)?;
    if norm < 0.0 {
        return Err(Error::invalid("norm", norm, "a norm is never negative"));
    }
    if !norm.is_finite() {
        return Ok(1.0);
    }
    // A limit of -0 counts as 0, and must not turn signs.
    Ok((limit.abs() / (norm + 1e-6)).min(1.0))
}

/// Scales the gradients of `leaves` in place so that their norm stays within `limit`, for loops
/// written by hand; a trainer hands the factor to the optimizer instead. Gradients within the limit
/// keep their bits. Where the norm is not finite nothing is scaled, and the caller decides, as with
/// [`NonFinitePolicy`](super::NonFinitePolicy).
///
/// # Errors
/// A limit that is negative or NaN, before anything changes; a leaf that is listed twice; whatever
/// the device reports.
pub fn clip_grad_norm<D: Device>(
    leaves: &[Arc<Leaf<D>>],
    limit: f64,
    norm_type: NormType,
) -> Result<ClippedNorm> {
    check_limit(limit)?;
    let norm = grad_norm(leaves, norm_type)?;
    let factor = clip_factor(norm, limit)?;
    if factor < 1.0 {
        for leaf in leaves {
            let Some(grad) = leaf.grad() else { continue };
            if grad.layout().may_overlap_itself() {
                // Elements that share memory cannot be scaled where they are.
                let own = grad.empty_like()?;
                grad.device().scaled_add(factor, grad.view(), 0.0, own.view())?;
                leaf.set_grad(Some(own));
            } else {
                grad.device().scaled_add(factor, grad.view(), 0.0, grad.view())?;
            }
        }
    }
    Ok(ClippedNorm { norm, factor })
}

fn check_limit(limit: f64) -> Result<()> {
    if limit >= 0.0 {
        return Ok(());
    }
    Err(Error::invalid("clip", limit, "the largest norm must be 0 or positive"))
}

/// Over gradients without gaps. Every block of every gradient has its place in one buffer, so that
/// the device is asked for numbers once, not once per gradient.
fn sum_of_squares<D: Device>(grads: &[Tensor<D>]) -> Result<f64> {
    let mut total = 0.0;
    for dtype in [DType::F32, DType::F64] {
        let chosen: Vec<_> = grads.iter().filter(|g| g.dtype().accumulator() == dtype).collect();
        let Some(first) = chosen.first() else { continue };
        let blocks = |grad: &Tensor<D>| grad.numel().div_ceil(SUM_BLOCK);
        let all = chosen.iter().map(|grad| blocks(grad)).sum();
        let sums = Tensor::empty(first.device(), dtype, Shape::new(&[all])?)?;
        let mut start = 0;
        for grad in chosen {
            let out = View::new(sums.buffer(), Layout::flat(start, blocks(grad)));
            grad.device().sums_of_squares(grad.view(), out)?;
            start += blocks(grad);
        }
        total += sums.to_host()?.to_f64().iter().sum::<f64>();
    }
    Ok(total)
}

/// Over gradients without gaps and with at least one element.
fn largest_magnitude<D: Device>(grads: &[Tensor<D>]) -> Result<f64> {
    let mut ends = Vec::with_capacity(2 * grads.len());
    for grad in grads {
        let x = View::new(grad.buffer(), Layout::flat(grad.layout().offset(), grad.numel()));
        for kind in [ReduceKind::Max, ReduceKind::Min] {
            let out = Tensor::empty(grad.device(), grad.dtype(), Shape::new(&[1])?)?;
            grad.device().reduce(kind, x, Store::Overwrite, out.view())?;
            ends.push(out);
        }
    }
    let mut largest = 0.0;
    for end in ends {
        let magnitude = end.item()?.abs();
        if magnitude.is_nan() {
            return Ok(f64::NAN);
        }
        largest = magnitude.max(largest);
    }
    Ok(largest)
}
