//! Compositions.

use crate::*;

/// Composition of [`Kernels::attention`].
pub fn attention<K: Kernels>(
    device: &K,
    spec: Attention,
    q: ViewOf<'_, K>,
    k: ViewOf<'_, K>,
    v: ViewOf<'_, K>,
    mask: Option<ViewOf<'_, K>>,
    out: ViewOf<'_, K>,
    log_sum_exp: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::attention_backward`].
pub fn attention_backward<K: Kernels>(
    device: &K,
    spec: Attention,
    q: ViewOf<'_, K>,
    k: ViewOf<'_, K>,
    v: ViewOf<'_, K>,
    mask: Option<ViewOf<'_, K>>,
    out: ViewOf<'_, K>,
    log_sum_exp: ViewOf<'_, K>,
    dout: ViewOf<'_, K>,
    dq: ViewOf<'_, K>,
    dk: ViewOf<'_, K>,
    dv: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}
