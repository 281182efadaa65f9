//! The optimizers on contiguous runs, for whoever owns parameters as slices of flat buffers.

use sneppx_contract::{DType, Device, Error, Result};

use super::state::check_scale;
use super::{AdamWOptions, SgdOptions};
use crate::tensor::Tensor;

/// AdamW on one contiguous run of parameters: a whole parameter or a slice of a flat buffer. The
/// bits do not depend on how a buffer is cut into runs.
///
/// ```
/// use sneppx::optim::{AdamWOptions, AdamWRun};
/// use sneppx::{DType, Tensor, cpu::Cpu};
/// let device = Cpu::with_threads(1)?;
/// let param = Tensor::from_slice(&device, &[1.0f32, -2.0], &[2])?;
/// let grad = Tensor::from_slice(&device, &[0.5f32, 0.0], &[2])?;
/// let options = AdamWOptions { learning_rate: 0.1, weight_decay: 0.0, ..Default::default() };
/// let mut run = AdamWRun::zeros(&device, DType::F32, 2)?;
/// run.step(&options, &param, &grad, 1.0)?;
/// let moved = param.to_vec::<f32>()?;
/// assert!((moved[0] - 0.9).abs() < 1e-6 && moved[1] == -2.0);
/// # Ok::<(), sneppx::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdamWRun<D: Device> {
    first: Tensor<D>,
    second: Tensor<D>,
    step: u64,
}

impl<D: Device> AdamWRun<D> {
    /// The state before the first step of `len` parameters of `dtype`, in memory of its own.
    ///
    /// # Errors
    /// An integer dtype; out of memory.
    pub fn zeros(device: &D, dtype: DType, len: usize) -> Result<Self> {
        let zeros = || zeros("AdamWRun", device, dtype, len);
        AdamWRun::over(zeros()?, zeros()?, 0)
    }

    /// The state after `step` steps over moments that exist already, for instance slices of flat
    /// buffers; steps write them in place.
    ///
    /// # Errors
    /// Moments of different shapes, or that lie with gaps.
    pub fn over(first_moment: Tensor<D>, second_moment: Tensor<D>, step: u64) -> Result<Self> {
        const NAME: &str = "AdamWRun";
        let (first, second) = (first_moment.detach(), second_moment.detach());
        if first.shape() != second.shape() {
            let names = ("first moment", "second moment");
            let (left, right) = (first.shape(), second.shape());
            return Err(Error::shapes_differ(NAME, names.0, left, names.1, right));
        }
        check_without_gaps(NAME, "first moment", &first)?;
        check_without_gaps(NAME, "second moment", &second)?;
        Ok(AdamWRun { first, second, step })
    }

    /// The moving average of the gradient, not corrected for its start at 0.
    pub fn first_moment(&self) -> &Tensor<D> {
        &self.first
    }

    /// The moving average of the gradient's square, not corrected for its start at 0.
    pub fn second_moment(&self) -> &Tensor<D> {
        &self.second
    }

    /// Steps taken.
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// One step of the run `param` along `grad`, in place, with the gradient multiplied by
    /// `gradient_scale` first.
    ///
    /// # Errors
    /// Settings that make no sense, a scale that is not finite, runs of different lengths or
    /// dtypes or with gaps; nothing has changed then.
    pub fn step(
        &mut self,
        options: &AdamWOptions,
        param: &Tensor<D>,
        grad: &Tensor<D>,
        gradient_scale: f64,
    ) -> Result<()> {
        options.check()?;
        check_scale(gradient_scale)?;
        let step = options.kernel_step(self.step + 1, gradient_scale);
        let (first, second) = (self.first.view(), self.second.view());
        param.device().adamw_step(step, param.view(), grad.view(), first, second)?;
        self.step = step.step;
        Ok(())
    }
}

/// [`Sgd`](super::Sgd) on one contiguous run of parameters, as [`AdamWRun`] is for AdamW.
#[derive(Clone, Debug)]
pub struct SgdRun<D: Device> {
    momentum: Option<Tensor<D>>,
    step: u64,
}

impl<D: Device> SgdRun<D> {
    /// The state before the first step of `len` parameters of `dtype`; without momentum in
    /// `options` it needs no memory.
    ///
    /// # Errors
    /// An integer dtype; out of memory.
    pub fn zeros(options: &SgdOptions, device: &D, dtype: DType, len: usize) -> Result<Self> {
        let momentum = (options.momentum != 0.0).then(|| zeros("SgdRun", device, dtype, len));
        SgdRun::over(momentum.transpose()?, 0)
    }

    /// The state after `step` steps over a momentum that exists already, for instance a slice of a
    /// flat buffer; steps write it in place.
    ///
    /// # Errors
    /// A momentum that lies with gaps.
    pub fn over(momentum: Option<Tensor<D>>, step: u64) -> Result<Self> {
        let momentum = momentum.map(|momentum| momentum.detach());
        if let Some(momentum) = &momentum {
            check_without_gaps("SgdRun", "momentum", momentum)?;
        }
        Ok(SgdRun { momentum, step })
    }

    /// The direction kept from the steps before, if there is momentum.
    pub fn momentum(&self) -> Option<&Tensor<D>> {
        self.momentum.as_ref()
    }

    /// Steps taken.
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// As [`AdamWRun::step`].
    ///
    /// # Errors
    /// As there, and momentum in `options` but not in the state, or the reverse.
    pub fn step(
        &mut self,
        options: &SgdOptions,
        param: &Tensor<D>,
        grad: &Tensor<D>,
        gradient_scale: f64,
    ) -> Result<()> {
        options.check()?;
        check_scale(gradient_scale)?;
        if (options.momentum != 0.0) != self.momentum.is_some() {
            let reason = "the state was made for the other choice, momentum or none; make it anew";
            return Err(Error::invalid("momentum", options.momentum, reason));
        }
        let step = options.kernel_step(self.step + 1, gradient_scale);
        let momentum = self.momentum.as_ref().map(Tensor::view);
        param.device().sgd_step(step, param.view(), grad.view(), momentum)?;
        self.step = step.step;
        Ok(())
    }
}

fn zeros<D: Device>(
    operation: &'static str,
    device: &D,
    dtype: DType,
    len: usize,
) -> Result<Tensor<D>> {
    if !dtype.is_float() {
        return Err(Error::dtype(operation, "a float dtype", dtype));
    }
    Tensor::zeros(device, dtype.accumulator(), &[len])
}

fn check_without_gaps<D: Device>(
    operation: &'static str,
    name: &str,
    tensor: &Tensor<D>,
) -> Result<()> {
    if tensor.layout().is_contiguous() {
        return Ok(());
    }
    Err(Error::shape(operation, format!("the {name} lies with gaps: {:?}", tensor.layout())))
}
