//! Models: parameters with paths, layers, and the Transformer.
//!
//! A model is a plain struct of layers; `#[derive(Module)]` walks its parameters in declaration
//! order. Nothing here knows ranks or shards: [`Unit`] marks the pieces that a strategy may gather,
//! free and recompute as a whole, and [`UnitHooks`] is the door through which it does.

mod attention;
mod block;
mod cache;
mod dropout;
mod embedding;
mod feed_forward;
mod generate;
mod init;
mod linear;
mod loss;
mod module;
mod norm;
mod pass;
mod transformer;
mod unit;

pub use attention::{CausalSelfAttention, RotaryTables};
pub use block::Block;
pub use cache::KeyValueCache;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use feed_forward::{FeedForward, FeedForwardKind};
pub use generate::{Generator, Sampling};
pub use init::{Builder, Init};
pub use linear::{Linear, LinearOptions};
pub use loss::{CrossEntropyLoss, LossReduction};
pub use module::{Layer, Module, Param, join_path};
pub use norm::NormLayer;
pub use pass::Pass;
pub use sneppx_derive::Module;
pub use transformer::{Position, Transformer, TransformerConfig};
pub use unit::{Unit, UnitHooks};
