//! Parameters, and how a model is walked for them.

use std::collections::HashSet;
use std::sync::Arc;

use sneppx_contract::{Device, Result};

use super::Pass;
use crate::tensor::{Leaf, Tensor};

/// A named cell that holds a tensor. Clones are the same cell: that is how weights are tied.
#[derive(Clone, Debug)]
pub struct Param<D: Device> {
    leaf: Arc<Leaf<D>>,
}

impl<D: Device> Param<D> {
    /// A trainable parameter with this value.
    pub fn new(name: impl Into<String>, value: Tensor<D>) -> Self {
        Param { leaf: Leaf::new(name, value, true) }
    }

    /// The value, as part of the graph while recording is on.
    ///
    /// # Errors
    /// The value was taken away by a strategy and not put back.
    pub fn tensor(&self) -> Result<Tensor<D>> {
        self.leaf.tensor()
    }

    /// The cell itself.
    pub fn leaf(&self) -> &Arc<Leaf<D>> {
        &self.leaf
    }
}

/// Something with parameters.
///
/// Derive it: fields are visited in declaration order under their names, elements of a `Vec` under
/// their index. Fields of plain number, `bool` or `String` type are passed over; others that hold
/// no parameters need `#[module(skip)]`.
///
/// ```
/// use sneppx::{Device, nn::{Linear, Module}};
///
/// #[derive(Module)]
/// struct Perceptron<D: Device> {
///     hidden: Linear<D>,
///     out: Linear<D>,
/// }
/// ```
pub trait Module<D: Device> {
    /// Calls `visitor` with the dotted path (below `path`) of every parameter, in declaration
    /// order. A tied parameter is visited under each of its paths.
    fn visit(&self, path: &str, visitor: &mut dyn FnMut(&str, &Param<D>));

    /// Every parameter once, under its first path.
    fn named_parameters(&self) -> Vec<(String, Param<D>)> {
        let mut seen = HashSet::new();
        let mut named = Vec::new();
        self.visit("", &mut |path, param| {
            if seen.insert(param.leaf().id()) {
                named.push((path.to_owned(), param.clone()));
            }
        });
        named
    }

    /// The cell of every parameter once, in the order of [`Module::named_parameters`].
    fn parameters(&self) -> Vec<Arc<Leaf<D>>> {
        self.named_parameters().into_iter().map(|(_, param)| param.leaf().clone()).collect()
    }

    /// The number of values in all parameters; tied ones count once.
    fn parameter_count(&self) -> usize {
        self.parameters().iter().map(|leaf| leaf.shape().numel()).sum()
    }

    /// Freezes or unfreezes every parameter.
    fn set_trainable(&self, trainable: bool) {
        self.parameters().iter().for_each(|leaf| leaf.set_trainable(trainable));
    }
}

/// A module that maps one tensor to one.
pub trait Layer<D: Device>: Module<D> + Send + Sync + 'static {
    /// The result for `x`.
    ///
    /// # Errors
    /// A shape or dtype that does not suit the layer.
    fn forward(&self, x: &Tensor<D>, pass: &Pass) -> Result<Tensor<D>>;
}

/// `name` below `path`.
pub fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<D: Device> Module<D> for Param<D> {
    fn visit(&self, path: &str, visitor: &mut dyn FnMut(&str, &Param<D>)) {
        visitor(path, self);
    }
}

impl<D: Device, M: Module<D>> Module<D> for Vec<M> {
    fn visit(&self, path: &str, visitor: &mut dyn FnMut(&str, &Param<D>)) {
        for (index, module) in self.iter().enumerate() {
            module.visit(&join_path(path, &index.to_string()), visitor);
        }
    }
}

impl<D: Device, M: Module<D>> Module<D> for Option<M> {
    fn visit(&self, path: &str, visitor: &mut dyn FnMut(&str, &Param<D>)) {
        if let Some(module) = self {
            module.visit(path, visitor);
        }
    }
}

impl<D: Device, M: Module<D>> Module<D> for Arc<M> {
    fn visit(&self, path: &str, visitor: &mut dyn FnMut(&str, &Param<D>)) {
        M::visit(self, path, visitor);
    }
}
