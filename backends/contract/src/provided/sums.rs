//! Compositions.

use crate::*;

/// Composition of [`Kernels::sums_of_squares`].
pub fn sums_of_squares<K: Kernels>(device: &K, x: ViewOf<'_, K>, out: ViewOf<'_, K>) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::all_finite`].
pub fn all_finite<K: Kernels>(device: &K, x: ViewOf<'_, K>, out: ViewOf<'_, K>) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::tree_sum`].
pub fn tree_sum<K: Kernels>(device: &K, nodes: &[ViewOf<'_, K>], out: ViewOf<'_, K>) -> Result<()> {
    todo!()
}
