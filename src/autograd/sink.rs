//! Where the gradients of leaves go.

use std::sync::Arc;

use sneppx_contract::{Device, Result, Store};

use crate::tensor::{Leaf, Tensor};

/// Receives the gradients of leaves during a reverse walk.
///
/// A sink says where each contribution is written, so that gradients can be formed in place in
/// whatever memory a strategy keeps them, and hears of each leaf once, when its last contribution
/// of the walk is in.
pub trait GradSink<D: Device> {
    /// Where the next contribution to `leaf` goes: a gapless tensor of its shape and dtype, and
    /// whether the contribution replaces its values or is added.
    ///
    /// # Errors
    /// The sink cannot take a gradient for this leaf.
    fn target(&mut self, leaf: &Arc<Leaf<D>>) -> Result<(Tensor<D>, Store)>;

    /// The gradient of `leaf` is complete. Heard once for every leaf of the graph, also where no
    /// operation gave it anything.
    ///
    /// # Errors
    /// Whatever the sink does with it.
    fn ready(&mut self, leaf: &Arc<Leaf<D>>) -> Result<()>;
}

/// The usual sink: each leaf keeps its own gradient, and later walks add to it until
/// [`Leaf::clear_grad`].
#[derive(Debug)]
pub struct LeafGrads<D: Device> {
    device: D,
}

impl<D: Device> LeafGrads<D> {
    /// A sink whose leaves allocate on `device`.
    pub fn new(device: &D) -> Self {
        LeafGrads { device: device.clone() }
    }
}

impl<D: Device> GradSink<D> for LeafGrads<D> {
    fn target(&mut self, leaf: &Arc<Leaf<D>>) -> Result<(Tensor<D>, Store)> {
        leaf.grad_target(&self.device)
    }

    fn ready(&mut self, _: &Arc<Leaf<D>>) -> Result<()> {
        Ok(())
    }
}
