//! Cross entropy straight from logits, and from hidden states without keeping the logits.

use sneppx_contract::{CrossEntropy, Device, Error, Layout, Result, Shape, View};

use super::linear::rows_of;
use super::matmul::beta;
use crate::tensor::{Accumulate, Gradient, Rule, Saved, Tensor, record};

/// How cross entropy treats rows and classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropyOptions {
    /// Rows with this target count nothing: loss 0, gradient 0.
    pub ignore_index: i64,
    /// Weight of the uniform part, `0 <= e < 1`.
    pub label_smoothing: f64,
}

impl Default for CrossEntropyOptions {
    fn default() -> Self {
        CrossEntropyOptions { ignore_index: -100, label_smoothing: 0.0 }
    }
}

impl CrossEntropyOptions {
    fn spec(&self) -> Result<CrossEntropy> {
        let CrossEntropyOptions { ignore_index, label_smoothing } = *self;
        if !(0.0..1.0).contains(&label_smoothing) {
            let reason = "must lie in 0 <= e < 1";
            return Err(Error::invalid("label_smoothing", label_smoothing, reason));
        }
        Ok(CrossEntropy { ignore_index, label_smoothing })
    }
}

/// The most bytes of logits that [`Tensor::linear_cross_entropy`] has at once. A batch whose logits
/// need no more keeps them for the derivative; a larger one is cut by rows and computes them again.
pub const LOGITS_BYTES: usize = 128 << 20;

impl<D: Device> Tensor<D> {
    /// The loss of each row of logits `[N, V]` against `targets` `[N]` (`u32` or `i64`):
    /// `-log softmax(logits)[target]`, `[N]` in the accumulator dtype; ignored rows give 0.
    ///
    /// # Errors
    /// A target that is neither a class nor ignored, with its value and row; sizes that disagree.
    pub fn cross_entropy(
        &self,
        targets: &Tensor<D>,
        options: CrossEntropyOptions,
    ) -> Result<Tensor<D>> {
        let spec = options.spec()?;
        let losses = row_values(self, "cross_entropy")?;
        let log_sum_exp = losses.empty_like()?;
        let device = self.device();
        let (logits, targets) = (self.view(), targets.detach());
        device.cross_entropy(spec, logits, targets.view(), losses.view(), log_sum_exp.view())?;
        Ok(record(losses, &[self], || {
            Box::new(FromLogits { spec, logits: self.detach(), targets, log_sum_exp })
        }))
    }

    /// [`Tensor::cross_entropy`] of the logits `self · weightᵀ`, with `self` `[N, C]` and `weight`
    /// `[V, C]`, never holding more than [`LOGITS_BYTES`] of them.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`].
    pub fn linear_cross_entropy(
        &self,
        weight: &Tensor<D>,
        targets: &Tensor<D>,
        options: CrossEntropyOptions,
    ) -> Result<Tensor<D>> {
        self.chunked_cross_entropy(weight, targets, options, LOGITS_BYTES)
    }

    /// [`Tensor::linear_cross_entropy`] with another bound on the bytes of logits.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`].
    pub fn chunked_cross_entropy(
        &self,
        weight: &Tensor<D>,
        targets: &Tensor<D>,
        options: CrossEntropyOptions,
        logits_bytes: usize,
    ) -> Result<Tensor<D>> {
        let dims = sneppx_contract::check::matmul_shapes(
            self.shape(),
            weight.layout().transpose(0, 1)?.shape(),
        )?;
        if targets.shape()[..] != [dims.m] {
            let detail = format!("hidden {:?}, targets {:?}", self.shape(), targets.shape());
            return Err(Error::shape("linear_cross_entropy", detail));
        }
        let row_bytes = (dims.n * self.dtype().size()).max(1);
        let chunk = (logits_bytes / row_bytes).clamp(1, dims.m.max(1));
        let losses = row_values(self, "linear_cross_entropy")?;
        let log_sum_exp = losses.empty_like()?;
        let mut head = Head {
            spec: options.spec()?,
            hidden: self.packed()?,
            weight: Saved::new(weight),
            targets: targets.packed()?,
            log_sum_exp,
            logits: None,
            chunk,
        };
        for (start, len) in head.chunks() {
            let logits = head.logits_of(&weight.detach(), start, len)?;
            let result = self.device().cross_entropy(
                head.spec,
                logits.view(),
                part(&head.targets, start, len).view(),
                part(&losses, start, len).view(),
                part(&head.log_sum_exp, start, len).view(),
            );
            result.map_err(|error| in_whole_batch(error, start))?;
            if len == dims.m {
                head.logits = Some(logits);
            }
        }
        Ok(record(losses, &[self, weight], || Box::new(head)))
    }
}

/// The error of a chunk that starts at row `start`, with the row of the whole batch.
fn in_whole_batch(error: Error, start: usize) -> Error {
    match error {
        Error::IndexOutOfRange { operation, index, position, bound } => {
            Error::IndexOutOfRange { operation, index, position: position + start, bound }
        }
        other => other,
    }
}

/// One value per row of `x`, in its accumulator dtype.
fn row_values<D: Device>(x: &Tensor<D>, name: &'static str) -> Result<Tensor<D>> {
    let &[rows, _] = &x.shape()[..] else {
        return Err(Error::shape(name, format!("{:?}, expected [rows, classes]", x.shape())));
    };
    Tensor::empty(x.device(), x.dtype().accumulator(), Shape::new(&[rows])?)
}

/// Elements `start..start + len` of a gapless vector.
fn part<D: Device>(vector: &Tensor<D>, start: usize, len: usize) -> Tensor<D> {
    vector.with_layout(Layout::flat(vector.layout().offset() + start, len))
}

struct FromLogits<D: Device> {
    spec: CrossEntropy,
    logits: Tensor<D>,
    targets: Tensor<D>,
    log_sum_exp: Tensor<D>,
}

impl<D: Device> Rule<D> for FromLogits<D> {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let device = self.logits.device().clone();
        let (logits, targets) = (self.logits.view(), self.targets.view());
        let (log_sum_exp, dlosses) = (self.log_sum_exp.view(), grad.tensor().view());
        inputs.fresh(0, &mut |dlogits| {
            device.cross_entropy_backward(self.spec, logits, targets, log_sum_exp, dlosses, dlogits)
        })
    }
}

/// The last layer of a language model together with its loss.
struct Head<D: Device> {
    spec: CrossEntropy,
    /// `[N, C]`
    hidden: Tensor<D>,
    /// `[V, C]`
    weight: Saved<D>,
    targets: Tensor<D>,
    log_sum_exp: Tensor<D>,
    /// `[N, V]`, if all of them fit the bound.
    logits: Option<Tensor<D>>,
    /// Rows whose logits are held at once.
    chunk: usize,
}

impl<D: Device> Head<D> {
    /// First row and number of rows of each chunk; one empty chunk where there are no rows, so that
    /// the weight gets its gradient of zeros.
    fn chunks(&self) -> Vec<(usize, usize)> {
        let rows = self.hidden.shape()[0];
        let starts = (0..rows.max(1)).step_by(self.chunk);
        starts.map(|at| (at, self.chunk.min(rows - at))).collect()
    }

    fn logits_of(&self, weight: &Tensor<D>, start: usize, len: usize) -> Result<Tensor<D>> {
        let rows = self.hidden.slice(0, start, len)?;
        let shape = Shape::new(&[len, weight.dim(0)?])?;
        let logits = Tensor::empty(weight.device(), weight.dtype(), shape)?;
        let transposed = View::new(weight.buffer(), weight.layout().transpose(0, 1)?);
        weight.device().matmul(1.0, rows.view(), transposed, 0.0, logits.view())?;
        Ok(logits)
    }
}

impl<D: Device> Rule<D> for Head<D> {
    fn name(&self) -> &'static str {
        "linear_cross_entropy"
    }

    fn backward(
        mut self: Box<Self>,
        grad: Gradient<D>,
        inputs: &mut dyn Accumulate<D>,
    ) -> Result<()> {
        let weight = self.weight.value()?;
        let device = weight.device().clone();
        let dlosses = grad.tensor();
        let dhidden = self.hidden.empty_like()?;
        let kept = self.logits.take();
        for (start, len) in self.chunks() {
            let logits = match &kept {
                Some(logits) => logits.clone(),
                None => self.logits_of(&weight, start, len)?,
            };
            let dlosses = dlosses.slice(0, start, len)?;
            device.cross_entropy_backward(
                self.spec,
                logits.view(),
                part(&self.targets, start, len).view(),
                part(&self.log_sum_exp, start, len).view(),
                dlosses.view(),
                logits.view(),
            )?;
            let dlogits = logits;
            if inputs.needs(0) {
                let rows = dhidden.slice(0, start, len)?;
                device.matmul(1.0, dlogits.view(), weight.view(), 0.0, rows.view())?;
            }
            if inputs.needs(1) {
                let rows = self.hidden.slice(0, start, len)?;
                let transposed = dlogits.with_layout(dlogits.layout().transpose(0, 1)?);
                inputs.write(1, &mut |dweight, store| {
                    device.matmul(1.0, transposed.view(), rows.view(), beta(store), dweight)
                })?;
            }
        }
        if inputs.needs(0) {
            let shape = *dhidden.shape();
            let layout = rows_of(dhidden.layout(), &shape)?;
            inputs.give(0, dhidden.with_layout(layout))?;
        }
        Ok(())
    }
}
