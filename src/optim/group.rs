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
        ParamGroup::split(leaves, weight_decay, is_matrix)
    }

    /// As [`ParamGroup::decay_matrices`], but without decay also for every parameter with one of
    /// `segments` in its dotted path: `embedding` covers `embedding.weight`.
    ///
    /// # Errors
    /// A segment that no path has: most likely a slip of the pen that would let decay through.
    pub fn decay_matrices_except(
        leaves: Vec<Arc<Leaf<D>>>,
        weight_decay: f64,
        segments: &[&str],
    ) -> Result<Vec<Self>> {
        let has = |leaf: &Leaf<D>, segment: &str| leaf.name().split('.').any(|s| s == segment);
        for &segment in segments {
            if !leaves.iter().any(|leaf| has(leaf, segment)) {
                let names: Vec<_> = leaves.iter().take(4).map(|leaf| leaf.name()).collect();
                let reason = format!("no path has this segment; the first paths are {names:?}");
                return Err(Error::invalid("parameters without decay", segment, reason));
            }
        }
        Ok(ParamGroup::split(leaves, weight_decay, |leaf| {
            is_matrix(leaf) && !segments.iter().any(|segment| has(leaf, segment))
        }))
    }
}

fn is_matrix<D: Device>(leaf: &Leaf<D>) -> bool {
    leaf.shape().ndim() >= 2
}

/// Refuses settings that make no sense, parameters whose dtype has no gradient, and parameters that
/// are listed twice.
pub(super) fn check_groups<D: Device>(groups: &[ParamGroup<D>]) -> Result<()> {
    for group in groups {
        check_not_negative("weight decay", group.weight_decay)?;
        check_not_negative("learning rate scale", group.learning_rate_scale)?;
        for leaf in &group.leaves {
            if !leaf.dtype().is_float() {
                let error = Error::dtype("optimizer", "a float dtype", leaf.dtype());
                return Err(error.at(leaf.name()));
            }
        }
    }
    check_distinct(groups.iter().flat_map(|group| &group.leaves))
}

/// Refuses a parameter that is listed twice.
pub(super) fn check_distinct<'a, D: Device>(
    leaves: impl IntoIterator<Item = &'a Arc<Leaf<D>>>,
) -> Result<()> {
    let mut seen = HashSet::new();
    for leaf in leaves {
        if !seen.insert(leaf.id()) {
            let reason = "is listed twice and would be changed twice; list it once";
            return Err(Error::invalid("parameter", leaf.name(), reason));
        }
    }
    Ok(())
}

/// Refuses a setting that is negative, NaN or infinite.
pub(super) fn check_not_negative(name: &'static str, value: f64) -> Result<()> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Error::invalid(name, value, "must be 0 or positive, and finite"))
}

/// Every parameter, in the order of the groups.
pub(super) fn all_leaves<D: Device>(groups: &[ParamGroup<D>]) -> Vec<Arc<Leaf<D>>> {
    groups.iter().flat_map(|group| group.leaves.iter().cloned()).collect()
}
