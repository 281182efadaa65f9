//! Activation checkpointing: a part of the model as one node that keeps its inputs alone and runs
//! forward again when its derivative is wanted (Chen et al., 2016).

use std::sync::Arc;

use sneppx_contract::{Device, Result};

use crate::tensor::{Accumulate, Gradient, Leaf, Node, Recording, Rule, Tensor, record};

/// Runs `body` without recording and repeats it, recorded, in the backward walk.
///
/// `leaves` are the parameters that `body` uses. The second run must compute what the first did:
/// randomness has to come from keys, as [`Tensor::dropout`] has it, and not from state.
///
/// # Errors
/// Whatever `body` returns.
pub fn recompute<D: Device>(
    inputs: &[&Tensor<D>],
    leaves: &[Arc<Leaf<D>>],
    body: impl Fn(&[Tensor<D>]) -> Result<Tensor<D>> + Send + Sync + 'static,
) -> Result<Tensor<D>> {
    let values: Vec<Tensor<D>> = inputs.iter().map(|input| input.detach()).collect();
    let output = {
        let _guard = Recording::set(false);
        body(&values)?.detach()
    };
    let mut all: Vec<Tensor<D>> = inputs.iter().map(|&input| input.clone()).collect();
    for leaf in leaves.iter().filter(|leaf| leaf.is_trainable()) {
        all.push(output.detach().with_origin(Some(Node::leaf(leaf.clone()))));
    }
    let wanted = inputs.iter().map(|input| input.needs_grad()).collect();
    Ok(record(output, &all.iter().collect::<Vec<_>>(), || {
        Box::new(Recompute { values, wanted, body: Box::new(body) })
    }))
}

/// The part of the model that is run again.
type Body<D> = dyn Fn(&[Tensor<D>]) -> Result<Tensor<D>> + Send + Sync;

struct Recompute<D: Device> {
    values: Vec<Tensor<D>>,
    wanted: Vec<bool>,
    body: Box<Body<D>>,
}

impl<D: Device> Rule<D> for Recompute<D> {
    fn name(&self) -> &'static str {
        "recompute"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let mut local = Vec::new();
        let mut values = Vec::with_capacity(self.values.len());
        for (value, &wanted) in self.values.iter().zip(&self.wanted) {
            let value = if wanted { value.requires_grad()? } else { value.clone() };
            local.push(value.leaf().cloned());
            values.push(value);
        }
        let output = {
            let _guard = Recording::set(true);
            (self.body)(&values)?
        };
        inputs.backward_through(&output, grad.tensor().clone(), &local)
    }
}
