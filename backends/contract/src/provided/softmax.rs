//! Compositions.

use crate::*;

/// Composition of [`Kernels::softmax`].
pub fn softmax<K: Kernels>(device: &K, x: ViewOf<'_, K>, out: ViewOf<'_, K>) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::softmax_backward`].
pub fn softmax_backward<K: Kernels>(
    device: &K,
    y: ViewOf<'_, K>,
    dy: ViewOf<'_, K>,
    dx: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}
