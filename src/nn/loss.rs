//! Cross entropy as users of other frameworks know it.

use sneppx_contract::{Device, Error, Result};

use crate::autograd::rules::CrossEntropyOptions;
use crate::tensor::Tensor;

/// What becomes of the losses of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossReduction {
    /// One loss per row; 0 for ignored rows.
    None,
    /// Their sum.
    Sum,
    /// Their mean over the rows that are not ignored. NaN where all are, with a gradient of 0.
    #[default]
    Mean,
}

/// Cross entropy between logits and class indices.
///
/// ```
/// use sneppx::{Tensor, cpu::Cpu, nn::CrossEntropyLoss};
/// let device = Cpu::with_threads(1)?;
/// let logits = Tensor::from_slice(&device, &[0.0f32, 0.0], &[1, 2])?;
/// let targets = Tensor::from_slice(&device, &[1u32], &[1])?;
/// let loss = CrossEntropyLoss::default().apply(&logits, &targets)?;
/// assert!((loss.item()? - std::f64::consts::LN_2).abs() < 1e-6);
/// # Ok::<(), sneppx::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossEntropyLoss {
    /// Ignored targets and label smoothing.
    pub options: CrossEntropyOptions,
    /// What becomes of the losses of the rows.
    pub reduction: LossReduction,
}

impl CrossEntropyLoss {
    /// The loss of `logits` `[N, V]` against `targets` `[N]`, in the accumulator dtype: `[N]`
    /// without a reduction, a scalar otherwise.
    ///
    /// # Errors
    /// A target that is neither a class nor ignored, with its value and row; sizes that disagree.
    pub fn apply<D: Device>(&self, logits: &Tensor<D>, targets: &Tensor<D>) -> Result<Tensor<D>> {
        let losses = logits.cross_entropy(targets, self.options)?;
        match self.reduction {
            LossReduction::None => Ok(losses),
            LossReduction::Sum => losses.sum_all(),
            LossReduction::Mean => self.mean(&losses, targets),
        }
    }

    fn mean<D: Device>(&self, losses: &Tensor<D>, targets: &Tensor<D>) -> Result<Tensor<D>> {
        let ignored = Tensor::full(targets.device(), sneppx_contract::DType::I64, &[], 0.0)?;
        let index = self.options.ignore_index;
        ignored.device().write(sneppx_contract::HostSlice::I64(&[index]), ignored.buffer(), 0)?;
        let counted = targets.cast(sneppx_contract::DType::I64)?.ne(&ignored)?;
        let count = counted.cast(losses.dtype())?.sum_all()?;
        if count.item()? == 0.0 {
            if losses.numel() == 0 {
                return Err(Error::shape("cross_entropy", "the mean of no rows is undefined"));
            }
            // A finite zero keeps the graph; adding NaN leaves its gradient at exactly 0.
            return losses.sum_all()?.add_scalar(f64::NAN);
        }
        losses.sum_all()?.div(&count)
    }
}
