//! One number for a training state: equal bits, equal fingerprint.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use sneppx_contract::{DType, Device, Result};

use crate::tensor::{Leaf, Tensor};

/// SHA-256 over logical values as little-endian `f32`: every parameter in path order, then whatever
/// else is added, usually the optimizer's moments.
#[derive(Clone, Debug, Default)]
pub struct Fingerprint {
    hash: Sha256,
}

impl Fingerprint {
    /// Takes in the values of a tensor, row-major.
    ///
    /// # Errors
    /// Whatever the device reports.
    pub fn add<D: Device>(&mut self, tensor: &Tensor<D>) -> Result<()> {
        for value in tensor.detach().cast(DType::F32)?.to_vec::<f32>()? {
            self.hash.update(value.to_le_bytes());
        }
        Ok(())
    }

    /// Takes in the value of every leaf, in the order given.
    ///
    /// # Errors
    /// A leaf whose value was taken away.
    pub fn add_leaves<D: Device>(&mut self, leaves: &[Arc<Leaf<D>>]) -> Result<()> {
        leaves.iter().try_for_each(|leaf| self.add(&leaf.value()?))
    }

    /// The hash so far, in hexadecimal.
    pub fn hex(&self) -> String {
        self.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
