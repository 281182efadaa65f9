//! Compositions.

use crate::*;

/// Composition of [`Kernels::rotary`].
pub fn rotary<K: Kernels>(
    device: &K,
    rotation: Rotation,
    x: ViewOf<'_, K>,
    cos: ViewOf<'_, K>,
    sin: ViewOf<'_, K>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}
