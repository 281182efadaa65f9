//! The reverse walk.
//!
//! First the reachable graph is counted, so that a leaf's gradient is known to be complete at its
//! last contribution and not only at the end of the walk. Then nodes are taken in descending order
//! of creation: every user of a value comes before the value itself. Both passes are loops; a graph
//! may be as deep as memory allows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use sneppx_contract::{Device, Error, Result, Store, ViewOf};

use super::sink::{GradSink, LeafGrads};
use crate::tensor::{Accumulate, Gradient, Leaf, LeafId, Node, Recording, Tensor};

impl<D: Device> Tensor<D> {
    /// Computes the gradient of this scalar with respect to every leaf it depends on and leaves it
    /// there, adding to what earlier calls left. The graph is used up.
    ///
    /// # Errors
    /// This tensor is not a scalar, or depends on no leaf, or its graph was used before.
    pub fn backward(&self) -> Result<()> {
        self.backward_into(&mut LeafGrads::new(self.device()))
    }

    /// Like [`Tensor::backward`], with gradients handed to `sink`.
    ///
    /// # Errors
    /// As [`Tensor::backward`], and whatever the sink returns.
    pub fn backward_into(&self, sink: &mut dyn GradSink<D>) -> Result<()> {
        if self.numel() != 1 {
            let detail = format!(
                "{:?} is not one value; reduce it first or use `backward_with`",
                self.shape()
            );
            return Err(Error::shape("backward", detail));
        }
        let one = Tensor::full(self.device(), self.dtype(), self.shape(), 1.0)?;
        self.backward_with(one, sink)
    }

    /// Like [`Tensor::backward_into`], for a result of any shape with a given gradient.
    ///
    /// # Errors
    /// `grad` has another shape or dtype; as [`Tensor::backward_into`].
    pub fn backward_with(&self, grad: Tensor<D>, sink: &mut dyn GradSink<D>) -> Result<()> {
        if grad.shape() != self.shape() {
            return Err(Error::shapes_differ(
                "backward",
                "the gradient",
                grad.shape(),
                "the result",
                self.shape(),
            ));
        }
        if grad.dtype() != self.dtype() {
            return Err(Error::dtype("backward", self.dtype().name(), grad.dtype()));
        }
        let Some(root) = self.origin() else {
            return Err(Error::invalid(
                "backward",
                format!("{self:?}"),
                "the result depends on no leaf that needs a gradient (was it computed under \
                 `no_grad`, or detached?)",
            ));
        };
        let _guard = Recording::set(false);
        walk(root, grad.detach(), sink)
    }
}

/// Gradients on the way through the graph.
struct Walk<'s, D: Device> {
    device: D,
    sink: &'s mut dyn GradSink<D>,
    /// Gradients of nodes not yet visited, by number.
    open: BTreeMap<u64, (Arc<Node<D>>, Gradient<D>)>,
    /// Contributions a leaf still waits for.
    awaited: HashMap<LeafId, usize>,
}

fn walk<D: Device>(root: &Arc<Node<D>>, grad: Tensor<D>, sink: &mut dyn GradSink<D>) -> Result<()> {
    let mut walk = Walk {
        device: grad.device().clone(),
        sink,
        open: BTreeMap::new(),
        awaited: count_contributions(root),
    };
    walk.collect(root, Gradient::new(grad, false))?;
    if let Some(leaf) = root.as_leaf() {
        return walk.settle(&leaf.clone());
    }
    while let Some((_, (node, grad))) = walk.open.pop_last() {
        let Some(rule) = node.take_rule() else {
            return Err(Error::invalid(
                "backward",
                "graph",
                "this graph was walked before; run the forward pass again",
            ));
        };
        let name = rule.name();
        let mut inputs = Inputs { walk: &mut walk, nodes: node.inputs() };
        rule.backward(grad, &mut inputs)
            .map_err(|error| error.at(format!("gradient of {name}")))?;
        for leaf in node.inputs().iter().flatten().filter_map(|node| node.as_leaf()) {
            walk.settle(leaf)?;
        }
    }
    Ok(())
}

/// How many contributions each reachable leaf will get.
fn count_contributions<D: Device>(root: &Arc<Node<D>>) -> HashMap<LeafId, usize> {
    let mut awaited = HashMap::new();
    let mut seen = HashSet::new();
    let mut queue = vec![root.clone()];
    if let Some(leaf) = root.as_leaf() {
        awaited.insert(leaf.id(), 1);
    }
    while let Some(node) = queue.pop() {
        for input in node.inputs().iter().flatten() {
            match input.as_leaf() {
                Some(leaf) => *awaited.entry(leaf.id()).or_insert(0) += 1,
                None if seen.insert(input.number()) => queue.push(input.clone()),
                None => {}
            }
        }
    }
    awaited
}

impl<D: Device> Walk<'_, D> {
    /// Adds a contribution to the gradient of `node`.
    fn collect(&mut self, node: &Arc<Node<D>>, grad: Gradient<D>) -> Result<()> {
        let tensor = grad.tensor();
        if tensor.shape() != node.shape() || tensor.dtype() != node.dtype() {
            return Err(Error::Internal(format!(
                "a rule gave {tensor:?} for a value of {:?}, {}",
                node.shape(),
                node.dtype()
            )));
        }
        if let Some(leaf) = node.as_leaf() {
            let (target, store) = self.sink.target(leaf)?;
            let beta = if store == Store::Add { 1.0 } else { 0.0 };
            return self.device.scaled_add(1.0, tensor.view(), beta, target.view());
        }
        match self.open.remove(&node.number()) {
            None => {
                self.open.insert(node.number(), (node.clone(), grad));
            }
            Some((_, before)) => {
                let sum = if before.is_exclusive() {
                    self.device.scaled_add(1.0, tensor.view(), 1.0, before.tensor().view())?;
                    before
                } else {
                    let sum = before.tensor().empty_like()?;
                    let (left, right) = (before.tensor().view(), tensor.view());
                    self.device.binary(sneppx_contract::BinaryOp::Add, left, right, sum.view())?;
                    Gradient::new(sum, true)
                };
                self.open.insert(node.number(), (node.clone(), sum));
            }
        }
        Ok(())
    }

    /// Notes that one rule has made its contribution to `leaf`.
    fn settle(&mut self, leaf: &Arc<Leaf<D>>) -> Result<()> {
        let Some(left) = self.awaited.get_mut(&leaf.id()) else {
            return Err(Error::Internal(format!("{} was not counted", leaf.name())));
        };
        *left -= 1;
        if *left == 0 { self.sink.ready(leaf) } else { Ok(()) }
    }

    /// Memory for a contribution to `node` that a rule writes itself, and how.
    fn target(&mut self, node: &Arc<Node<D>>) -> Result<(Tensor<D>, Store)> {
        if let Some(leaf) = node.as_leaf() {
            return self.sink.target(leaf);
        }
        let Some((_, before)) = self.open.remove(&node.number()) else {
            let out = Tensor::empty(&self.device, node.dtype(), *node.shape())?;
            return Ok((out, Store::Overwrite));
        };
        if before.is_exclusive() {
            return Ok((before.tensor().clone(), Store::Add));
        }
        let copy = before.tensor().empty_like()?;
        self.device.copy(before.tensor().view(), copy.view())?;
        Ok((copy, Store::Add))
    }

    /// Puts back what [`Walk::target`] handed out.
    fn replace(&mut self, node: &Arc<Node<D>>, grad: Tensor<D>) {
        if node.as_leaf().is_none() {
            self.open.insert(node.number(), (node.clone(), Gradient::new(grad, true)));
        }
    }
}

/// What one rule sees of the walk.
struct Inputs<'w, 's, 'n, D: Device> {
    walk: &'w mut Walk<'s, D>,
    nodes: &'n [Option<Arc<Node<D>>>],
}

impl<D: Device> Inputs<'_, '_, '_, D> {
    fn node(&self, input: usize) -> Option<&Arc<Node<D>>> {
        self.nodes.get(input)?.as_ref()
    }
}

impl<D: Device> Accumulate<D> for Inputs<'_, '_, '_, D> {
    fn needs(&self, input: usize) -> bool {
        self.node(input).is_some()
    }

    fn add(&mut self, input: usize, grad: Tensor<D>) -> Result<()> {
        let Some(node) = self.node(input).cloned() else { return Ok(()) };
        self.walk.collect(&node, Gradient::new(grad.detach(), false))
    }

    fn give(&mut self, input: usize, grad: Tensor<D>) -> Result<()> {
        let Some(node) = self.node(input).cloned() else { return Ok(()) };
        self.walk.collect(&node, Gradient::new(grad.detach(), true))
    }

    fn write(
        &mut self,
        input: usize,
        compute: &mut dyn FnMut(ViewOf<'_, D>, Store) -> Result<()>,
    ) -> Result<()> {
        let Some(node) = self.node(input).cloned() else { return Ok(()) };
        let (target, store) = self.walk.target(&node)?;
        compute(target.view(), store)?;
        self.walk.replace(&node, target);
        Ok(())
    }

    fn fresh(
        &mut self,
        input: usize,
        compute: &mut dyn FnMut(ViewOf<'_, D>) -> Result<()>,
    ) -> Result<()> {
        let device = self.walk.device.clone();
        self.write(input, &mut |target, store| match store {
            Store::Overwrite => compute(target),
            Store::Add => {
                let shape = *target.layout.shape();
                let part = Tensor::empty(&device, target.dtype(), shape)?;
                compute(part.view())?;
                device.scaled_add(1.0, part.view(), 1.0, target)
            }
        })
    }

    fn backward_through(
        &mut self,
        root: &Tensor<D>,
        grad: Tensor<D>,
        local: &[Arc<Leaf<D>>],
    ) -> Result<()> {
        let Some(origin) = root.origin() else { return Ok(()) };
        let device = self.walk.device.clone();
        let mut inner = Forwarded { sink: &mut *self.walk.sink, local, device };
        walk(origin, grad.detach(), &mut inner)
    }
}

/// Passes contributions of an inner walk on; the outer walk says when a leaf is complete.
struct Forwarded<'s, D: Device> {
    sink: &'s mut dyn GradSink<D>,
    /// Leaves of the inner graph alone; they keep their gradients.
    local: &'s [Arc<Leaf<D>>],
    device: D,
}

impl<D: Device> GradSink<D> for Forwarded<'_, D> {
    fn target(&mut self, leaf: &Arc<Leaf<D>>) -> Result<(Tensor<D>, Store)> {
        if self.local.iter().any(|local| local.id() == leaf.id()) {
            return leaf.grad_target(&self.device);
        }
        self.sink.target(leaf)
    }

    fn ready(&mut self, _: &Arc<Leaf<D>>) -> Result<()> {
        Ok(())
    }
}
