//! Compositions.

use crate::*;

/// Composition of [`Kernels::normalize`].
pub fn normalize<K: Kernels>(
    device: &K,
    norm: Norm,
    operands: NormOperands<'_, K::Buffer>,
    sum: Option<ViewOf<'_, K>>,
    statistics: ViewOf<'_, K>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::normalize_backward`].
pub fn normalize_backward<K: Kernels>(
    device: &K,
    norm: Norm,
    sum: ViewOf<'_, K>,
    weight: Option<ViewOf<'_, K>>,
    statistics: ViewOf<'_, K>,
    dy: ViewOf<'_, K>,
    dsum: Option<ViewOf<'_, K>>,
    dx: ViewOf<'_, K>,
    dweight: Option<(ViewOf<'_, K>, Store)>,
    dbias: Option<(ViewOf<'_, K>, Store)>,
) -> Result<()> {
    todo!()
}
