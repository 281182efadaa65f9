//! Models on disk: weights as safetensors, and a fingerprint of the whole training state.

mod fingerprint;
mod weights;

pub use fingerprint::Fingerprint;
pub use weights::{load_weights, replace_file, save_weights};
