//! The linear map of a layer, with its weight stored as `[out, in]`.

use sneppx_contract::{Device, Error, ReduceKind, Result, Shape};

use super::matmul::beta;
use crate::tensor::{Accumulate, Gradient, Rule, Saved, Tensor, record};

impl<D: Device> Tensor<D> {
    /// `self · weightᵀ + bias` over the last dimension: `self` `[..., I]`, `weight` `[O, I]`,
    /// `bias` `[O]`, result `[..., O]`.
    ///
    /// # Errors
    /// Sizes that disagree; different or integer dtypes.
    pub fn linear(&self, weight: &Tensor<D>, bias: Option<&Tensor<D>>) -> Result<Tensor<D>> {
        const NAME: &str = "linear";
        let x = self.as_rows(NAME)?;
        let (&[rows, inputs], &[outputs, weight_inputs]) = (&x.shape()[..], &weight.shape()[..])
        else {
            let detail = format!("weight is {:?}, expected [outputs, inputs]", weight.shape());
            return Err(Error::shape(NAME, detail));
        };
        if inputs != weight_inputs {
            let detail = format!(
                "input {:?} and weight {:?} disagree: {inputs} and {weight_inputs} inputs",
                self.shape(),
                weight.shape()
            );
            return Err(Error::shape(NAME, detail));
        }
        let out = Tensor::empty(self.device(), self.dtype(), Shape::new(&[rows, outputs])?)?;
        let device = self.device();
        device.matmul(1.0, x.view(), transposed(weight)?.view(), 0.0, out.view())?;
        if let Some(bias) = bias {
            device.bias_activation(None, out.view(), Some(bias.view()), out.view())?;
        }
        let shape = self.shape().with_dim(self.ndim() - 1, outputs);
        let out = out.with_layout(sneppx_contract::Layout::contiguous(shape));
        let rule = || -> Box<dyn Rule<D>> {
            let shape = *self.shape();
            Box::new(Linear { x, weight: Saved::new(weight), shape })
        };
        Ok(match bias {
            Some(bias) => record(out, &[self, weight, bias], rule),
            None => record(out, &[self, weight], rule),
        })
    }
}

fn transposed<D: Device>(matrix: &Tensor<D>) -> Result<Tensor<D>> {
    Ok(matrix.with_layout(matrix.layout().transpose(0, 1)?))
}

struct Linear<D: Device> {
    /// `[N, I]`
    x: Tensor<D>,
    /// `[O, I]`
    weight: Saved<D>,
    shape: Shape,
}

impl<D: Device> Rule<D> for Linear<D> {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dy = grad.tensor().as_rows("linear")?; // [N, O]
        let device = dy.device().clone();
        if inputs.needs(0) {
            let weight = self.weight.value()?;
            inputs.write(0, &mut |mut dx, store| {
                dx.layout = rows_of(&dx.layout, &self.shape)?;
                device.matmul(1.0, dy.view(), weight.view(), beta(store), dx)
            })?;
        }
        if inputs.needs(1) {
            let dy_transposed = transposed(&dy)?;
            inputs.write(1, &mut |dw, store| {
                device.matmul(1.0, dy_transposed.view(), self.x.view(), beta(store), dw)
            })?;
        }
        if inputs.needs(2) {
            inputs.write(2, &mut |mut db, store| {
                db.layout = db.layout.unsqueeze(0)?;
                device.reduce(ReduceKind::Sum, dy.view(), store, db)
            })?;
        }
        Ok(())
    }
}

/// The layout of a gradient of shape `shape` as a matrix over its last dimension.
pub(super) fn rows_of(
    layout: &sneppx_contract::Layout,
    shape: &Shape,
) -> Result<sneppx_contract::Layout> {
    let columns = shape.last().copied().unwrap_or(1);
    let rows = shape[..shape.ndim().saturating_sub(1)].iter().product();
    layout
        .reshape(&Shape::new(&[rows, columns])?)?
        .ok_or_else(|| Error::Internal(format!("a gradient of {shape:?} lies as {layout:?}")))
}
