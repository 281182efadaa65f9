//! The reverse walk.
//!
//! First the reachable graph is discovered, so that a leaf's gradient is known to be complete at
//! its last contribution and not only at the end of the walk. Then nodes are taken in descending
//! order of creation: every user of a value comes before the value itself. Both passes are loops; a
//! graph may be as deep as memory allows.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use sneppx_contract::{BinaryOp, Device, Error, Result, Store, ViewOf};

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
    /// Nodes not yet visited, by number, each with what has been collected of its gradient.
    open: BTreeMap<u64, Open<D>>,
    /// Contributions a leaf still waits for.
    awaited: HashMap<LeafId, usize>,
}

/// A node that the walk has yet to visit.
struct Open<D: Device> {
    node: Arc<Node<D>>,
    grad: Option<Gradient<D>>,
}

fn walk<D: Device>(root: &Arc<Node<D>>, grad: Tensor<D>, sink: &mut dyn GradSink<D>) -> Result<()> {
    let device = grad.device().clone();
    let mut walk = Walk { device, sink, open: BTreeMap::new(), awaited: HashMap::new() };
    walk.discover(root);
    walk.collect(root, Gradient::new(grad, false))?;
    if let Some(leaf) = root.as_leaf() {
        return walk.settle(leaf);
    }
    while let Some((_, Open { node, grad })) = walk.open.pop_last() {
        let rule = node.take_rule();
        // Without a gradient no rule above gave one: the leaves below wait for nothing from here.
        if let Some(grad) = grad {
            let Some(rule) = rule else {
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
        }
        for leaf in node.inputs().iter().flatten().filter_map(|node| node.as_leaf()) {
            walk.settle(leaf)?;
        }
    }
    Ok(())
}

impl<D: Device> Walk<'_, D> {
    /// Opens every node below `root` and counts how many contributions each leaf will get.
    fn discover(&mut self, root: &Arc<Node<D>>) {
        if let Some(leaf) = root.as_leaf() {
            self.awaited.insert(leaf.id(), 1);
            return;
        }
        self.open.insert(root.number(), Open { node: root.clone(), grad: None });
        let mut queue = vec![root.clone()];
        while let Some(node) = queue.pop() {
            for input in node.inputs().iter().flatten() {
                if let Some(leaf) = input.as_leaf() {
                    *self.awaited.entry(leaf.id()).or_insert(0) += 1;
                } else if let Entry::Vacant(place) = self.open.entry(input.number()) {
                    place.insert(Open { node: input.clone(), grad: None });
                    queue.push(input.clone());
                }
            }
        }
    }

    /// Where the gradient of a computed node is collected.
    fn slot(&mut self, node: &Node<D>) -> Result<&mut Option<Gradient<D>>> {
        match self.open.get_mut(&node.number()) {
            Some(open) => Ok(&mut open.grad),
            None => Err(Error::Internal(format!("{node:?} got a gradient after its turn"))),
        }
    }

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
        let sum = match self.slot(node)?.take() {
            None => grad,
            Some(before) if before.is_exclusive() => {
                self.device.scaled_add(1.0, tensor.view(), 1.0, before.tensor().view())?;
                before
            }
            Some(before) => {
                let sum = before.tensor().empty_like()?;
                let (left, right) = (before.tensor().view(), tensor.view());
                self.device.binary(BinaryOp::Add, left, right, sum.view())?;
                Gradient::new(sum, true)
            }
        };
        *self.slot(node)? = Some(sum);
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

    /// Gapless memory for a contribution to `node` that a rule writes itself, and how.
    fn target(&mut self, node: &Arc<Node<D>>) -> Result<(Tensor<D>, Store)> {
        if let Some(leaf) = node.as_leaf() {
            return self.sink.target(leaf);
        }
        let Some(before) = self.slot(node)?.take() else {
            let out = Tensor::empty(&self.device, node.dtype(), *node.shape())?;
            return Ok((out, Store::Overwrite));
        };
        if before.is_exclusive() && before.tensor().layout().is_contiguous() {
            return Ok((before.tensor().clone(), Store::Add));
        }
        let copy = before.tensor().empty_like()?;
        self.device.copy(before.tensor().view(), copy.view())?;
        Ok((copy, Store::Add))
    }

    /// Puts back what [`Walk::target`] handed out.
    fn replace(&mut self, node: &Arc<Node<D>>, grad: Tensor<D>) -> Result<()> {
        if node.as_leaf().is_none() {
            *self.slot(node)? = Some(Gradient::new(grad, true));
        }
        Ok(())
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
        self.walk.replace(&node, target)
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
        local: &[Option<Arc<Leaf<D>>>],
    ) -> Result<()> {
        let Some(origin) = root.origin() else { return Ok(()) };
        let stands_for = local.iter().zip(self.nodes);
        let local =
            stands_for.filter_map(|(leaf, node)| Some((leaf.as_ref()?.id(), node.clone()?)));
        let mut inner = Forwarded { local: local.collect(), walk: &mut *self.walk };
        walk(origin, grad.detach(), &mut inner)
    }
}

/// Passes contributions of an inner walk on to the outer one, which says when a leaf is complete.
struct Forwarded<'w, 's, D: Device> {
    walk: &'w mut Walk<'s, D>,
    /// Leaves of the inner graph alone, and the nodes of the outer one that they stand for. Adding
    /// to those at once, in the order of the inner walk, gives the bits that the plain graph would.
    local: HashMap<LeafId, Arc<Node<D>>>,
}

impl<D: Device> GradSink<D> for Forwarded<'_, '_, D> {
    fn target(&mut self, leaf: &Arc<Leaf<D>>) -> Result<(Tensor<D>, Store)> {
        let Some(node) = self.local.get(&leaf.id()) else { return self.walk.sink.target(leaf) };
        let (target, store) = self.walk.target(node)?;
        self.walk.replace(node, target.clone())?;
        Ok((target, store))
    }

    fn ready(&mut self, _: &Arc<Leaf<D>>) -> Result<()> {
        Ok(())
    }
}
