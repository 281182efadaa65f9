//! Layer norm and RMS norm over the last dimension, with the residual sum before them.

use sneppx_contract::{
    Device, Error, Layout, Norm, NormKind, NormOperands, Result, Shape, Store, View, ViewOf,
};

use super::linear::rows_of;
use crate::tensor::{Accumulate, Gradient, Rule, Saved, Tensor, record};

/// What a normalisation after a residual sum gives.
#[derive(Clone, Debug)]
pub struct Normalized<D: Device> {
    /// `x + residual`, the new residual stream.
    pub sum: Tensor<D>,
    /// The sum, normalised.
    pub out: Tensor<D>,
}

impl<D: Device> Tensor<D> {
    /// Layer norm over the last dimension (Ba, Kiros, Hinton, 2016) with scale and shift `[C]`.
    ///
    /// # Errors
    /// A scale or shift that is not `[C]`; integer dtypes.
    pub fn layer_norm(
        &self,
        weight: Option<&Tensor<D>>,
        bias: Option<&Tensor<D>>,
        epsilon: f64,
    ) -> Result<Tensor<D>> {
        self.normalize(Norm { kind: NormKind::Layer, epsilon }, weight, bias)
    }

    /// RMS norm over the last dimension (Zhang and Sennrich, 2019) with scale `[C]`.
    ///
    /// # Errors
    /// A scale that is not `[C]`; integer dtypes.
    pub fn rms_norm(&self, weight: Option<&Tensor<D>>, epsilon: f64) -> Result<Tensor<D>> {
        self.normalize(Norm { kind: NormKind::Rms, epsilon }, weight, None)
    }

    /// Either normalisation over the last dimension.
    ///
    /// # Errors
    /// A scale or shift that is not `[C]`; integer dtypes.
    pub fn normalize(
        &self,
        norm: Norm,
        weight: Option<&Tensor<D>>,
        bias: Option<&Tensor<D>>,
    ) -> Result<Tensor<D>> {
        let x = self.as_rows("normalize")?;
        forward(norm, self, &x, None, weight, bias)
    }

    /// `self + residual`, and its normalisation, in one pass over memory.
    ///
    /// # Errors
    /// Shapes that differ; as [`Tensor::normalize`].
    pub fn add_normalize(
        &self,
        residual: &Tensor<D>,
        norm: Norm,
        weight: Option<&Tensor<D>>,
        bias: Option<&Tensor<D>>,
    ) -> Result<Normalized<D>> {
        const NAME: &str = "add_normalize";
        if self.shape() != residual.shape() {
            let (x, residual) = (self.shape(), residual.shape());
            return Err(Error::shapes_differ(NAME, "input", x, "residual", residual));
        }
        let (x, rest) = (self.as_rows(NAME)?, residual.as_rows(NAME)?);
        let sum_rows = x.empty_like()?;
        let sum = sum_rows.with_layout(Layout::contiguous(*self.shape()));
        let sum = record(sum, &[self, residual], || Box::new(Sum));
        let out = forward(norm, &sum, &x, Some((&rest, &sum_rows)), weight, bias)?;
        Ok(Normalized { sum, out })
    }
}

/// Normalises `x` (plus a residual, whose sum is written) and records it as a function of `source`.
fn forward<D: Device>(
    norm: Norm,
    source: &Tensor<D>,
    x: &Tensor<D>,
    residual: Option<(&Tensor<D>, &Tensor<D>)>,
    weight: Option<&Tensor<D>>,
    bias: Option<&Tensor<D>>,
) -> Result<Tensor<D>> {
    let device = x.device();
    let rows = x.dim(0)?;
    let accumulator = x.dtype().accumulator();
    let statistics = Tensor::empty(device, accumulator, Shape::new(&[2, rows])?)?;
    let out = x.empty_like()?;
    let operands = NormOperands {
        x: x.view(),
        residual: residual.map(|(residual, _)| residual.view()),
        weight: weight.map(Tensor::view),
        bias: bias.map(Tensor::view),
    };
    let sum_view = residual.map(|(_, sum)| sum.view());
    device.normalize(norm, operands, sum_view, statistics.view(), out.view())?;
    let out = out.with_layout(Layout::contiguous(*source.shape()));
    let shape = *source.shape();
    let sum = residual.map_or_else(|| x.clone(), |(_, sum)| sum.clone());
    let rule = || -> Box<dyn Rule<D>> {
        let weight = weight.map(Saved::new);
        Box::new(Normalize { norm, sum, weight, has_bias: bias.is_some(), statistics, shape })
    };
    let inputs: Vec<&Tensor<D>> = [Some(source), weight, bias].into_iter().flatten().collect();
    Ok(record(out, &inputs, rule))
}

/// The residual sum: its gradient goes to both summands unchanged.
struct Sum;

impl<D: Device> Rule<D> for Sum {
    fn name(&self) -> &'static str {
        "residual sum"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        inputs.add(0, grad.tensor().clone())?;
        inputs.add(1, grad.tensor().clone())
    }
}

struct Normalize<D: Device> {
    norm: Norm,
    /// `[N, C]`, what was normalised.
    sum: Tensor<D>,
    weight: Option<Saved<D>>,
    has_bias: bool,
    statistics: Tensor<D>,
    shape: Shape,
}

impl<D: Device> Rule<D> for Normalize<D> {
    fn name(&self) -> &'static str {
        match self.norm.kind {
            NormKind::Layer => "layer_norm",
            NormKind::Rms => "rms_norm",
        }
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dy = grad.tensor().as_rows("normalize")?;
        let weight = self.weight.as_ref().map(Saved::value).transpose()?;
        let bias_input = 1 + usize::from(weight.is_some());
        let wants_weight = weight.is_some() && inputs.needs(1);
        let wants_bias = self.has_bias && inputs.needs(bias_input);
        let columns = Shape::new(&[dy.dim(1)?])?;
        let vector = |wanted: bool| {
            wanted.then(|| Tensor::empty(dy.device(), dy.dtype(), columns)).transpose()
        };
        let (dweight, dbias) = (vector(wants_weight)?, vector(wants_bias)?);
        let fresh = |x: &Option<Tensor<D>>| x.as_ref().map(|x| x.buffer().clone());
        let (dweight_buffer, dbias_buffer) = (fresh(&dweight), fresh(&dbias));
        let run = |dx: ViewOf<'_, D>, dsum: Option<ViewOf<'_, D>>| {
            let whole = |buffer| (View::whole(buffer), Store::Overwrite);
            dy.device().normalize_backward(
                self.norm,
                self.sum.view(),
                weight.as_ref().map(Tensor::view),
                self.statistics.view(),
                dy.view(),
                dsum,
                dx,
                dweight_buffer.as_ref().map(whole),
                dbias_buffer.as_ref().map(whole),
            )
        };
        if inputs.needs(0) {
            inputs.write(0, &mut |mut dx, store| {
                dx.layout = rows_of(&dx.layout, &self.shape)?;
                // The gradient that came down the residual stream is added on the way.
                run(dx, (store == Store::Add).then_some(dx))
            })?;
        } else {
            let unwanted = dy.empty_like()?;
            run(unwanted.view(), None)?;
        }
        if let Some(dweight) = dweight {
            inputs.give(1, dweight)?;
        }
        if let Some(dbias) = dbias {
            inputs.give(bias_input, dbias)?;
        }
        Ok(())
    }
}
