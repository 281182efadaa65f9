//! How gradients become one: the ordered sum over micro-batches.

mod ordered;

pub use ordered::{OrderedSum, TreeCounter};
