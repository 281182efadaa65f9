//! Stochastic gradient descent.

use std::sync::Arc;

use sneppx_contract::{Device, Error, Result, SgdStep};

use super::group::{all_leaves, check_groups, check_not_negative};
use super::state::{States, Update};
use super::{Optimizer, OptimizerState, ParamGroup};
use crate::tensor::Leaf;

/// Settings of [`Sgd`]; the defaults are PyTorch's: plain descent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdOptions {
    /// Learning rate.
    pub learning_rate: f64,
    /// How much of the buffer stays from step to step; 0 keeps no buffer.
    pub momentum: f64,
    /// How much less of the gradient enters the buffer after the first step.
    pub dampening: f64,
    /// Whether the step looks ahead: `g + momentum * buffer` in place of the buffer (Sutskever et
    /// al., 2013).
    pub nesterov: bool,
    /// L2 decay, added to the gradient, where groups do not say.
    pub weight_decay: f64,
}

impl Default for SgdOptions {
    fn default() -> Self {
        SgdOptions {
            learning_rate: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        }
    }
}

impl SgdOptions {
    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// Momentum outside `0 <= m < 1`, dampening outside `0 ..= 1`, anything else that is negative
    /// or not finite; looking ahead without momentum or with dampening.
    pub fn check(&self) -> Result<()> {
        check_not_negative("learning rate", self.learning_rate)?;
        check_not_negative("weight decay", self.weight_decay)?;
        if !(0.0..1.0).contains(&self.momentum) {
            return Err(Error::invalid("momentum", self.momentum, "must lie in 0 <= m < 1"));
        }
        if !(0.0..=1.0).contains(&self.dampening) {
            return Err(Error::invalid("dampening", self.dampening, "must lie in 0 ..= 1"));
        }
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            let value = format!("momentum {}, dampening {}", self.momentum, self.dampening);
            return Err(Error::invalid("nesterov", value, "needs momentum and no dampening"));
        }
        Ok(())
    }

    /// Step number `step` of a run, counted from 1.
    pub(super) fn kernel_step(&self, step: u64, gradient_scale: f64) -> SgdStep {
        SgdStep {
            learning_rate: self.learning_rate,
            momentum: self.momentum,
            dampening: self.dampening,
            nesterov: self.nesterov,
            weight_decay: self.weight_decay,
            step,
            gradient_scale,
        }
    }
}

/// Stochastic gradient descent with momentum, as PyTorch forms it: the rate multiplies the buffer
/// and does not enter it, and the buffer starts as the first gradient.
///
/// The buffer is in the accumulator dtype, and each parameter counts its own steps: one that had
/// no gradient in a step is left as it is, value, buffer and count.
///
/// ```
/// use sneppx::{Tensor, cpu::Cpu, optim::{Optimizer, Sgd, SgdOptions}};
/// let device = Cpu::with_threads(1)?;
/// let x = Tensor::from_slice(&device, &[3.0f32], &[1])?.requires_grad()?;
/// let leaf = x.leaf().expect("a leaf").clone();
/// let options = SgdOptions { learning_rate: 0.1, ..SgdOptions::default() };
/// let mut optimizer = Sgd::of(vec![leaf.clone()], options)?;
/// x.mul(&x)?.sum_all()?.backward()?;
/// optimizer.step()?;
/// assert!((leaf.value()?.item()? - 2.4).abs() < 1e-6);
/// # Ok::<(), sneppx::Error>(())
/// ```
#[derive(Debug)]
pub struct Sgd<D: Device> {
    groups: Vec<ParamGroup<D>>,
    options: SgdOptions,
    states: States<D>,
}

impl<D: Device> Sgd<D> {
    /// What is saved of each parameter where there is momentum; without, just its count of steps.
    pub const STATE: [&'static str; 1] = ["momentum"];

    /// An optimizer of all `leaves` with the decay in `options`.
    ///
    /// # Errors
    /// Settings that make no sense; a parameter listed twice.
    pub fn of(leaves: Vec<Arc<Leaf<D>>>, options: SgdOptions) -> Result<Self> {
        Sgd::new(vec![ParamGroup::new(leaves, options.weight_decay)], options)
    }

    /// An optimizer of `groups`.
    ///
    /// # Errors
    /// Settings that make no sense; a parameter listed twice.
    pub fn new(groups: Vec<ParamGroup<D>>, options: SgdOptions) -> Result<Self> {
        check_groups(&groups)?;
        options.check()?;
        let names: &[_] = if options.momentum == 0.0 { &[] } else { &Self::STATE };
        Ok(Sgd { groups, options, states: States::new(names) })
    }
}

impl<D: Device> Optimizer<D> for Sgd<D> {
    fn leaves(&self) -> Vec<Arc<Leaf<D>>> {
        all_leaves(&self.groups)
    }

    fn step_scaled(&mut self, gradient_scale: f64) -> Result<()> {
        let options = self.options;
        self.states.step(&self.groups, gradient_scale, |group, update| {
            let Update { device, step, param, grad, state } = update;
            let options = SgdOptions {
                learning_rate: options.learning_rate * group.learning_rate_scale,
                weight_decay: group.weight_decay,
                ..options
            };
            let step = options.kernel_step(step, gradient_scale);
            device.sgd_step(step, param, grad, state.first().map(|buffer| buffer.view()))
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
