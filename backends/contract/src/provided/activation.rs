//! Activations with a bias or a gate.

use super::scratch::Scratch;
use crate::{Activation, Kernels, Result, Store, UnaryOp, ViewOf, check};

/// Composition of [`Kernels::bias_activation`].
///
/// # Errors
/// `x` and `out` of unequal shape or dtype, no floats, or a bias that is not `[C]`.
pub fn bias_activation<K: Kernels>(
    device: &K,
    activation: Option<Activation>,
    x: ViewOf<'_, K>,
    bias: Option<ViewOf<'_, K>>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    check::float_elementwise("bias_activation", &[x], out)?;
    let sum = biased("bias_activation", device, x, bias)?;
    match activation {
        Some(activation) => sum.unary(UnaryOp::Activation(activation))?.store(out),
        None => sum.store(out),
    }
}

/// Composition of [`Kernels::bias_activation_backward`].
///
/// # Errors
/// As [`bias_activation`]; `dbias` must be `[C]` too.
pub fn bias_activation_backward<K: Kernels>(
    device: &K,
    activation: Option<Activation>,
    x: ViewOf<'_, K>,
    bias: Option<ViewOf<'_, K>>,
    dy: ViewOf<'_, K>,
    dx: ViewOf<'_, K>,
    dbias: Option<(ViewOf<'_, K>, Store)>,
) -> Result<()> {
    const NAME: &str = "bias_activation_backward";
    check::float_elementwise(NAME, &[x, dy], dx)?;
    let sum = biased(NAME, device, x, bias)?;
    let dy = Scratch::wide(device, dy)?;
    let gradient = match activation {
        Some(activation) => sum.unary_backward(UnaryOp::Activation(activation), &dy)?,
        None => dy,
    };
    if let Some((dbias, store)) = dbias {
        let (_, columns) = check::rows(NAME, x)?;
        check::output(NAME, dbias)?;
        check::column_vector(NAME, "dbias", dbias, columns, x.dtype())?;
        gradient.sum_rows()?.store_as(store, dbias)?;
    }
    gradient.store(dx)
}

/// Composition of [`Kernels::gated_activation`].
///
/// # Errors
/// Operands of unequal shape or dtype, or no floats.
pub fn gated_activation<K: Kernels>(
    device: &K,
    activation: Activation,
    gate: ViewOf<'_, K>,
    up: ViewOf<'_, K>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    check::float_elementwise("gated_activation", &[gate, up], out)?;
    let opened = Scratch::wide(device, gate)?.unary(UnaryOp::Activation(activation))?;
    opened.times(&Scratch::wide(device, up)?)?.store(out)
}

/// Composition of [`Kernels::gated_activation_backward`].
///
/// # Errors
/// As [`gated_activation`].
pub fn gated_activation_backward<K: Kernels>(
    device: &K,
    activation: Activation,
    gate: ViewOf<'_, K>,
    up: ViewOf<'_, K>,
    dy: ViewOf<'_, K>,
    dgate: ViewOf<'_, K>,
    dup: ViewOf<'_, K>,
) -> Result<()> {
    const NAME: &str = "gated_activation_backward";
    check::float_elementwise(NAME, &[gate, up, dy], dgate)?;
    check::float_elementwise(NAME, &[gate, up, dy], dup)?;
    let (gate, up) = (Scratch::wide(device, gate)?, Scratch::wide(device, up)?);
    let dy = Scratch::wide(device, dy)?;
    let op = UnaryOp::Activation(activation);
    let of_gate = gate.unary_backward(op, &dy.times(&up)?)?;
    let of_up = gate.unary(op)?.times(&dy)?;
    of_gate.store(dgate)?;
    of_up.store(dup)
}

fn biased<'d, K: Kernels>(
    operation: &'static str,
    device: &'d K,
    x: ViewOf<'_, K>,
    bias: Option<ViewOf<'_, K>>,
) -> Result<Scratch<'d, K>> {
    let Some(bias) = bias else { return Scratch::wide(device, x) };
    let (_, columns) = check::rows(operation, x)?;
    check::column_vector(operation, "the bias", bias, columns, x.dtype())?;
    Scratch::wide(device, x)?.plus(&Scratch::wide(device, bias)?)
}
