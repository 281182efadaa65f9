//! What a forward pass is for: training or evaluation, and which samples it sees.

use sneppx_contract::RandomKey;

/// Says how layers behave in one forward pass.
///
/// Random choices are keyed by (seed, step, layer) and counted from the number of the first sample
/// in the global batch, so they do not depend on which rank computes a sample, or when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    noise: Option<Noise>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noise {
    key: RandomKey,
    first_sample: u64,
}

impl Pass {
    /// Evaluation: no dropout.
    pub fn evaluation() -> Self {
        Pass { noise: None }
    }

    /// Training step `step` of the run with `seed`, for samples of the global batch from number
    /// `first_sample` on.
    pub fn training(seed: u64, step: u64, first_sample: u64) -> Self {
        let key = RandomKey::from_seed(seed).with_text("dropout").with_number(step);
        Pass { noise: Some(Noise { key, first_sample }) }
    }

    /// Whether this is a training pass.
    pub fn is_training(&self) -> bool {
        self.noise.is_some()
    }

    /// The stream of random numbers for layer `layer`, and the number of the first sample; `None`
    /// in evaluation.
    pub fn noise(&self, layer: &str) -> Option<(RandomKey, u64)> {
        self.noise.map(|noise| (noise.key.with_text(layer), noise.first_sample))
    }
}
