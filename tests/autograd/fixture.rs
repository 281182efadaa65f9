//! Small leaves, and a sink that writes down what it hears.

use std::sync::Arc;

use sneppx::autograd::{GradSink, LeafGrads};
use sneppx::contract::Store;
use sneppx::cpu::Cpu;
use sneppx::tensor::Leaf;
use sneppx::{DType, Result, Tensor};

/// Everything here runs on the CPU.
pub type T = Tensor<Cpu>;

/// A device with one thread: the sizes are small.
pub fn device() -> Cpu {
    Cpu::with_threads(1).expect("one thread")
}

/// A vector that wants a gradient.
pub fn leaf(device: &Cpu, values: &[f64]) -> Result<T> {
    T::from_slice(device, values, &[values.len()])?.requires_grad()
}

/// The gradient of a leaf, on the host.
pub fn grad(x: &T) -> Vec<f64> {
    x.grad().expect("a gradient").to_vec().expect("f64")
}

/// Counts contributions and completions, and fails on a contribution after completion.
pub struct Watcher {
    grads: LeafGrads<Cpu>,
    /// The leaf of each contribution.
    pub targets: Vec<String>,
    /// Each leaf that was complete.
    pub ready: Vec<String>,
}

impl Watcher {
    /// Over leaves that keep their own gradients.
    pub fn new(device: &Cpu) -> Self {
        Watcher { grads: LeafGrads::new(device), targets: Vec::new(), ready: Vec::new() }
    }
}

impl GradSink<Cpu> for Watcher {
    fn target(&mut self, leaf: &Arc<Leaf<Cpu>>) -> Result<(T, Store)> {
        let name = leaf.name().to_owned();
        assert!(!self.ready.contains(&name), "{name} was complete already");
        self.targets.push(name);
        self.grads.target(leaf)
    }

    fn ready(&mut self, leaf: &Arc<Leaf<Cpu>>) -> Result<()> {
        self.ready.push(leaf.name().to_owned());
        Ok(())
    }
}

/// A parameter full of 0.5.
pub fn named(device: &Cpu, name: &str, shape: &[usize]) -> Result<Arc<Leaf<Cpu>>> {
    Ok(Leaf::new(name, T::full(device, DType::F64, shape, 0.5)?, true))
}
