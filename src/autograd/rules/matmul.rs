//! Matrix products, batched, with broadcast leading dimensions.

use sneppx_contract::{Device, Error, Result, Shape, Store};

use super::elementwise::{stretch, unstretch};
use crate::tensor::{Accumulate, Gradient, Rule, Saved, Tensor, record};

impl<D: Device> Tensor<D> {
    /// `self · other` over the last two dimensions, `[..., M, K] · [..., K, N]`; leading
    /// dimensions broadcast.
    ///
    /// # Errors
    /// Fewer than two dimensions, inner dimensions that differ, leading ones that do not
    /// broadcast, different or integer dtypes.
    pub fn matmul(&self, other: &Tensor<D>) -> Result<Tensor<D>> {
        let (a, b) = broadcast_leading(self, other)?;
        let dims = sneppx_contract::check::matmul_shapes(a.shape(), b.shape())?;
        let shape = Shape::new(&[&dims.batch[..], &[dims.m, dims.n]].concat())?;
        let out = Tensor::empty(self.device(), self.dtype(), shape)?;
        self.device().matmul(1.0, a.view(), b.view(), 0.0, out.view())?;
        Ok(record(out, &[self, other], || {
            Box::new(Matmul { operands: [Saved::new(self), Saved::new(other)] })
        }))
    }
}

/// Both operands with equal leading dimensions, without a record.
fn broadcast_leading<D: Device>(
    left: &Tensor<D>,
    right: &Tensor<D>,
) -> Result<(Tensor<D>, Tensor<D>)> {
    let (a, b) = (left.shape(), right.shape());
    if a.ndim() < 2 || b.ndim() < 2 {
        let detail = format!("lhs {a:?} and rhs {b:?}: both need at least two dimensions");
        return Err(Error::shape("matmul", detail));
    }
    let (a_lead, a_matrix) = a.split_at(a.ndim() - 2);
    let (b_lead, b_matrix) = b.split_at(b.ndim() - 2);
    let lead = Shape::broadcast("matmul", &Shape::new(a_lead)?, &Shape::new(b_lead)?)?;
    let full = |matrix: &[usize]| Shape::new(&[&lead[..], matrix].concat());
    Ok((stretch(left, &full(a_matrix)?)?, stretch(right, &full(b_matrix)?)?))
}

struct Matmul<D: Device> {
    operands: [Saved<D>; 2],
}

impl<D: Device> Rule<D> for Matmul<D> {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dy = grad.tensor();
        let [left, right] = &self.operands;
        let (left, right) = (left.value()?, right.value()?);
        let (a, b) = broadcast_leading(&left, &right)?;
        let transposed = |x: &Tensor<D>| {
            let layout = x.layout().transpose(x.ndim() - 2, x.ndim() - 1)?;
            Ok(x.with_layout(layout))
        };
        // da = dy · bᵀ and db = aᵀ · dy
        if inputs.needs(0) {
            product(dy, &transposed(&b)?, [a.shape(), left.shape()], 0, inputs)?;
        }
        if inputs.needs(1) {
            product(&transposed(&a)?, dy, [b.shape(), right.shape()], 1, inputs)?;
        }
        Ok(())
    }
}

/// Gives `left · right`, of the first shape, as the gradient of input `input`, of the second.
fn product<D: Device>(
    left: &Tensor<D>,
    right: &Tensor<D>,
    [full, own]: [&Shape; 2],
    input: usize,
    inputs: &mut dyn Accumulate<D>,
) -> Result<()> {
    let device = left.device().clone();
    if full == own {
        return inputs.write(input, &mut |out, store| {
            device.matmul(1.0, left.view(), right.view(), beta(store), out)
        });
    }
    let part = Tensor::empty(&device, left.dtype(), *full)?;
    device.matmul(1.0, left.view(), right.view(), 0.0, part.view())?;
    unstretch(&part, own, input, inputs)
}

/// The factor on an output's old values.
pub(super) fn beta(store: Store) -> f64 {
    match store {
        Store::Overwrite => 0.0,
        Store::Add => 1.0,
    }
}
