//! Bias and activation in one pass, gated activations, and their derivatives.

use sneppx_contract::{Activation, Result, Store, View, check};

use crate::activation::{slope, value};
use crate::column_sums::ColumnSums;
use crate::element::{Float, Real, with_float};
use crate::math::Math;
use crate::operands::Operands;
use crate::parallel::for_each_block;
use crate::rows::{RowSource, RowTarget, rows_per_task, vector};
use crate::simd::{Isa, vectorized};
use crate::{Cpu, CpuBuffer};

type V<'a> = View<'a, CpuBuffer>;

/// Columns that are worked on at once: operands and scratch of a part stay in the first cache.
const PART: usize = 1024;

/// See [`Kernels::bias_activation`](sneppx_contract::Kernels::bias_activation).
pub(crate) fn bias_activation(
    activation: Option<Activation>,
    x: V<'_>,
    bias: Option<V<'_>>,
    out: V<'_>,
) -> Result<()> {
    const NAME: &str = "bias_activation";
    check::float_elementwise(NAME, &[x], out)?;
    let (_, columns) = check::rows(NAME, x)?;
    if let Some(bias) = bias {
        check::column_vector(NAME, "the bias", bias, columns, x.dtype())?;
    }
    with_float!(NAME, x.dtype(), T => forward::<T>(activation, x, bias, out))
}

/// See [`Kernels::bias_activation_backward`](sneppx_contract::Kernels::bias_activation_backward).
pub(crate) fn bias_activation_backward(
    device: &Cpu,
    activation: Option<Activation>,
    x: V<'_>,
    bias: Option<V<'_>>,
    dy: V<'_>,
    dx: V<'_>,
    dbias: Option<(V<'_>, Store)>,
) -> Result<()> {
    const NAME: &str = "bias_activation_backward";
    check::float_elementwise(NAME, &[x, dy], dx)?;
    let (_, columns) = check::rows(NAME, x)?;
    if let Some(bias) = bias {
        check::column_vector(NAME, "the bias", bias, columns, x.dtype())?;
    }
    if let Some((dbias, _)) = dbias {
        check::column_vector(NAME, "dbias", dbias, columns, x.dtype())?;
        check::output(NAME, dbias)?;
    }
    with_float!(NAME, x.dtype(), T => backward::<T>(device, activation, x, bias, dy, dx, dbias))
}

/// See [`Kernels::gated_activation`](sneppx_contract::Kernels::gated_activation).
pub(crate) fn gated_activation(
    activation: Activation,
    gate: V<'_>,
    up: V<'_>,
    out: V<'_>,
) -> Result<()> {
    const NAME: &str = "gated_activation";
    check::float_elementwise(NAME, &[gate, up], out)?;
    with_float!(NAME, out.dtype(), T => gate_forward::<T>(activation, gate, up, out))
}

/// See [`Kernels::gated_activation_backward`](sneppx_contract::Kernels::gated_activation_backward).
pub(crate) fn gated_activation_backward(
    activation: Activation,
    gate: V<'_>,
    up: V<'_>,
    dy: V<'_>,
    dgate: V<'_>,
    dup: V<'_>,
) -> Result<()> {
    const NAME: &str = "gated_activation_backward";
    check::float_elementwise(NAME, &[gate, up, dy], dgate)?;
    check::float_elementwise(NAME, &[gate, up, dy], dup)?;
    with_float!(NAME, dy.dtype(), T => gate_backward::<T>(activation, gate, up, dy, dgate, dup))
}

fn forward<T: Float<Acc: Math>>(
    activation: Option<Activation>,
    x: V<'_>,
    bias: Option<V<'_>>,
    out: V<'_>,
) -> Result<()> {
    let operands = Operands::of("bias_activation");
    let out = RowTarget::new(operands.output::<T>(out)?)?;
    let x = RowSource::new(operands.input_in_place::<T>(x)?)?;
    let bias = bias.map(|view| Ok(vector(&operands.input::<T>(view)?))).transpose()?;
    let (count, columns) = (x.rows.count, x.rows.columns);
    for_each_block(count, rows_per_task(columns), 8 * count * columns, |task| {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for row in task {
            for part in parts(columns) {
                let bias = bias.as_ref().map(|bias| &bias[part.clone()]);
                // SAFETY: tasks have rows of their own, each part read before it is written.
                unsafe {
                    let x = x.read(row, part.clone(), &mut from);
                    out.write(row, part, &mut to, |out| activate(activation, x, bias, out));
                }
            }
        }
    });
    Ok(())
}

fn backward<T: Float<Acc: Math>>(
    device: &Cpu,
    activation: Option<Activation>,
    x: V<'_>,
    bias: Option<V<'_>>,
    dy: V<'_>,
    dx: V<'_>,
    dbias: Option<(V<'_>, Store)>,
) -> Result<()> {
    let operands = Operands::of("bias_activation_backward");
    let dx = RowTarget::new(operands.output::<T>(dx)?)?;
    let dbias = dbias.map(|(view, store)| Ok((operands.output::<T>(view)?, store))).transpose()?;
    let x = RowSource::new(operands.input_in_place::<T>(x)?)?;
    let dy = RowSource::new(operands.input_in_place::<T>(dy)?)?;
    let bias = bias.map(|view| Ok(vector(&operands.input::<T>(view)?))).transpose()?;
    let (count, columns) = (x.rows.count, x.rows.columns);
    let lines = ColumnSums::new::<T::Acc>(device, count, columns, 1)?;
    lines.for_each_block(16 * count * columns, |task, line| {
        let (mut from_x, mut from_dy, mut to) = (Vec::new(), Vec::new(), Vec::new());
        for row in task {
            for part in parts(columns) {
                let bias = bias.as_ref().map(|bias| &bias[part.clone()]);
                let line = &mut line[part.clone()];
                // SAFETY: as in `forward`.
                unsafe {
                    let x = x.read(row, part.clone(), &mut from_x);
                    let dy = dy.read(row, part.clone(), &mut from_dy);
                    dx.write(row, part, &mut to, |dx| {
                        derive(activation, x, bias, dy, dx);
                        add_to(dx, line);
                    });
                }
            }
        }
    })?;
    match dbias {
        Some((out, store)) => lines.finish(0, &out, store),
        None => Ok(()),
    }
}

fn gate_forward<T: Float<Acc: Math>>(
    activation: Activation,
    gate: V<'_>,
    up: V<'_>,
    out: V<'_>,
) -> Result<()> {
    let operands = Operands::of("gated_activation");
    let out = RowTarget::new(operands.output::<T>(out)?)?;
    let gate = RowSource::new(operands.input_in_place::<T>(gate)?)?;
    let up = RowSource::new(operands.input_in_place::<T>(up)?)?;
    let (count, columns) = (gate.rows.count, gate.rows.columns);
    for_each_block(count, rows_per_task(columns), 8 * count * columns, |task| {
        let (mut from_gate, mut from_up, mut to) = (Vec::new(), Vec::new(), Vec::new());
        for row in task {
            for part in parts(columns) {
                // SAFETY: as in `forward`.
                unsafe {
                    let gate = gate.read(row, part.clone(), &mut from_gate);
                    let up = up.read(row, part.clone(), &mut from_up);
                    out.write(row, part, &mut to, |out| gate_part(activation, gate, up, out));
                }
            }
        }
    });
    Ok(())
}

fn gate_backward<T: Float<Acc: Math>>(
    activation: Activation,
    gate: V<'_>,
    up: V<'_>,
    dy: V<'_>,
    dgate: V<'_>,
    dup: V<'_>,
) -> Result<()> {
    let operands = Operands::of("gated_activation_backward");
    let dgate = RowTarget::new(operands.output::<T>(dgate)?)?;
    let dup = RowTarget::new(operands.output::<T>(dup)?)?;
    let source = |view| RowSource::new(operands.input_in_place::<T>(view)?);
    let (gate, up, dy) = (source(gate)?, source(up)?, source(dy)?);
    let (count, columns) = (gate.rows.count, gate.rows.columns);
    for_each_block(count, rows_per_task(columns), 16 * count * columns, |task| {
        let mut scratch = [const { Vec::new() }; 5];
        let [from_gate, from_up, from_dy, to_gate, to_up] = &mut scratch;
        for row in task {
            for part in parts(columns) {
                // SAFETY: as in `forward`; all inputs are read before an output is written.
                unsafe {
                    let gate = gate.read(row, part.clone(), from_gate);
                    let up = up.read(row, part.clone(), from_up);
                    let dy = dy.read(row, part.clone(), from_dy);
                    dgate.write(row, part.clone(), to_gate, |dgate| {
                        dup.write(row, part, to_up, |dup| {
                            derive_gate(activation, gate, up, dy, dgate, dup);
                        });
                    });
                }
            }
        }
    });
    Ok(())
}

/// The columns of a row in parts of at most [`PART`].
fn parts(columns: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..columns).step_by(PART).map(move |start| start..columns.min(start + PART))
}

vectorized! {
    fn activate[S, A: Math](
        activation: Option<Activation>,
        x: &[A],
        bias: Option<&[A]>,
        out: &mut [A],
    ) {
        match bias {
            None => out.copy_from_slice(x),
            Some(bias) => {
                for ((out, &x), &bias) in out.iter_mut().zip(x).zip(bias) {
                    *out = x + bias;
                }
            }
        }
        match activation {
            None => {}
            Some(Activation::Gelu) => each(out, |x| value::<S, A>(Activation::Gelu, x)),
            Some(Activation::GeluTanh) => each(out, |x| value::<S, A>(Activation::GeluTanh, x)),
            Some(Activation::Silu) => each(out, |x| value::<S, A>(Activation::Silu, x)),
            Some(Activation::Relu) => each(out, |x| value::<S, A>(Activation::Relu, x)),
        }
    }

    fn derive[S, A: Math](
        activation: Option<Activation>,
        x: &[A],
        bias: Option<&[A]>,
        dy: &[A],
        dx: &mut [A],
    ) {
        match bias {
            None => dx.copy_from_slice(x),
            Some(bias) => {
                for ((dx, &x), &bias) in dx.iter_mut().zip(x).zip(bias) {
                    *dx = x + bias;
                }
            }
        }
        match activation {
            None => dx.copy_from_slice(dy),
            Some(Activation::Gelu) => slopes::<S, A>(Activation::Gelu, dy, dx),
            Some(Activation::GeluTanh) => slopes::<S, A>(Activation::GeluTanh, dy, dx),
            Some(Activation::Silu) => slopes::<S, A>(Activation::Silu, dy, dx),
            Some(Activation::Relu) => slopes::<S, A>(Activation::Relu, dy, dx),
        }
    }

    fn add_to[S, A: Real](values: &[A], sums: &mut [A]) {
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }

    fn gate_part[S, A: Math](activation: Activation, gate: &[A], up: &[A], out: &mut [A]) {
        activate(Some(activation), gate, None, out);
        for (out, &up) in out.iter_mut().zip(up) {
            *out *= up;
        }
    }

    /// `dup = activation(gate) * dy`, `dgate = activation'(gate) * up * dy`
    fn derive_gate[S, A: Math](
        activation: Activation,
        gate: &[A],
        up: &[A],
        dy: &[A],
        dgate: &mut [A],
        dup: &mut [A],
    ) {
        activate(Some(activation), gate, None, dup);
        for (dup, &dy) in dup.iter_mut().zip(dy) {
            *dup *= dy;
        }
        derive(Some(activation), gate, None, dy, dgate);
        for (dgate, &up) in dgate.iter_mut().zip(up) {
            *dgate *= up;
        }
    }
}

#[inline(always)]
fn each<A: Real>(values: &mut [A], function: impl Fn(A) -> A) {
    for value in values {
        *value = function(*value);
    }
}

/// `dx = activation'(dx) * dy`
#[inline(always)]
fn slopes<S: Isa, A: Math>(activation: Activation, dy: &[A], dx: &mut [A]) {
    for (dx, &dy) in dx.iter_mut().zip(dy) {
        *dx = slope::<S, A>(activation, *dx) * dy;
    }
}
