//! Sums, means and extremes over dimensions.

use sneppx_contract::{Device, Error, ReduceKind, Result, Shape, Store};

use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

impl<D: Device> Tensor<D> {
    /// Reduces over `dims`, which stay as dimensions of size 1.
    ///
    /// The gradient of an extreme goes to every element that equals it, in equal parts.
    ///
    /// # Errors
    /// A dimension that does not exist; the largest or smallest of nothing.
    pub fn reduce(&self, kind: ReduceKind, dims: &[usize]) -> Result<Tensor<D>> {
        let mut shape = *self.shape();
        for &dim in dims {
            self.dim(dim)?;
            shape = shape.with_dim(dim, 1);
        }
        let out = Tensor::empty(self.device(), self.dtype(), shape)?;
        self.device().reduce(kind, self.view(), Store::Overwrite, out.view())?;
        Ok(match kind {
            ReduceKind::Sum => record(out, &[self], || Box::new(Sum { shape: *self.shape() })),
            ReduceKind::Max | ReduceKind::Min => record(out.clone(), &[self], || {
                Box::new(Extreme { x: self.detach(), extreme: out })
            }),
        })
    }

    /// The sum over `dims`, which are dropped.
    ///
    /// # Errors
    /// A dimension that does not exist or is named twice.
    pub fn sum(&self, dims: &[usize]) -> Result<Tensor<D>> {
        self.reduce(ReduceKind::Sum, dims)?.without_dims(dims)
    }

    /// The mean over `dims`, which are dropped. The mean of nothing is NaN.
    ///
    /// # Errors
    /// A dimension that does not exist or is named twice.
    pub fn mean(&self, dims: &[usize]) -> Result<Tensor<D>> {
        let mut count = 1;
        for &dim in dims {
            count *= self.dim(dim)?;
        }
        self.sum(dims)?.mul_scalar(1.0 / count as f64)
    }

    /// The largest over `dims`, which are dropped.
    ///
    /// # Errors
    /// A dimension that does not exist or is named twice; the largest of nothing.
    pub fn max(&self, dims: &[usize]) -> Result<Tensor<D>> {
        self.reduce(ReduceKind::Max, dims)?.without_dims(dims)
    }

    /// The smallest over `dims`, which are dropped.
    ///
    /// # Errors
    /// A dimension that does not exist or is named twice; the smallest of nothing.
    pub fn min(&self, dims: &[usize]) -> Result<Tensor<D>> {
        self.reduce(ReduceKind::Min, dims)?.without_dims(dims)
    }

    /// The sum of all elements, a scalar.
    pub fn sum_all(&self) -> Result<Tensor<D>> {
        self.sum(&all_dims(self))
    }

    /// The mean of all elements, a scalar.
    pub fn mean_all(&self) -> Result<Tensor<D>> {
        self.mean(&all_dims(self))
    }

    fn without_dims(&self, dims: &[usize]) -> Result<Tensor<D>> {
        let mut kept = Vec::with_capacity(self.ndim());
        for (dim, &size) in self.shape().iter().enumerate() {
            match dims.iter().filter(|&&dropped| dropped == dim).count() {
                0 => kept.push(size),
                1 => {}
                _ => {
                    let detail = format!("dimension {dim} is named twice in {dims:?}");
                    return Err(Error::shape("reduce", detail));
                }
            }
        }
        self.reshape(&kept)
    }
}

fn all_dims<D: Device>(x: &Tensor<D>) -> Vec<usize> {
    (0..x.ndim()).collect()
}

struct Sum {
    shape: Shape,
}

impl<D: Device> Rule<D> for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dy = grad.tensor();
        inputs.add(0, dy.with_layout(dy.layout().broadcast_to(&self.shape)?))
    }
}

struct Extreme<D: Device> {
    x: Tensor<D>,
    extreme: Tensor<D>,
}

impl<D: Device> Rule<D> for Extreme<D> {
    fn name(&self) -> &'static str {
        "extreme"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dims: Vec<usize> =
            (0..self.x.ndim()).filter(|&dim| self.extreme.shape()[dim] == 1).collect();
        let hit = self.x.eq(&self.extreme)?.cast(self.x.dtype())?;
        let count = hit.reduce(ReduceKind::Sum, &dims)?;
        inputs.give(0, hit.mul(&grad.tensor().div(&count)?)?)
    }
}
