//! Parameters with gradients set by hand.

use std::sync::Arc;

use sneppx::contract::HostVec;
use sneppx::cpu::Cpu;
use sneppx::optim::{AdamWOptions, Optimizer};
use sneppx::tensor::Leaf;
use sneppx::{DType, Tensor};

pub type CpuLeaf = Arc<Leaf<Cpu>>;

pub fn device() -> Cpu {
    Cpu::with_threads(1).unwrap()
}

pub fn tensor(device: &Cpu, dtype: DType, values: &[f64]) -> Tensor<Cpu> {
    Tensor::from_host(device, &HostVec::from_f64(dtype, values), &[values.len()]).unwrap()
}

pub fn leaf(name: &str, dtype: DType, values: &[f64]) -> CpuLeaf {
    Leaf::new(name, tensor(&device(), dtype, values), true)
}

pub fn leaves_with(dtype: DType, grads: &[&[f64]]) -> Vec<CpuLeaf> {
    let one = |(at, grad): (usize, &&[f64])| {
        let leaf = leaf(&at.to_string(), dtype, &vec![0.0; grad.len()]);
        set_grad(&leaf, grad);
        leaf
    };
    grads.iter().enumerate().map(one).collect()
}

pub fn set_grad(leaf: &CpuLeaf, values: &[f64]) {
    let device = leaf.value().unwrap().device().clone();
    leaf.set_grad(Some(tensor(&device, leaf.dtype(), values)));
}

pub fn value(leaf: &CpuLeaf) -> Vec<f64> {
    leaf.value().unwrap().to_host().unwrap().to_f64()
}

pub fn grad(leaf: &CpuLeaf) -> Vec<f64> {
    leaf.grad().unwrap().to_host().unwrap().to_f64()
}

pub fn all_grads(leaves: &[CpuLeaf]) -> Vec<f64> {
    leaves.iter().flat_map(grad).collect()
}

pub fn adamw(learning_rate: f64, weight_decay: f64) -> AdamWOptions {
    AdamWOptions { learning_rate, weight_decay, ..AdamWOptions::default() }
}

pub fn step_with(optimizer: &mut dyn Optimizer<Cpu>, leaf: &CpuLeaf, gradient: f64) {
    set_grad(leaf, &[gradient]);
    optimizer.step().unwrap();
    optimizer.zero_grad();
}

/// The state of the one parameter, as numbers.
pub fn numbers(optimizer: &dyn Optimizer<Cpu>) -> (u64, Vec<f64>) {
    let state = &optimizer.state()[0];
    let values = |(_, tensor): &(String, Tensor<Cpu>)| tensor.to_host().unwrap().to_f64();
    (state.step, state.tensors.iter().flat_map(values).collect())
}

/// The elements of a tensor, as numbers.
pub fn numbers_of(tensor: &Tensor<Cpu>) -> Vec<f64> {
    tensor.to_host().unwrap().to_f64()
}

pub fn message<T: std::fmt::Debug>(result: sneppx::Result<T>) -> String {
    result.unwrap_err().to_string()
}
