//! What every optimizer can do.

use std::sync::Arc;

use sneppx_contract::{Device, Result};

use super::OptimizerState;
use crate::tensor::Leaf;

/// Changes parameters along their gradients.
pub trait Optimizer<D: Device> {
    /// Every parameter it changes, in the order of its groups.
    fn leaves(&self) -> Vec<Arc<Leaf<D>>>;

    /// One step with every gradient multiplied by `gradient_scale` first, for clipping and
    /// unscaling. A parameter without a gradient keeps its value and its state untouched; a frozen
    /// one too. Values are written in place, so whoever holds the same memory sees them change.
    ///
    /// # Errors
    /// A scale that is not finite; a gradient of another shape or dtype than its parameter; a value
    /// that was taken away. Nothing has changed then. Whatever else the device reports.
    fn step_scaled(&mut self, gradient_scale: f64) -> Result<()>;

    /// The learning rate of the next step.
    fn learning_rate(&self) -> f64;

    /// Sets the learning rate of later steps.
    ///
    /// # Errors
    /// A rate that is negative or not finite.
    fn set_learning_rate(&mut self, learning_rate: f64) -> Result<()>;

    /// What it remembers of every parameter that has taken a step, in the order of its groups.
    fn state(&self) -> Vec<OptimizerState<D>>;

    /// Puts copies of a saved state in place of this one. Parameters that are not in it start
    /// afresh.
    ///
    /// # Errors
    /// A name that is no parameter's or two parameters', or that is there twice; tensors that this
    /// optimizer does not keep, or of another shape or dtype. Nothing changes then.
    fn load_state(&mut self, state: Vec<OptimizerState<D>>) -> Result<()>;

    /// One step.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn step(&mut self) -> Result<()> {
        self.step_scaled(1.0)
    }

    /// Forgets every gradient.
    fn zero_grad(&self) {
        self.leaves().iter().for_each(|leaf| leaf.clear_grad());
    }
}
