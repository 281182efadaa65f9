//! Tensors: a buffer, a layout, and where they came from.
//!
//! A [`Tensor`] is an immutable handle; a clone names the same memory. The room knows one device
//! and no rank. What records and walks the graph is in [`autograd`](crate::autograd); this room
//! holds only the graph's nodes, because tensors carry them.

mod graph;
mod leaf;
#[allow(clippy::module_inception)]
mod tensor;

pub use graph::{Accumulate, Gradient, Node, Recording, Rule, is_recording, record};
pub use leaf::{Leaf, LeafId, Saved};
pub use tensor::Tensor;
