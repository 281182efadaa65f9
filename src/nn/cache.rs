//! Keys and values of positions already seen, for generation one token at a time.

use sneppx_contract::{DType, Device, Error, Result};

use super::TransformerConfig;
use crate::tensor::Tensor;

/// The keys and values of every block, with room for the model's longest sequence.
#[derive(Debug)]
pub struct KeyValueCache<D: Device> {
    layers: Vec<[Tensor<D>; 2]>,
    len: usize,
    capacity: usize,
}

impl<D: Device> KeyValueCache<D> {
    /// An empty cache for `batch` sequences.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(device: &D, dtype: DType, config: &TransformerConfig, batch: usize) -> Result<Self> {
        let shape = [batch, config.kv_heads(), config.max_seq_len, config.head_size()];
        let layers = (0..config.num_layers)
            .map(|_| {
                let room = || Tensor::zeros(device, dtype, &shape);
                Ok([room()?, room()?])
            })
            .collect::<Result<_>>()?;
        Ok(KeyValueCache { layers, len: 0, capacity: config.max_seq_len })
    }

    /// Positions already seen.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position has been seen.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets every position; the memory stays.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Notes that every block has stored `count` more positions.
    pub(super) fn advance(&mut self, count: usize) {
        self.len += count;
    }

    /// Stores the keys and values `[B, G, T, D]` of new positions of block `layer` and returns
    /// those of all positions so far.
    ///
    /// # Errors
    /// No room left.
    pub(super) fn append(
        &self,
        layer: usize,
        keys: &Tensor<D>,
        values: &Tensor<D>,
    ) -> Result<[Tensor<D>; 2]> {
        let count = keys.dim(2)?;
        let total = self.len + count;
        if total > self.capacity {
            let reason = format!("the cache holds {} positions", self.capacity);
            return Err(Error::invalid("positions", total, reason));
        }
        let [all_keys, all_values] = &self.layers[layer];
        for (room, new) in [(all_keys, keys), (all_values, values)] {
            let place = room.slice(2, self.len, count)?;
            room.device().copy(new.view(), place.view())?;
        }
        Ok([all_keys.slice(2, 0, total)?, all_values.slice(2, 0, total)?])
    }
}
