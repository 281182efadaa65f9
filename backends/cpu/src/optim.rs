//! Optimizer steps: one pass over parameters, gradients and moments.

use sneppx_contract::{AdamWStep, Error, Result, SgdStep, View, check};

use crate::CpuBuffer;
use crate::element::{Float, Number, Real, with_float};
use crate::operands::{Input, Operands};
use crate::parallel::for_each_block;
use crate::simd::vectorized;

type V<'a> = View<'a, CpuBuffer>;

/// Elements that are worked on at once; scratch for 16-bit runs stays in the first cache.
const PART: usize = 2048;

/// Elements of a task.
const TASK: usize = 8 * PART;

/// See [`Kernels::adamw_step`](sneppx_contract::Kernels::adamw_step).
pub(crate) fn adamw_step(
    step: AdamWStep,
    param: V<'_>,
    grad: V<'_>,
    m: V<'_>,
    v: V<'_>,
) -> Result<()> {
    const NAME: &str = "adamw_step";
    check_runs(NAME, step.step, param, &[grad], &[m, v])?;
    with_float!(NAME, param.dtype(), T => adamw::<T>(NAME, step, param, grad, m, v))
}

/// See [`Kernels::sgd_step`](sneppx_contract::Kernels::sgd_step).
pub(crate) fn sgd_step(
    step: SgdStep,
    param: V<'_>,
    grad: V<'_>,
    momentum: Option<V<'_>>,
) -> Result<()> {
    const NAME: &str = "sgd_step";
    check_runs(NAME, step.step, param, &[grad], momentum.as_slice())?;
    if step.momentum != 0.0 && momentum.is_none() {
        let reason = "momentum other than 0 needs a buffer, none was given";
        return Err(Error::invalid("momentum", step.momentum, reason));
    }
    with_float!(NAME, param.dtype(), T => sgd::<T>(NAME, step, param, grad, momentum))
}

fn check_runs(
    operation: &'static str,
    step: u64,
    param: V<'_>,
    same: &[V<'_>],
    wide: &[V<'_>],
) -> Result<()> {
    check::float(operation, param)?;
    check::runs(operation, &[&[param], same, wide].concat())?;
    for view in same {
        check::dtype(operation, *view, param.dtype())?;
    }
    for view in wide {
        check::dtype(operation, *view, param.dtype().accumulator())?;
    }
    if step == 0 {
        return Err(Error::invalid("step", step, "steps are counted from 1"));
    }
    Ok(())
}

/// The numbers of a step that are equal for all elements.
#[derive(Clone, Copy)]
struct AdamW<A> {
    gradient_scale: A,
    kept: A,
    beta1: A,
    rest1: A,
    beta2: A,
    rest2: A,
    rate: A,
    root_correction: A,
    epsilon: A,
}

impl<A: Real> AdamW<A> {
    fn new(step: AdamWStep) -> Self {
        let count = step.step as f64;
        AdamW {
            gradient_scale: A::real(step.gradient_scale),
            kept: A::real(1.0 - step.learning_rate * step.weight_decay),
            beta1: A::real(step.beta1),
            rest1: A::real(1.0 - step.beta1),
            beta2: A::real(step.beta2),
            rest2: A::real(1.0 - step.beta2),
            rate: A::real(step.learning_rate / (1.0 - step.beta1.powf(count))),
            root_correction: A::real(1.0 / (1.0 - step.beta2.powf(count)).sqrt()),
            epsilon: A::real(step.epsilon),
        }
    }
}

fn adamw<T: Float>(
    name: &'static str,
    step: AdamWStep,
    param: V<'_>,
    grad: V<'_>,
    m: V<'_>,
    v: V<'_>,
) -> Result<()> {
    let operands = Operands::of(name);
    let param = operands.output::<T>(param)?;
    let m = operands.output::<T::Acc>(m)?;
    let v = operands.output::<T::Acc>(v)?;
    let grad = operands.input::<T>(grad)?;
    let factors = AdamW::<T::Acc>::new(step);
    let len = param.layout().numel();
    for_each_block(len, TASK, 8 * len, |task| {
        let (mut wide, mut gradient) = (Vec::new(), Vec::new());
        for start in task.clone().step_by(PART) {
            let part = PART.min(task.end - start);
            // SAFETY: tasks have elements of their own; the operands are disjoint.
            unsafe {
                let (m, v) = (m.run(start, part), v.run(start, part));
                let grad = widened(&grad, start, part, &mut gradient);
                in_wide(param.run(start, part), &mut wide, |param| {
                    adamw_part(factors, param, grad, m, v);
                });
            }
        }
    });
    Ok(())
}

fn sgd<T: Float>(
    name: &'static str,
    step: SgdStep,
    param: V<'_>,
    grad: V<'_>,
    momentum: Option<V<'_>>,
) -> Result<()> {
    let operands = Operands::of(name);
    let param = operands.output::<T>(param)?;
    let momentum = momentum.map(|view| operands.output::<T::Acc>(view)).transpose()?;
    let grad = operands.input::<T>(grad)?;
    let len = param.layout().numel();
    for_each_block(len, TASK, 4 * len, |task| {
        let (mut wide, mut gradient) = (Vec::new(), Vec::new());
        for start in task.clone().step_by(PART) {
            let part = PART.min(task.end - start);
            // SAFETY: as in `adamw`.
            unsafe {
                let momentum = momentum.as_ref().map(|momentum| momentum.run(start, part));
                let grad = widened(&grad, start, part, &mut gradient);
                in_wide(param.run(start, part), &mut wide, |param| {
                    sgd_part(step, param, grad, momentum);
                });
            }
        }
    });
    Ok(())
}

/// Elements of a contiguous input in the type of arithmetic.
///
/// # Safety
/// The elements exist, and nobody writes them.
unsafe fn widened<'s, T: Float>(
    input: &Input<'s, T>,
    start: usize,
    len: usize,
    scratch: &'s mut Vec<T::Acc>,
) -> &'s [T::Acc] {
    // SAFETY: the caller's promise.
    let run = unsafe { input.run(start, len) };
    if let Some(native) = T::native(run) {
        return native;
    }
    scratch.resize(len, T::Acc::ZERO);
    T::load(run, scratch);
    scratch
}

/// Lets `change` work on a run in the type of arithmetic.
fn in_wide<T: Float>(run: &mut [T], scratch: &mut Vec<T::Acc>, change: impl FnOnce(&mut [T::Acc])) {
    if let Some(native) = T::native_mut(run) {
        return change(native);
    }
    scratch.resize(run.len(), T::Acc::ZERO);
    T::load(run, scratch);
    change(scratch);
    T::store(scratch, run);
}

vectorized! {
    fn adamw_part[S, A: Real](
        factors: AdamW<A>,
        param: &mut [A],
        grad: &[A],
        m: &mut [A],
        v: &mut [A],
    ) {
        let f = factors;
        for (((param, &grad), m), v) in param.iter_mut().zip(grad).zip(m).zip(v) {
            let g = grad * f.gradient_scale;
            *m = S::mul_add(f.beta1, *m, f.rest1 * g);
            *v = S::mul_add(f.beta2, *v, f.rest2 * g * g);
            let denominator = S::mul_add(v.square_root(), f.root_correction, f.epsilon);
            *param = *param * f.kept - f.rate * (*m / denominator);
        }
    }

    fn sgd_part[S, A: Real](
        step: SgdStep,
        param: &mut [A],
        grad: &[A],
        momentum: Option<&mut [A]>,
    ) {
        let (scale, decay) = (A::real(step.gradient_scale), A::real(step.weight_decay));
        let rate = A::real(step.learning_rate);
        let Some(momentum) = momentum else {
            for (param, &grad) in param.iter_mut().zip(grad) {
                *param = *param - rate * S::mul_add(decay, *param, grad * scale);
            }
            return;
        };
        let factor = A::real(step.momentum);
        // The first step takes the gradient whole, whatever the buffer holds.
        let first = step.step == 1;
        let rest = A::real(1.0 - step.dampening);
        for ((param, &grad), buffer) in param.iter_mut().zip(grad).zip(momentum) {
            let g = S::mul_add(decay, *param, grad * scale);
            *buffer = if first { g } else { S::mul_add(factor, *buffer, rest * g) };
            let update = if step.nesterov { S::mul_add(factor, *buffer, g) } else { *buffer };
            *param -= rate * update;
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use sneppx_contract::{HostSlice, HostVec, Memory};

    use super::*;
    use crate::{Cpu, CpuOptions};

    fn step(step: u64) -> AdamWStep {
        AdamWStep {
            learning_rate: 0.1,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.1,
            step,
            gradient_scale: 1.0,
        }
    }

    /// The parameter after one step for each of `grads`.
    fn run(param: HostVec, grads: &[HostVec], of: impl Fn(u64) -> AdamWStep) -> Vec<f64> {
        let device = Cpu::new(CpuOptions { threads: Some(1) }).unwrap();
        let wide = param.dtype().accumulator();
        let moment = || device.upload(HostVec::zeros(wide, param.len()).as_slice()).unwrap();
        let (m, v) = (moment(), moment());
        let param = device.upload(param.as_slice()).unwrap();
        for (index, grad) in grads.iter().enumerate() {
            let grad = device.upload(grad.as_slice()).unwrap();
            let [p, g, m, v] = [&param, &grad, &m, &v].map(View::whole);
            adamw_step(of(index as u64 + 1), p, g, m, v).unwrap();
        }
        device.download(&param).unwrap().to_f64()
    }

    #[test]
    fn adam_01_decay_is_decoupled() {
        let run = |grad| run(HostVec::F32(vec![1.0]), &[HostVec::F32(vec![grad])], step);
        assert!((run(0.1)[0] - 0.89000001).abs() < 1e-7);
        assert_eq!(run(0.0)[0] as f32, 0.99);
    }

    #[test]
    fn adam_02_epsilon_is_added_to_the_corrected_root() {
        let of = |number| AdamWStep {
            learning_rate: 1.0,
            epsilon: 1e-3,
            weight_decay: 0.0,
            ..step(number)
        };
        let grads = [HostVec::F64(vec![1e-3]), HostVec::F64(vec![2e-3])];
        let run = |count| run(HostVec::F64(vec![0.0]), &grads[..count], of)[0];
        assert!((run(1) + 0.5).abs() < 1e-9);
        assert!((run(2) + 1.0912798946).abs() < 1e-9);
    }

    #[test]
    fn adam_06_a_gradient_of_zero_leaves_f16_parameters_alone() {
        let of = |number| AdamWStep { learning_rate: 1e-3, weight_decay: 0.0, ..step(number) };
        let param = [1.0, -2.0, 0.5].map(f16::from_f32).to_vec();
        let zero = HostVec::F16(vec![f16::ZERO; 3]);
        let got = run(HostVec::F16(param), &[zero.clone(), zero.clone(), zero], of);
        assert_eq!(got, [1.0, -2.0, 0.5]);
    }

    #[test]
    fn step_0_and_a_missing_momentum_buffer_are_refused() {
        let device = Cpu::new(CpuOptions { threads: Some(1) }).unwrap();
        let buffers = [0; 4].map(|_| device.upload(HostSlice::F32(&[1.0])).unwrap());
        let [p, g, m, v] = [0, 1, 2, 3].map(|at| View::whole(&buffers[at]));
        let message = adamw_step(step(0), p, g, m, v).unwrap_err().to_string();
        assert!(message.contains("step = 0"), "{message}");
        let step = SgdStep {
            learning_rate: 0.1,
            momentum: 0.9,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            step: 1,
            gradient_scale: 1.0,
        };
        let message = sgd_step(step, p, g, None).unwrap_err().to_string();
        assert!(message.contains("momentum = 0.9"), "{message}");
    }
}
