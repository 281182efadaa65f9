//! The embedding table.

use sneppx_contract::{Device, Result};

use super::{Builder, Init, Module, Param};
use crate::tensor::Tensor;

/// A row of `weight` `[rows, columns]` for each index.
#[derive(Clone, Debug, Module)]
pub struct Embedding<D: Device> {
    /// `[rows, columns]`; clone it into a head to tie the two.
    pub weight: Param<D>,
}

impl<D: Device> Embedding<D> {
    /// A table at `builder`'s place.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(builder: &Builder<D>, rows: usize, columns: usize, init: Init) -> Result<Self> {
        Ok(Embedding { weight: builder.param("weight", &[rows, columns], init)? })
    }

    /// Rows for `indices` (`u32` or `i64`, any shape): `[..., columns]`.
    ///
    /// # Errors
    /// An index outside the table, with its value and place.
    pub fn apply(&self, indices: &Tensor<D>) -> Result<Tensor<D>> {
        self.weight.tensor()?.embedding(indices)
    }
}
