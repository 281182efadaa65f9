//! AdamW.

use std::sync::Arc;

use sneppx_contract::{AdamWStep, Device, Error, Result};

use super::group::{all_leaves, check_groups, check_not_negative};
use super::state::{States, Update};
use super::{Optimizer, OptimizerState, ParamGroup};
use crate::tensor::Leaf;

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

impl AdamWOptions {
    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// A decay rate outside `0 <= beta < 1`; anything else that is negative or not finite.
    pub fn check(&self) -> Result<()> {
        for (name, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(Error::invalid(name, beta, "must lie in 0 <= beta < 1"));
            }
        }
        check_not_negative("learning rate", self.learning_rate)?;
        check_not_negative("epsilon", self.epsilon)?;
        check_not_negative("weight decay", self.weight_decay)
    }

    /// Step number `step` of a run, counted from 1.
    pub(super) fn kernel_step(&self, step: u64, gradient_scale: f64) -> AdamWStep {
        AdamWStep {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            step,
            gradient_scale,
        }
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
///
/// Moments are in the accumulator dtype, and each parameter counts its own steps: one that had no
/// gradient in a step is left as it is, value, moments and count. Elements do not touch one
/// another: NaN in one gradient spoils its own parameter and no other; who does not want that
/// looks at the norm of the gradients before the step, as the training step does.
#[derive(Debug)]
pub struct AdamW<D: Device> {
    groups: Vec<ParamGroup<D>>,
    options: AdamWOptions,
    states: States<D>,
}

impl<D: Device> AdamW<D> {
    /// What is saved of each parameter: the moments, not corrected for their start at 0.
    pub const STATE: [&'static str; 2] = ["first_moment", "second_moment"];

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
        options.check()?;
        Ok(AdamW { groups, options, states: States::new(&Self::STATE) })
    }
}

impl<D: Device> Optimizer<D> for AdamW<D> {
    fn leaves(&self) -> Vec<Arc<Leaf<D>>> {
        all_leaves(&self.groups)
    }

    fn step_scaled(&mut self, gradient_scale: f64) -> Result<()> {
        let options = self.options;
        self.states.step(&self.groups, gradient_scale, |group, update| {
            let Update { device, step, param, grad, state } = update;
            let options = AdamWOptions {
                learning_rate: options.learning_rate * group.learning_rate_scale,
                weight_decay: group.weight_decay,
                ..options
            };
            let step = options.kernel_step(step, gradient_scale);
            device.adamw_step(step, param, grad, state[0].view(), state[1].view())
        })
    }

    fn learning_rate(&self) -> f64 {
        self.options.learning_rate
    }

    fn set_learning_rate(&mut self, learning_rate: f64) -> Result<()> {
        check_not_negative("learning rate", learning_rate)?;
        self.options.learning_rate = learning_rate;
        Ok(())
    }

    fn state(&self) -> Vec<OptimizerState<D>> {
        self.states.save(&self.groups)
    }

    fn load_state(&mut self, state: Vec<OptimizerState<D>>) -> Result<()> {
        self.states.load(&self.groups, state)
    }
}
