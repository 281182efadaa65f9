//! Leaves of the graph: values that are not computed but given, and the gradients they collect.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sneppx_contract::{DType, Device, Error, Result, Shape, Store};

use super::{Node, Tensor, is_recording};

/// Names a leaf for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafId(u64);

/// A value that gradients are wanted for: a parameter, or a tensor made by
/// [`Tensor::requires_grad`].
///
/// The leaf outlives its memory: a strategy may take the value away between uses
/// ([`Leaf::release`]) and put it back, and may choose where gradients are collected
/// ([`Leaf::set_grad_home`]), for instance in one flat buffer for many leaves.
pub struct Leaf<D: Device> {
    id: LeafId,
    name: String,
    shape: Shape,
    dtype: DType,
    trainable: AtomicBool,
    state: Mutex<State<D>>,
}

struct State<D: Device> {
    value: Option<Tensor<D>>,
    /// Where the gradient is to be written, if somebody chose a place.
    home: Option<Tensor<D>>,
    /// The gradient collected so far.
    grad: Option<Tensor<D>>,
}

impl<D: Device> Leaf<D> {
    /// A leaf with a value. `name` is used in messages; frozen leaves collect no gradient.
    pub fn new(name: impl Into<String>, value: Tensor<D>, trainable: bool) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (shape, dtype) = (*value.shape(), value.dtype());
        Arc::new(Leaf {
            id: LeafId(NEXT.fetch_add(1, Ordering::Relaxed)),
            name: name.into(),
            shape,
            dtype,
            trainable: AtomicBool::new(trainable),
            state: Mutex::new(State { value: Some(value), home: None, grad: None }),
        })
    }

    /// This leaf's name in the process.
    pub fn id(&self) -> LeafId {
        self.id
    }

    /// The name it was given, usually the path of a parameter.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sizes of its value.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The dtype of its value.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether gradients are collected.
    pub fn is_trainable(&self) -> bool {
        self.trainable.load(Ordering::Relaxed)
    }

    /// Freezes or unfreezes the leaf for later uses.
    pub fn set_trainable(&self, trainable: bool) {
        self.trainable.store(trainable, Ordering::Relaxed);
    }

    /// The value as a tensor of the graph: part of it while recording is on and the leaf is
    /// trainable.
    ///
    /// # Errors
    /// The value was released and not put back.
    pub fn tensor(self: &Arc<Self>) -> Result<Tensor<D>> {
        let value = self.value()?;
        if !is_recording() || !self.is_trainable() {
            return Ok(value);
        }
        Ok(value.with_origin(Some(Node::leaf(self.clone()))))
    }

    /// The value alone.
    ///
    /// # Errors
    /// The value was released and not put back.
    pub fn value(&self) -> Result<Tensor<D>> {
        self.lock().value.clone().ok_or_else(|| self.released())
    }

    /// Puts another value in place; shape and dtype must be the leaf's.
    ///
    /// # Errors
    /// Another shape or dtype.
    pub fn set_value(&self, value: Tensor<D>) -> Result<()> {
        if *value.shape() != self.shape {
            let detail = format!("{} is {:?}, got {:?}", self.name, self.shape, value.shape());
            return Err(Error::shape("set_value", detail));
        }
        if value.dtype() != self.dtype {
            return Err(Error::dtype("set_value", self.dtype.name(), value.dtype()));
        }
        self.lock().value = Some(value.detach());
        Ok(())
    }

    /// Takes the value away; uses fail until it is put back.
    pub fn release(&self) -> Option<Tensor<D>> {
        self.lock().value.take()
    }

    /// The gradient collected since the last [`Leaf::clear_grad`]; `None` if the leaf took no part.
    pub fn grad(&self) -> Option<Tensor<D>> {
        self.lock().grad.clone()
    }

    /// Replaces the gradient, for those who compute it themselves.
    pub fn set_grad(&self, grad: Option<Tensor<D>>) {
        self.lock().grad = grad;
    }

    /// Forgets the gradient. Its home stays.
    pub fn clear_grad(&self) {
        self.lock().grad = None;
    }

    /// Chooses where later gradients are written; `None` lets each be allocated.
    pub fn set_grad_home(&self, home: Option<Tensor<D>>) {
        self.lock().home = home;
    }

    /// Where the next contribution goes, and whether it replaces what is there or is added.
    ///
    /// # Errors
    /// Out of memory.
    pub fn grad_target(&self, device: &D) -> Result<(Tensor<D>, Store)> {
        let mut state = self.lock();
        if let Some(grad) = &state.grad {
            return Ok((grad.clone(), Store::Add));
        }
        let target = match &state.home {
            Some(home) => home.clone(),
            None => Tensor::empty(device, self.dtype, self.shape)?,
        };
        state.grad = Some(target.clone());
        Ok((target, Store::Overwrite))
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        // Every update of the state is one assignment, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn released(&self) -> Error {
        Error::Internal(format!("the value of {} is used while it is released", self.name))
    }
}

impl<D: Device> fmt::Debug for Leaf<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leaf({}, {:?}, {})", self.name, self.shape, self.dtype)
    }
}

/// A value kept for the derivative: parameters as the parameter, so that their memory can be taken
/// away and put back in between; other tensors as their memory.
#[derive(Debug)]
pub enum Saved<D: Device> {
    /// A parameter, read when it is needed.
    Leaf(Arc<Leaf<D>>),
    /// Memory that stays until the rule is dropped.
    Tensor(Tensor<D>),
}

impl<D: Device> Saved<D> {
    /// Keeps `tensor`.
    pub fn new(tensor: &Tensor<D>) -> Self {
        match tensor.leaf() {
            Some(leaf) => Saved::Leaf(leaf.clone()),
            None => Saved::Tensor(tensor.detach()),
        }
    }

    /// The values.
    ///
    /// # Errors
    /// A parameter whose memory was taken away.
    pub fn value(&self) -> Result<Tensor<D>> {
        match self {
            Saved::Leaf(leaf) => leaf.value(),
            Saved::Tensor(tensor) => Ok(tensor.clone()),
        }
    }
}
