//! Compositions.

use crate::*;

/// Composition of [`Kernels::bias_activation`].
pub fn bias_activation<K: Kernels>(
    device: &K,
    activation: Option<Activation>,
    x: ViewOf<'_, K>,
    bias: Option<ViewOf<'_, K>>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::bias_activation_backward`].
pub fn bias_activation_backward<K: Kernels>(
    device: &K,
    activation: Option<Activation>,
    x: ViewOf<'_, K>,
    bias: Option<ViewOf<'_, K>>,
    dy: ViewOf<'_, K>,
    dx: ViewOf<'_, K>,
    dbias: Option<(ViewOf<'_, K>, Store)>,
) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::gated_activation`].
pub fn gated_activation<K: Kernels>(
    device: &K,
    activation: Activation,
    gate: ViewOf<'_, K>,
    up: ViewOf<'_, K>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}

/// Composition of [`Kernels::gated_activation_backward`].
pub fn gated_activation_backward<K: Kernels>(
    device: &K,
    activation: Activation,
    gate: ViewOf<'_, K>,
    up: ViewOf<'_, K>,
    dy: ViewOf<'_, K>,
    dgate: ViewOf<'_, K>,
    dup: ViewOf<'_, K>,
) -> Result<()> {
    todo!()
}
