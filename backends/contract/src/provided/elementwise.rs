//! Compositions.

use crate::*;

/// Composition of [`Kernels::dropout`].
pub fn dropout<K: Kernels>(
    device: &K,
    probability: f64,
    key: RandomKey,
    offset: u64,
    x: ViewOf<'_, K>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}
