//! AdamW.

use std::collections::HashMap;
use std::sync::Arc;

use sneppx_contract::{AdamWStep, Device, Error, Result};

use super::group::check_groups;
use super::{Optimizer, ParamGroup};
use crate::tensor::{Leaf, LeafId, Tensor};

/// Settings of [`AdamW`]; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Added to the root of the corrected second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, where groups do not say.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        AdamWOptions {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
        }
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
///
/// Moments are in the accumulator dtype, and each parameter counts its own steps: one that had no
/// gradient in a step is left as it is, value, moments and count.
#[derive(Debug)]
pub struct AdamW<D: Device> {
    groups: Vec<ParamGroup<D>>,
    options: AdamWOptions,
    moments: HashMap<LeafId, Moments<D>>,
}

#[derive(Debug)]
struct Moments<D: Device> {
    first: Tensor<D>,
    second: Tensor<D>,
    step: u64,
}

/// The state of one parameter, as it can be saved.
#[derive(Clone, Debug)]
pub struct AdamWState<D: Device> {
    /// The parameter's name.
    pub name: String,
    /// Steps it has taken.
    pub step: u64,
    /// First moment, of the parameter's shape in the accumulator dtype.
    pub first: Tensor<D>,
    /// Second moment, likewise.
    pub second: Tensor<D>,
}

impl<D: Device> AdamW<D> {
    /// An optimizer of all `leaves` with the decay in `options`.
    ///
    /// # Errors
    /// Settings that make no sense; a parameter listed twice.
    pub fn of(leaves: Vec<Arc<Leaf<D>>>, options: AdamWOptions) -> Result<Self> {
        AdamW::new(vec![ParamGroup::new(leaves, options.weight_decay)], options)
    }

    /// An optimizer of `groups`.
    ///
    /// # Errors
    /// Settings that make no sense; a parameter listed twice.
    pub fn new(groups: Vec<ParamGroup<D>>, options: AdamWOptions) -> Result<Self> {
        check_groups(&groups)?;
        check_rate(options.learning_rate)?;
        for (name, beta) in [("beta1", options.beta1), ("beta2", options.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(Error::invalid(name, beta, "must lie in 0 <= beta < 1"));
            }
        }
        if !(options.epsilon >= 0.0 && options.epsilon.is_finite()) {
            let reason = "must be 0 or positive, and finite";
            return Err(Error::invalid("epsilon", options.epsilon, reason));
        }
        Ok(AdamW { groups, options, moments: HashMap::new() })
    }

    /// The state of every parameter that has taken a step, in the order of the groups.
    pub fn state(&self) -> Vec<AdamWState<D>> {
        let state = |leaf: &Arc<Leaf<D>>| {
            let moments = self.moments.get(&leaf.id())?;
            Some(AdamWState {
                name: leaf.name().to_owned(),
                step: moments.step,
                first: moments.first.clone(),
                second: moments.second.clone(),
            })
        };
        self.groups.iter().flat_map(|group| &group.leaves).filter_map(state).collect()
    }

    /// Puts a saved state in place of this one. Parameters that are not in it start afresh.
    ///
    /// # Errors
    /// A name that is not a parameter; moments of another shape or dtype. Nothing changes then.
    pub fn load_state(&mut self, state: Vec<AdamWState<D>>) -> Result<()> {
        let leaves = self.leaves();
        let mut loaded = HashMap::new();
        for entry in state {
            let Some(leaf) = leaves.iter().find(|leaf| leaf.name() == entry.name) else {
                let reason = "the optimizer has no parameter of this name";
                return Err(Error::invalid("optimizer state", entry.name, reason));
            };
            for moment in [&entry.first, &entry.second] {
                if moment.shape() != leaf.shape() {
                    let detail = format!(
                        "the moment of {} is {:?}, the parameter {:?}",
                        leaf.name(),
                        moment.shape(),
                        leaf.shape()
                    );
                    return Err(Error::shape("optimizer state", detail));
                }
                if moment.dtype() != leaf.dtype().accumulator() {
                    let expected = leaf.dtype().accumulator().name();
                    return Err(Error::dtype("optimizer state", expected, moment.dtype()));
                }
            }
            // Steps write the moments in place; the saved ones stay the caller's.
            let own = |moment: &Tensor<D>| {
                let copy = Tensor::empty(moment.device(), moment.dtype(), *moment.shape())?;
                copy.device().copy(moment.view(), copy.view())?;
                Ok::<_, Error>(copy)
            };
            let (first, second) = (own(&entry.first)?, own(&entry.second)?);
            loaded.insert(leaf.id(), Moments { first, second, step: entry.step });
        }
        self.moments = loaded;
        Ok(())
    }
}

impl<D: Device> Optimizer<D> for AdamW<D> {
    fn leaves(&self) -> Vec<Arc<Leaf<D>>> {
        self.groups.iter().flat_map(|group| group.leaves.iter().cloned()).collect()
    }

    fn step_scaled(&mut self, gradient_scale: f64) -> Result<()> {
        for group in &self.groups {
            let learning_rate = self.options.learning_rate * group.learning_rate_scale;
            for leaf in group.leaves.iter().filter(|leaf| leaf.is_trainable()) {
                let Some(grad) = leaf.grad() else { continue };
                let moments = match self.moments.entry(leaf.id()) {
                    std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::hash_map::Entry::Vacant(entry) => {
                        entry.insert(Moments::zero(leaf, grad.device())?)
                    }
                };
                moments.step += 1;
                let step = AdamWStep {
                    learning_rate,
                    beta1: self.options.beta1,
                    beta2: self.options.beta2,
                    epsilon: self.options.epsilon,
                    weight_decay: group.weight_decay,
                    step: moments.step,
                    gradient_scale,
                };
                update_in_place(leaf, |value, device| {
                    let grad = grad.packed()?;
                    let (first, second) = (moments.first.view(), moments.second.view());
                    device.adamw_step(step, value.view(), grad.view(), first, second)
                })?;
            }
        }
        Ok(())
    }

    fn learning_rate(&self) -> f64 {
        self.options.learning_rate
    }

    fn set_learning_rate(&mut self, learning_rate: f64) -> Result<()> {
        check_rate(learning_rate)?;
        self.options.learning_rate = learning_rate;
        Ok(())
    }
}

impl<D: Device> Moments<D> {
    fn zero(leaf: &Leaf<D>, device: &D) -> Result<Self> {
        let dtype = leaf.dtype().accumulator();
        let zeros = || Tensor::zeros(device, dtype, leaf.shape());
        Ok(Moments { first: zeros()?, second: zeros()?, step: 0 })
    }
}

pub(super) fn check_rate(rate: f64) -> Result<()> {
    if rate >= 0.0 && rate.is_finite() {
        return Ok(());
    }
    Err(Error::invalid("learning rate", rate, "must be 0 or positive, and finite"))
}

/// Lets `update` write a leaf's value; one that lies with gaps is packed first.
pub(super) fn update_in_place<D: Device>(
    leaf: &Leaf<D>,
    update: impl FnOnce(&Tensor<D>, &D) -> Result<()>,
) -> Result<()> {
    let value = leaf.value()?;
    if value.layout().is_contiguous() {
        return update(&value, value.device());
    }
    let packed = value.packed()?;
    update(&packed, packed.device())?;
    leaf.set_value(packed)
}
