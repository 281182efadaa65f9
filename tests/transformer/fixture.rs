//! Small models and what is asked of them.

use std::sync::Arc;

use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::cpu::Cpu;
use sneppx::nn::{Builder, Module, Pass, Transformer, TransformerConfig};
use sneppx::tensor::Leaf;
use sneppx::{Result, Tensor};

/// Everything here runs on the CPU.
pub type T = Tensor<Cpu>;
/// The model under test.
pub type Model = Transformer<Cpu>;

/// A device whose kernels may split their work.
pub fn device() -> Cpu {
    Cpu::with_threads(2).expect("two threads")
}

/// A model from seed 7.
pub fn model(device: &Cpu, config: TransformerConfig) -> Result<Model> {
    Transformer::new(config, &Builder::new(device, 7))
}

/// A small GPT-2.
pub fn gpt2() -> TransformerConfig {
    TransformerConfig::gpt2(11, 12, 3, 2, 20, 8)
}

/// A small Llama with grouped heads.
pub fn llama() -> TransformerConfig {
    TransformerConfig { num_kv_heads: 1, ..TransformerConfig::llama(11, 12, 3, 2, 20, 8) }
}

/// `[batch, length]` tokens below 11.
pub fn tokens(device: &Cpu, batch: usize, length: usize) -> Result<T> {
    let ids: Vec<u32> = (0..batch * length).map(|i| (i * 7 % 11) as u32).collect();
    T::from_slice(device, &ids, &[batch, length])
}

/// Paths of all parameters, in order.
pub fn names(model: &impl Module<Cpu>) -> Vec<String> {
    model.named_parameters().into_iter().map(|(path, _)| path).collect()
}

/// Values of all parameters.
pub fn values(model: &impl Module<Cpu>) -> Result<Vec<Vec<f32>>> {
    model.parameters().iter().map(|leaf| leaf.value()?.to_vec::<f32>()).collect()
}

/// Gradients of all parameters.
pub fn grads(model: &impl Module<Cpu>) -> Result<Vec<Vec<f32>>> {
    let grad = |leaf: Arc<Leaf<Cpu>>| {
        leaf.grad().unwrap_or_else(|| panic!("{} has no gradient", leaf.name())).to_vec::<f32>()
    };
    model.parameters().into_iter().map(grad).collect()
}

/// The mean loss of predicting a fixed text, recorded.
pub fn loss(model: &Model, batch: usize, length: usize, pass: &Pass) -> Result<T> {
    let device = model.embedding.weight.leaf().value()?.device().clone();
    let ids = tokens(&device, batch, length)?;
    let targets: Vec<u32> = ids.to_vec::<u32>()?.iter().map(|id| (id + 3) % 11).collect();
    let targets = T::from_slice(&device, &targets, &[batch, length])?;
    model.losses(&ids, &targets, CrossEntropyOptions::default(), pass)?.mean_all()
}
