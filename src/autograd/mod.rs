//! Differentiation: rules recorded forward, walked backward.
//!
//! [`rules`] holds one file per family of operations, forward and derivative side by side; the
//! operations are methods of [`Tensor`](crate::tensor::Tensor). [`backward`] is the reverse walk,
//! [`sink`] says where the gradients of leaves go, [`recompute`](mod@recompute) trades arithmetic
//! for memory.

pub mod backward;
pub mod custom;
pub mod recompute;
pub mod rules;
pub mod sink;

pub use custom::CustomOperation;
pub use recompute::recompute;
pub use sink::{GradSink, LeafGrads};

use crate::tensor::Recording;

/// Runs `body` without recording: results need no gradient and saved values are not kept.
///
/// The flag belongs to the calling thread and goes back even when `body` panics.
pub fn no_grad<R>(body: impl FnOnce() -> R) -> R {
    let _guard = Recording::set(false);
    body()
}
