//! Compositions.

use crate::*;

/// Composition of [`Kernels::adamw_step`].
pub fn adamw_step<K: Kernels>(
    device: &K,
    step: AdamWStep,
    param: ViewOf<'_, K>,
    grad: ViewOf<'_, K>,
    m: ViewOf<'_, K>,
    v: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::sgd_step`].
pub fn sgd_step<K: Kernels>(
    device: &K,
    step: SgdStep,
    param: ViewOf<'_, K>,
    grad: ViewOf<'_, K>,
    momentum: Option<ViewOf<'_, K>>,
) -> Result<()> {
    todo!()
}
