//! A piece of a model that can be gathered, freed and recomputed as a whole.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sneppx_contract::{Device, Result};

use super::{Layer, Module, Param, Pass};
use crate::autograd::recompute;
use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

/// What a strategy does around the passes of a [`Unit`].
pub trait UnitHooks<D: Device>: Send + Sync {
    /// The unit is about to run forward. Not called where a unit runs again for its derivative:
    /// [`UnitHooks::before_backward`] comes before that.
    ///
    /// # Errors
    /// Whatever stops the step.
    fn before_forward(&self) -> Result<()>;

    /// The unit has run forward.
    ///
    /// # Errors
    /// Whatever stops the step.
    fn after_forward(&self) -> Result<()>;

    /// The reverse walk is about to enter the unit.
    ///
    /// # Errors
    /// Whatever stops the step.
    fn before_backward(&self) -> Result<()>;

    /// The reverse walk has left the unit through its input. A unit whose input needs no gradient
    /// is not left this way; its parameters' [`ready`](crate::autograd::GradSink::ready) tells.
    ///
    /// # Errors
    /// Whatever stops the step.
    fn after_backward(&self) -> Result<()>;
}

/// Marks a layer as a unit. Alone it changes nothing.
pub struct Unit<D: Device, M> {
    layer: Arc<M>,
    hooks: RwLock<Option<Arc<dyn UnitHooks<D>>>>,
    recomputes: AtomicBool,
}

impl<D: Device, M: Layer<D>> Unit<D, M> {
    /// A unit around `layer`.
    pub fn new(layer: M) -> Self {
        Unit {
            layer: Arc::new(layer),
            hooks: RwLock::new(None),
            recomputes: AtomicBool::new(false),
        }
    }

    /// Whether the forward pass keeps only its input and runs again for the derivative.
    pub fn set_recompute(&self, recompute: bool) {
        self.recomputes.store(recompute, Ordering::Relaxed);
    }

    /// Lets a strategy in.
    pub fn set_hooks(&self, hooks: Option<Arc<dyn UnitHooks<D>>>) {
        *self.hooks.write().unwrap_or_else(PoisonError::into_inner) = hooks;
    }

    fn hooks(&self) -> Option<Arc<dyn UnitHooks<D>>> {
        self.hooks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<D: Device, M> Deref for Unit<D, M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.layer
    }
}

impl<D: Device, M: fmt::Debug> fmt::Debug for Unit<D, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unit").field(&self.layer).finish()
    }
}

impl<D: Device, M: Module<D>> Module<D> for Unit<D, M> {
    fn visit(&self, path: &str, visitor: &mut dyn FnMut(&str, &Param<D>)) {
        self.layer.visit(path, visitor);
    }
}

impl<D: Device, M: Layer<D>> Layer<D> for Unit<D, M> {
    fn forward(&self, x: &Tensor<D>, pass: &Pass) -> Result<Tensor<D>> {
        let hooks = self.hooks();
        let x = match &hooks {
            Some(hooks) => watch(x, hooks.clone(), Event::AfterBackward),
            None => x.clone(),
        };
        if let Some(hooks) = &hooks {
            hooks.before_forward()?;
        }
        let out = if self.recomputes.load(Ordering::Relaxed) {
            let (layer, pass) = (self.layer.clone(), *pass);
            recompute(&[&x], &self.layer.parameters(), move |inputs| {
                layer.forward(&inputs[0], &pass)
            })?
        } else {
            self.layer.forward(&x, pass)?
        };
        let Some(hooks) = hooks else { return Ok(out) };
        hooks.after_forward()?;
        Ok(watch(&out, hooks, Event::BeforeBackward))
    }
}

#[derive(Clone, Copy)]
enum Event {
    BeforeBackward,
    AfterBackward,
}

/// `x` with a node that tells `hooks` when the reverse walk comes by.
fn watch<D: Device>(x: &Tensor<D>, hooks: Arc<dyn UnitHooks<D>>, event: Event) -> Tensor<D> {
    record(x.detach(), &[x], || Box::new(Watch { hooks, event }))
}

struct Watch<D: Device> {
    hooks: Arc<dyn UnitHooks<D>>,
    event: Event,
}

impl<D: Device> Rule<D> for Watch<D> {
    fn name(&self) -> &'static str {
        "unit"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        match self.event {
            Event::BeforeBackward => self.hooks.before_backward()?,
            Event::AfterBackward => self.hooks.after_backward()?,
        }
        let tensor = grad.tensor().clone();
        if grad.is_exclusive() { inputs.give(0, tensor) } else { inputs.add(0, tensor) }
    }
}
