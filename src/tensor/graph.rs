//! What a computed tensor remembers: its inputs, and a rule that knows the derivative.
//!
//! The graph is defined by running. Nodes are numbered as they are made, so an input's number is
//! below its user's, and descending numbers are the order of the reverse walk. Nothing is global
//! but each thread's recording flag.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sneppx_contract::{DType, Device, Result, Shape, Store, ViewOf};

use super::{Leaf, Tensor};

/// How to differentiate one operation.
///
/// A rule holds what it needs of the forward pass, detached. It is used once and dropped, so saved
/// memory goes back to the pool as the walk passes.
pub trait Rule<D: Device>: Send + Sync {
    /// The operation's name, for messages.
    fn name(&self) -> &'static str;

    /// Given the gradient of the result, contributes to the gradient of each input that
    /// [needs](Accumulate::needs) one.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()>;
}

/// Where a rule leaves the gradients of its inputs, numbered as they were recorded.
pub trait Accumulate<D: Device> {
    /// Whether input `input` wants a gradient.
    fn needs(&self, input: usize) -> bool;

    /// Adds `grad` to the gradient of input `input`. The memory may be shared with others and is
    /// not written.
    fn add(&mut self, input: usize, grad: Tensor<D>) -> Result<()>;

    /// Lets `compute` write or add a contribution straight where it is collected.
    fn write(
        &mut self,
        input: usize,
        compute: &mut dyn FnMut(ViewOf<'_, D>, Store) -> Result<()>,
    ) -> Result<()>;

    /// Lets `compute` write a contribution, always overwriting what it is given.
    fn fresh(
        &mut self,
        input: usize,
        compute: &mut dyn FnMut(ViewOf<'_, D>) -> Result<()>,
    ) -> Result<()>;

    /// Adds a tensor that nobody else holds; its memory may be written later.
    fn give(&mut self, input: usize, grad: Tensor<D>) -> Result<()>;

    /// Walks another graph from `root`, into the same leaves. `local[i]`, where there is one, is a
    /// leaf of that graph alone that stands for input `i` of this rule.
    fn backward_through(
        &mut self,
        root: &Tensor<D>,
        grad: Tensor<D>,
        local: &[Option<Arc<Leaf<D>>>],
    ) -> Result<()>;
}

/// The gradient of a node's result, complete.
pub struct Gradient<D: Device> {
    tensor: Tensor<D>,
    exclusive: bool,
}

impl<D: Device> Gradient<D> {
    /// `exclusive` says that nobody else holds the memory.
    pub fn new(tensor: Tensor<D>, exclusive: bool) -> Self {
        Gradient { tensor, exclusive }
    }

    /// The values.
    pub fn tensor(&self) -> &Tensor<D> {
        &self.tensor
    }

    /// Whether nobody else holds the memory.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// A tensor of this shape that may be overwritten while this gradient is read element by
    /// element: its own memory where nobody else holds it.
    pub fn reusable(&self) -> Result<Tensor<D>> {
        if self.exclusive && self.tensor.layout().is_contiguous() {
            return Ok(self.tensor.clone());
        }
        self.tensor.empty_like()
    }
}

/// One value of the graph: computed by an operation, or a leaf.
pub struct Node<D: Device> {
    number: u64,
    shape: Shape,
    dtype: DType,
    kind: Kind<D>,
}

enum Kind<D: Device> {
    Leaf(Arc<Leaf<D>>),
    Computed { inputs: Vec<Option<Arc<Node<D>>>>, rule: Mutex<Option<Box<dyn Rule<D>>>> },
}

impl<D: Device> Node<D> {
    /// A node that stands for `leaf`.
    pub(crate) fn leaf(leaf: Arc<Leaf<D>>) -> Arc<Self> {
        let (shape, dtype) = (*leaf.shape(), leaf.dtype());
        Arc::new(Node { number: next_number(), shape, dtype, kind: Kind::Leaf(leaf) })
    }

    /// The order of creation.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The sizes of the value.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The dtype of the value.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The leaf this node stands for, if it is one.
    pub fn as_leaf(&self) -> Option<&Arc<Leaf<D>>> {
        match &self.kind {
            Kind::Leaf(leaf) => Some(leaf),
            Kind::Computed { .. } => None,
        }
    }

    /// The nodes of the inputs; `None` for those that need no gradient.
    pub fn inputs(&self) -> &[Option<Arc<Node<D>>>] {
        match &self.kind {
            Kind::Leaf(_) => &[],
            Kind::Computed { inputs, .. } => inputs,
        }
    }

    /// Takes the rule out; `None` for a leaf and for a node whose rule was used already.
    pub fn take_rule(&self) -> Option<Box<dyn Rule<D>>> {
        match &self.kind {
            Kind::Leaf(_) => None,
            Kind::Computed { rule, .. } => {
                rule.lock().unwrap_or_else(PoisonError::into_inner).take()
            }
        }
    }
}

impl<D: Device> Drop for Node<D> {
    /// Takes long chains apart in a loop: dropping node by node would recurse as deep as the graph.
    fn drop(&mut self) {
        let Kind::Computed { inputs, .. } = &mut self.kind else { return };
        let mut orphans: Vec<Arc<Node<D>>> = inputs.drain(..).flatten().collect();
        while let Some(orphan) = orphans.pop() {
            if let Some(mut node) = Arc::into_inner(orphan)
                && let Kind::Computed { inputs, .. } = &mut node.kind
            {
                orphans.extend(inputs.drain(..).flatten());
            }
        }
    }
}

impl<D: Device> fmt::Debug for Node<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({}, {:?})", self.number, self.shape)
    }
}

/// Attaches to `out` how it follows from `inputs`, if recording is on and one of them needs a
/// gradient. `rule` is not called otherwise.
pub fn record<D: Device>(
    out: Tensor<D>,
    inputs: &[&Tensor<D>],
    rule: impl FnOnce() -> Box<dyn Rule<D>>,
) -> Tensor<D> {
    if !is_recording() || !inputs.iter().any(|input| input.needs_grad()) {
        return out.detach();
    }
    let node = Node {
        number: next_number(),
        shape: *out.shape(),
        dtype: out.dtype(),
        kind: Kind::Computed {
            inputs: inputs.iter().map(|input| input.origin().cloned()).collect(),
            rule: Mutex::new(Some(rule())),
        },
    };
    out.with_origin(Some(Arc::new(node)))
}

/// Whether operations of this thread are recorded.
pub fn is_recording() -> bool {
    RECORDING.get()
}

/// Sets this thread's recording flag until it is dropped.
#[derive(Debug)]
pub struct Recording {
    before: bool,
}

impl Recording {
    /// Switches recording on or off.
    #[must_use = "the flag goes back when the guard is dropped"]
    pub fn set(recording: bool) -> Self {
        Recording { before: RECORDING.replace(recording) }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDING.set(self.before);
    }
}

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(true) };
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
