//! Sneppx trains Transformers on one process or on many.

#![forbid(unsafe_code)]

// `#[derive(Module)]` names this crate by its full path, also inside it.
extern crate self as sneppx;

pub mod autograd;
pub mod checkpoint;
pub mod nn;
pub mod shard;
pub mod tensor;

pub use sneppx_contract as contract;
pub use sneppx_contract::{DType, Device, Error, Result, Shape};
pub use tensor::Tensor;
