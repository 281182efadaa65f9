//! The differentiable operations, one file per family, forward and derivative side by side.

mod activation;
mod attention;
mod cast;
mod combine;
mod compare;
mod dropout;
mod elementwise;
mod index;
mod linear;
mod loss;
mod matmul;
mod norm;
mod reduce;
mod rotary;
mod softmax;
mod view;

pub use attention::AttentionOptions;
pub use loss::{CrossEntropyOptions, LOGITS_BYTES};
pub use norm::Normalized;
