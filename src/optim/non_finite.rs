//! What becomes of a step whose gradient holds NaN or infinity.

use std::sync::Arc;

use sneppx_contract::{DType, Device, Error, Result, Shape};

use crate::tensor::{Leaf, Tensor};

/// What to do when the norm of the gradient is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinitePolicy {
    /// Stop with an error that names the first parameter concerned.
    #[default]
    Error,
    /// Leave out the step: no value, moment or step count changes.
    Skip,
    /// Step all the same; elements with a bad gradient are lost, others are not touched by them.
    Allow,
}

/// What [`NonFinitePolicy::decide`] says about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take it.
    Step,
    /// Leave it out.
    Skip,
    /// Stop the run.
    Stop,
}

impl NonFinitePolicy {
    /// Whether a step with a gradient of norm `norm` is taken. All who see the same norm decide
    /// the same.
    pub fn decide(self, norm: f64) -> Verdict {
        match self {
            _ if norm.is_finite() => Verdict::Step,
            NonFinitePolicy::Error => Verdict::Stop,
            NonFinitePolicy::Skip => Verdict::Skip,
            NonFinitePolicy::Allow => Verdict::Step,
        }
    }

    /// Whether to take the step at `place` (as in `step 7`) with gradients of norm `norm`.
    ///
    /// # Errors
    /// [`Error::NonFinite`] where the policy is to stop, naming the first of `leaves` whose
    /// gradient is not finite.
    pub fn is_taken<D: Device>(
        self,
        norm: f64,
        leaves: &[Arc<Leaf<D>>],
        place: &str,
    ) -> Result<bool> {
        match self.decide(norm) {
            Verdict::Step => Ok(true),
            Verdict::Skip => Ok(false),
            Verdict::Stop => {
                let what = match first_non_finite(leaves)? {
                    Some(name) => format!("the gradient of {name}"),
                    None => "the norm of the gradient".into(),
                };
                Err(Error::NonFinite { what, value: norm, place: place.into() })
            }
        }
    }
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
