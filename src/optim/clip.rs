//! The norm of all gradients together, and keeping it within a limit.

use std::sync::Arc;

use sneppx_contract::{DType, Device, Error, ReduceKind, Result, SUM_BLOCK, Shape, View};

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

/// The norm of the gradients of `leaves` as one vector; not finite if any element is not.
///
/// Squares are summed over blocks of [`SUM_BLOCK`] elements of each gradient on the device, and the
/// blocks in `f64` here, so the order of addition depends on the shapes alone.
///
/// # Errors
/// Whatever the device reports.
pub fn grad_norm<D: Device>(leaves: &[Arc<Leaf<D>>], norm_type: NormType) -> Result<f64> {
    let mut parts = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        if let Some(grad) = leaf.grad().filter(|grad| grad.numel() > 0) {
            parts.push(match norm_type {
                NormType::Two => sums_of_squares(&grad)?,
                NormType::Infinity => largest(&grad)?,
            });
        }
    }
    let mut total = 0.0;
    for part in parts {
        for value in part.to_host()?.to_f64() {
            total = match norm_type {
                NormType::Two => total + value,
                NormType::Infinity if value.is_nan() || f64::is_nan(total) => f64::NAN,
                NormType::Infinity => value.max(total),
            };
        }
    }
    Ok(if norm_type == NormType::Two { total.sqrt() } else { total })
}

/// What gradients of norm `norm` are multiplied by to stay within `limit`:
/// `min(1, limit / (norm + 1e-6))`, as in PyTorch.
///
/// # Errors
/// A limit that is negative or NaN.
pub fn clip_factor(norm: f64, limit: f64) -> Result<f64> {
    if limit.is_nan() || limit < 0.0 {
        let reason = "the largest norm must be 0 or positive";
        return Err(Error::invalid("clip", limit, reason));
    }
    Ok((limit / (norm + 1e-6)).min(1.0))
}

/// Scales the gradients of `leaves` so that their norm stays within `limit`. Where the norm is not
/// finite nothing is scaled, and the caller decides: a factor would erase what is finite.
///
/// # Errors
/// A limit that is negative or NaN; whatever the device reports.
pub fn clip_grad_norm<D: Device>(
    leaves: &[Arc<Leaf<D>>],
    limit: f64,
    norm_type: NormType,
) -> Result<ClippedNorm> {
    clip_factor(0.0, limit)?;
    let norm = grad_norm(leaves, norm_type)?;
    if !norm.is_finite() {
        return Ok(ClippedNorm { norm, factor: 1.0 });
    }
    let factor = clip_factor(norm, limit)?;
    if factor < 1.0 {
        for grad in leaves.iter().filter_map(|leaf| leaf.grad()) {
            grad.device().scaled_add(factor, grad.view(), 0.0, grad.view())?;
        }
    }
    Ok(ClippedNorm { norm, factor })
}

/// The name of the first leaf whose gradient holds NaN or infinity.
///
/// # Errors
/// Whatever the device reports.
pub fn first_non_finite<D: Device>(leaves: &[Arc<Leaf<D>>]) -> Result<Option<String>> {
    for leaf in leaves {
        let Some(grad) = leaf.grad() else { continue };
        let finite = Tensor::empty(grad.device(), DType::U8, Shape::new(&[1])?)?;
        grad.device().all_finite(grad.view(), finite.view())?;
        if finite.item()? == 0.0 {
            return Ok(Some(leaf.name().to_owned()));
        }
    }
    Ok(None)
}

/// A partial sum per block.
fn sums_of_squares<D: Device>(grad: &Tensor<D>) -> Result<Tensor<D>> {
    let grad = grad.packed()?;
    let blocks = Shape::new(&[grad.numel().div_ceil(SUM_BLOCK)])?;
    let sums = Tensor::empty(grad.device(), grad.dtype().accumulator(), blocks)?;
    grad.device().sums_of_squares(grad.view(), sums.view())?;
    Ok(sums)
}

fn largest<D: Device>(grad: &Tensor<D>) -> Result<Tensor<D>> {
    let grad = grad.packed()?;
    let magnitudes = grad.abs()?.flatten()?;
    let out = Tensor::empty(grad.device(), grad.dtype(), Shape::new(&[1])?)?;
    let view = View::new(magnitudes.buffer(), *magnitudes.layout());
    let store = sneppx_contract::Store::Overwrite;
    grad.device().reduce(ReduceKind::Max, view, store, out.view())?;
    Ok(out)
}
