//! Sneppx trains Transformers on one process or on many.

#![forbid(unsafe_code)]

pub mod autograd;
pub mod tensor;

pub use sneppx_contract as contract;
pub use sneppx_contract::{DType, Device, Error, Result, Shape};
pub use tensor::Tensor;
