//! Parameters that are treated alike.

use std::collections::HashSet;
use std::sync::Arc;

use sneppx_contract::{Device, Error, Result};

use crate::tensor::Leaf;

/// Parameters with a weight decay and a share of the learning rate of their own.
#[derive(Clone, Debug)]
pub struct ParamGroup<D: Device> {
    /// The parameters.
    pub leaves: Vec<Arc<Leaf<D>>>,
    /// Weight decay.
    pub weight_decay: f64,
    /// Factor on the optimizer's learning rate.
    pub learning_rate_scale: f64,
}

impl<D: Device> ParamGroup<D> {
    /// A group with the optimizer's own learning rate.
    pub fn new(leaves: Vec<Arc<Leaf<D>>>, weight_decay: f64) -> Self {
        ParamGroup { leaves, weight_decay, learning_rate_scale: 1.0 }
    }

    /// Two groups: decay for those that `decays` picks, none for the rest.
    pub fn split(
        leaves: Vec<Arc<Leaf<D>>>,
        weight_decay: f64,
        decays: impl Fn(&Leaf<D>) -> bool,
    ) -> Vec<Self> {
        let (decayed, rest) = leaves.into_iter().partition(|leaf| decays(leaf));
        vec![ParamGroup::new(decayed, weight_decay), ParamGroup::new(rest, 0.0)]
    }

    /// Two groups, as GPT-2's recipes have it: decay for matrices (embeddings included), none for
    /// norms and biases.
    pub fn decay_matrices(leaves: Vec<Arc<Leaf<D>>>, weight_decay: f64) -> Vec<Self> {
        ParamGroup::split(leaves, weight_decay, |leaf| leaf.shape().ndim() >= 2)
    }
}

/// Refuses settings that make no sense and parameters that are listed twice.
pub(super) fn check_groups<D: Device>(groups: &[ParamGroup<D>]) -> Result<()> {
    let mut seen = HashSet::new();
    for group in groups {
        for (name, value) in [
            ("weight decay", group.weight_decay),
            ("learning rate scale", group.learning_rate_scale),
        ] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(Error::invalid(name, value, "must be 0 or positive, and finite"));
            }
        }
        for leaf in &group.leaves {
            if !seen.insert(leaf.id()) {
                let reason = "is listed twice and would be updated twice; list it once";
                return Err(Error::invalid("parameter", leaf.name(), reason));
            }
        }
    }
    Ok(())
}

/// Every parameter, in the order of the groups.
pub(super) fn all_leaves<D: Device>(groups: &[ParamGroup<D>]) -> Vec<Arc<Leaf<D>>> {
    groups.iter().flat_map(|group| group.leaves.iter().cloned()).collect()
}

/// Refuses a learning rate that is negative or not finite.
pub(super) fn check_rate(rate: f64) -> Result<()> {
    if rate >= 0.0 && rate.is_finite() {
        return Ok(());
    }
    Err(Error::invalid("learning rate", rate, "must be 0 or positive, and finite"))
}
