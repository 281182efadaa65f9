//! Compositions.

use crate::*;

/// Composition of [`Kernels::cross_entropy`].
pub fn cross_entropy<K: Kernels>(
    device: &K,
    spec: CrossEntropy,
    logits: ViewOf<'_, K>,
    targets: ViewOf<'_, K>,
    losses: ViewOf<'_, K>,
    log_sum_exp: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::cross_entropy_backward`].
pub fn cross_entropy_backward<K: Kernels>(
    device: &K,
    spec: CrossEntropy,
    logits: ViewOf<'_, K>,
    targets: ViewOf<'_, K>,
    log_sum_exp: ViewOf<'_, K>,
    dlosses: ViewOf<'_, K>,
    dlogits: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}
