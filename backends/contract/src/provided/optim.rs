//! The optimizers' updates.

use super::scratch::Scratch;
use crate::{AdamWStep, Error, Kernels, Result, SgdStep, UnaryOp, ViewOf, check};

/// Composition of [`Kernels::adamw_step`].
///
/// # Errors
/// Operands that are not contiguous runs of one length, a gradient of another dtype than the
/// parameter, moments not in its accumulator dtype, or step number 0.
pub fn adamw_step<K: Kernels>(
    device: &K,
    step: AdamWStep,
    param: ViewOf<'_, K>,
    grad: ViewOf<'_, K>,
    m: ViewOf<'_, K>,
    v: ViewOf<'_, K>,
) -> Result<()> {
    const NAME: &str = "adamw_step";
    check::runs(NAME, &[param, grad, m, v])?;
    check_update::<K>(NAME, step.step, param, grad, &[m, v])?;
    let grad = flat(device, grad)?.scaled(step.gradient_scale)?;
    let (m, v) = (flat(device, m)?, flat(device, v)?);
    device.scaled_add(1.0 - step.beta1, grad.view(), step.beta1, m.view())?;
    let squares = grad.unary(UnaryOp::Square)?;
    device.scaled_add(1.0 - step.beta2, squares.view(), step.beta2, v.view())?;
    let correction = |beta: f64| 1.0 - beta.powf(step.step as f64);
    let root = v.scaled(1.0 / correction(step.beta2))?.unary(UnaryOp::Sqrt)?;
    let direction = m.over(&root.affine(1.0, step.epsilon)?)?;
    let decayed = flat(device, param)?.scaled(1.0 - step.learning_rate * step.weight_decay)?;
    let change = direction.scaled(step.learning_rate / correction(step.beta1))?;
    decayed.minus(&change)?.store(param)
}

/// Composition of [`Kernels::sgd_step`].
///
/// # Errors
/// Operands that are not contiguous runs of one length, a gradient of another dtype than the
/// parameter, a buffer not in its accumulator dtype, momentum without one, or step number 0.
pub fn sgd_step<K: Kernels>(
    device: &K,
    step: SgdStep,
    param: ViewOf<'_, K>,
    grad: ViewOf<'_, K>,
    momentum: Option<ViewOf<'_, K>>,
) -> Result<()> {
    const NAME: &str = "sgd_step";
    check::runs(NAME, &[param, grad, momentum.unwrap_or(param)])?;
    check_update::<K>(NAME, step.step, param, grad, momentum.as_slice())?;
    if step.momentum != 0.0 && momentum.is_none() {
        return Err(Error::invalid("momentum", step.momentum, "momentum needs a buffer"));
    }
    let value = flat(device, param)?;
    let mut grad = flat(device, grad)?.scaled(step.gradient_scale)?;
    if step.weight_decay != 0.0 {
        grad = grad.plus(&value.scaled(step.weight_decay)?)?;
    }
    if let (Some(momentum), true) = (momentum, step.momentum != 0.0) {
        let buffer = flat(device, momentum)?;
        match step.step {
            1 => grad.store(buffer.view())?,
            _ => {
                let fresh = 1.0 - step.dampening;
                device.scaled_add(fresh, grad.view(), step.momentum, buffer.view())?;
            }
        }
        grad = match step.nesterov {
            true => grad.plus(&buffer.scaled(step.momentum)?)?,
            false => buffer,
        };
    }
    value.minus(&grad.scaled(step.learning_rate)?)?.store(param)
}

/// Dtypes and the step number of an update; the runs are checked already.
fn check_update<K: Kernels>(
    operation: &'static str,
    step: u64,
    param: ViewOf<'_, K>,
    grad: ViewOf<'_, K>,
    state: &[ViewOf<'_, K>],
) -> Result<()> {
    check::float(operation, param)?;
    check::output(operation, param)?;
    check::dtype(operation, grad, param.dtype())?;
    for values in state {
        check::output(operation, *values)?;
        check::dtype(operation, *values, param.dtype().accumulator())?;
    }
    if step == 0 {
        return Err(Error::invalid("step", step, "the first step is number 1"));
    }
    Ok(())
}

/// The values of a contiguous run in the accumulator dtype, in one dimension.
fn flat<'d, K: Kernels>(device: &'d K, run: ViewOf<'_, K>) -> Result<Scratch<'d, K>> {
    Scratch::wide(device, run)?.reshape(&[run.numel()])
}
