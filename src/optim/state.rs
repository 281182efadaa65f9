//! What optimizers remember of each parameter, and the loop over parameters that they share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sneppx_contract::{Device, Error, Result, ViewOf};

use super::ParamGroup;
use crate::tensor::{Leaf, LeafId, Tensor};

/// What an optimizer remembers of one parameter, as it can be saved and loaded.
///
/// The tensors of a state that an optimizer gives are the ones it works on: the next step changes
/// them. Write them down before, or load them into another optimizer, which takes copies.
#[derive(Clone, Debug)]
pub struct OptimizerState<D: Device> {
    /// The parameter's name.
    pub name: String,
    /// Steps it has taken.
    pub step: u64,
    /// Named tensors of the parameter's shape in its accumulator dtype, in the optimizer's order.
    pub tensors: Vec<(String, Tensor<D>)>,
}

/// The state of every parameter that has taken a step.
#[derive(Debug)]
pub(super) struct States<D: Device> {
    /// What each parameter has, in the order of [`State::tensors`].
    names: &'static [&'static str],
    of: HashMap<LeafId, State<D>>,
}

#[derive(Debug)]
struct State<D: Device> {
    step: u64,
    tensors: Vec<Tensor<D>>,
}

/// One parameter's part in a step.
pub(super) struct Update<'a, D: Device> {
    pub(super) device: &'a D,
    /// The parameter's own count of steps, this one included.
    pub(super) step: u64,
    /// The values, as one run.
    pub(super) param: ViewOf<'a, D>,
    /// The gradient, as one run.
    pub(super) grad: ViewOf<'a, D>,
    /// Its tensors, in the order of the names.
    pub(super) state: &'a [Tensor<D>],
}

impl<D: Device> States<D> {
    /// No parameter has taken a step yet.
    pub(super) fn new(names: &'static [&'static str]) -> Self {
        States { names, of: HashMap::new() }
    }

    /// Calls `update` for every parameter of `groups` that is trainable and has a gradient. The
    /// others keep value, state and count. Everything that can be known beforehand is checked
    /// before the first change.
    pub(super) fn step(
        &mut self,
        groups: &[ParamGroup<D>],
        gradient_scale: f64,
        mut update: impl FnMut(&ParamGroup<D>, Update<'_, D>) -> Result<()>,
    ) -> Result<()> {
        check_scale(gradient_scale)?;
        let leaves = groups.iter().flat_map(|group| &group.leaves);
        leaves.filter(|leaf| leaf.is_trainable()).try_for_each(|leaf| check_leaf(leaf))?;
        for group in groups {
            for leaf in group.leaves.iter().filter(|leaf| leaf.is_trainable()) {
                let Some(grad) = leaf.grad() else { continue };
                let state = match self.of.entry(leaf.id()) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => {
                        entry.insert(State::zero(leaf, grad.device(), self.names)?)
                    }
                };
                // A value that lies with gaps is packed first and written back afterwards.
                let value = leaf.value()?.packed()?;
                let grad = grad.packed()?;
                update(
                    group,
                    Update {
                        device: value.device(),
                        step: state.step + 1,
                        param: value.view(),
                        grad: grad.view(),
                        state: &state.tensors,
                    },
                )
                .map_err(|error| error.at(leaf.name()))?;
                state.step += 1;
                put_back(leaf, value)?;
            }
        }
        Ok(())
    }

    /// The state of every parameter that has taken a step, in the order of `groups`.
    pub(super) fn save(&self, groups: &[ParamGroup<D>]) -> Vec<OptimizerState<D>> {
        let leaves = groups.iter().flat_map(|group| &group.leaves);
        leaves
            .filter_map(|leaf| {
                let state = self.of.get(&leaf.id())?;
                let names = self.names.iter().map(|name| (*name).to_owned());
                Some(OptimizerState {
                    name: leaf.name().to_owned(),
                    step: state.step,
                    tensors: names.zip(state.tensors.iter().cloned()).collect(),
                })
            })
            .collect()
    }

    /// Puts copies of a saved state in place of this one.
    ///
    /// # Errors
    /// As [`Optimizer::load_state`](super::Optimizer::load_state). Nothing changes then.
    pub(super) fn load(
        &mut self,
        groups: &[ParamGroup<D>],
        saved: Vec<OptimizerState<D>>,
    ) -> Result<()> {
        let mut leaves = HashMap::new();
        for leaf in groups.iter().flat_map(|group| &group.leaves) {
            if leaves.insert(leaf.name(), leaf).is_some() {
                let reason = "two parameters have this name, so no state can be told to be theirs";
                return Err(Error::invalid("parameter", leaf.name(), reason));
            }
        }
        let mut of = HashMap::new();
        for entry in saved {
            let Some(leaf) = leaves.get(entry.name.as_str()) else {
                let reason = "the optimizer has no parameter of this name";
                return Err(Error::invalid("optimizer state", entry.name, reason));
            };
            let state = State::copy(leaf, &entry, self.names)
                .map_err(|error| error.at(format!("optimizer state of {}", entry.name)))?;
            if of.insert(leaf.id(), state).is_some() {
                return Err(Error::invalid("optimizer state", entry.name, "is there twice"));
            }
        }
        self.of = of;
        Ok(())
    }
}

/// Refuses a factor that would spoil every parameter.
pub(super) fn check_scale(gradient_scale: f64) -> Result<()> {
    if gradient_scale.is_finite() {
        return Ok(());
    }
    let reason = "would make every parameter NaN; leave out the step instead";
    Err(Error::invalid("gradient scale", gradient_scale, reason))
}

fn check_leaf<D: Device>(leaf: &Leaf<D>) -> Result<()> {
    let Some(grad) = leaf.grad() else { return Ok(()) };
    leaf.value()?;
    if grad.shape() != leaf.shape() {
        let (shape, name) = (leaf.shape(), leaf.name());
        return Err(Error::shapes_differ("optimizer", name, shape, "its gradient", grad.shape()));
    }
    if grad.dtype() != leaf.dtype() {
        let error = Error::dtype("optimizer", leaf.dtype().name(), grad.dtype());
        return Err(error.at(format!("the gradient of {}", leaf.name())));
    }
    Ok(())
}

/// Writes a packed value back where it came from, so that it stays in the memory its owner chose;
/// only elements that share memory (a broadcast) force a new place.
fn put_back<D: Device>(leaf: &Leaf<D>, packed: Tensor<D>) -> Result<()> {
    let value = leaf.value()?;
    if value.layout().is_contiguous() {
        return Ok(());
    }
    if value.layout().may_overlap_itself() {
        return leaf.set_value(packed);
    }
    value.device().copy(packed.view(), value.view())
}

impl<D: Device> State<D> {
    fn zero(leaf: &Leaf<D>, device: &D, names: &[&str]) -> Result<Self> {
        let zeros = |_: &&str| Tensor::zeros(device, leaf.dtype().accumulator(), leaf.shape());
        Ok(State { step: 0, tensors: names.iter().map(zeros).collect::<Result<_>>()? })
    }

    fn copy(leaf: &Leaf<D>, saved: &OptimizerState<D>, names: &[&str]) -> Result<Self> {
        let have: Vec<&str> = saved.tensors.iter().map(|(name, _)| name.as_str()).collect();
        if have != names {
            let reason = format!("this optimizer keeps {names:?}; was it another one's?");
            return Err(Error::invalid("saved tensors", format!("{have:?}"), reason));
        }
        let copies = saved.tensors.iter().map(|(name, tensor)| {
            if tensor.shape() != leaf.shape() {
                let (shape, want) = (tensor.shape(), leaf.shape());
                return Err(Error::shapes_differ("load_state", name, shape, "parameter", want));
            }
            if tensor.dtype() != leaf.dtype().accumulator() {
                let want = leaf.dtype().accumulator().name();
                return Err(Error::dtype("load_state", want, tensor.dtype()));
            }
            let copy = tensor.empty_like()?;
            copy.device().copy(tensor.view(), copy.view())?;
            Ok(copy)
        });
        Ok(State { step: saved.step, tensors: copies.collect::<Result<_>>()? })
    }
}
