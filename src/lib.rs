//! Sneppx trains Transformers on one process or on many.
//!
//! Models, optimizers and data are written once, against two traits: [`Device`] and
//! [`Communicator`](contract::Communicator). Cargo features choose what stands behind them.
//!
//! ```
//! use sneppx::nn::{Builder, Module, Pass, Transformer, TransformerConfig};
//! use sneppx::optim::{AdamW, AdamWOptions, Optimizer};
//! use sneppx::{Device, Result, Tensor, autograd::rules::CrossEntropyOptions, cpu::Cpu};
//!
//! fn train<D: Device>(device: &D) -> Result<f64> {
//!     let config = TransformerConfig::gpt2(10, 16, 2, 1, 32, 8);
//!     let model = Transformer::new(config, &Builder::new(device, 1))?;
//!     let mut optimizer = AdamW::of(model.parameters(), AdamWOptions::default())?;
//!     let tokens = Tensor::from_slice(device, &[1u32, 2, 3, 4], &[1, 4])?;
//!     let targets = Tensor::from_slice(device, &[2u32, 3, 4, 5], &[1, 4])?;
//!     let mut last = f64::NAN;
//!     for step in 0..5 {
//!         let pass = Pass::training(1, step, 0);
//!         let losses = model.losses(&tokens, &targets, CrossEntropyOptions::default(), &pass)?;
//!         let loss = losses.mean_all()?;
//!         optimizer.zero_grad();
//!         loss.backward()?;
//!         optimizer.step()?;
//!         last = loss.item()?;
//!     }
//!     Ok(last)
//! }
//!
//! assert!(train(&Cpu::with_threads(1)?)? < (10f64).ln());
//! # Ok::<(), sneppx::Error>(())
//! ```
//!
//! The rooms, in the order in which one may import another: [`launch`], [`data`], [`tensor`],
//! [`autograd`], [`nn`], [`optim`], [`shard`], [`checkpoint`], [`train`]; [`backend`] stands beside
//! them.

#![forbid(unsafe_code)]

// `#[derive(Module)]` names this crate by its full path, also inside it.
extern crate self as sneppx;

pub mod launch;
pub mod data;
pub mod tensor;
pub mod autograd;
pub mod nn;
pub mod optim;
pub mod shard;
pub mod checkpoint;
pub mod train;
pub mod backend;
#[cfg(feature = "tokenizers")]
#[path = "data/tokenizer_json.rs"]
mod tokenizer_json;
#[cfg(not(feature = "tokenizers"))]
#[path = "data/tokenizer_json_absent.rs"]
mod tokenizer_json;

pub use sneppx_contract as contract;
pub use sneppx_contract::{DType, Device, Error, Result, Shape};
#[cfg(feature = "cpu")]
pub use sneppx_cpu as cpu;
pub use sneppx_single as single;
pub use tensor::Tensor;

/// The program in README.md is compiled and run with the documentation's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
