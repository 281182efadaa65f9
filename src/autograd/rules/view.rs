//! Views: the same memory under another layout.

use sneppx_contract::{Buffer, Device, Error, Layout, Result, Shape};

use super::elementwise::unstretch;
use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

impl<D: Device> Tensor<D> {
    /// The same elements in row-major order under another shape; copies only where the layout
    /// forces it.
    ///
    /// # Errors
    /// Another number of elements.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor<D>> {
        let shape = Shape::new(shape)?;
        let out = match self.layout().reshape(&shape)? {
            Some(layout) => self.with_layout(layout),
            None => self.packed()?.with_layout(Layout::contiguous(shape)),
        };
        Ok(record(out, &[self], || Box::new(Reshape { shape: *self.shape() })))
    }

    /// All elements in row-major order, as one dimension.
    pub fn flatten(&self) -> Result<Tensor<D>> {
        self.reshape(&[self.numel()])
    }

    /// Dimensions `first` and `second` exchanged, without a copy.
    ///
    /// # Errors
    /// A dimension that does not exist.
    pub fn transpose(&self, first: usize, second: usize) -> Result<Tensor<D>> {
        let mut order: Vec<usize> = (0..self.ndim()).collect();
        self.dim(first)?;
        self.dim(second)?;
        order.swap(first, second);
        self.permute(&order)
    }

    /// Dimensions in another order, without a copy: dimension `i` of the result is dimension
    /// `order[i]` of this.
    ///
    /// # Errors
    /// Not a permutation of the dimensions.
    pub fn permute(&self, order: &[usize]) -> Result<Tensor<D>> {
        let out = self.with_layout(self.layout().permute(order)?);
        Ok(record(out, &[self], || {
            let mut inverse = vec![0; order.len()];
            order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
            Box::new(Permute { inverse })
        }))
    }

    /// Elements `start..start + len` along `dim`, without a copy.
    ///
    /// # Errors
    /// A range outside the dimension.
    pub fn slice(&self, dim: usize, start: usize, len: usize) -> Result<Tensor<D>> {
        let out = self.with_layout(self.layout().narrow(dim, start, len)?);
        Ok(record(out, &[self], || Box::new(Slice { dim, start, shape: *self.shape() })))
    }

    /// Index `index` along `dim`, which is dropped, without a copy.
    ///
    /// # Errors
    /// An index outside the dimension.
    pub fn at(&self, dim: usize, index: usize) -> Result<Tensor<D>> {
        self.slice(dim, index, 1)?.squeeze(dim)
    }

    /// A new dimension of size 1 before dimension `dim`.
    ///
    /// # Errors
    /// `dim` beyond the number of dimensions.
    pub fn unsqueeze(&self, dim: usize) -> Result<Tensor<D>> {
        let layout = self.layout().unsqueeze(dim)?;
        self.reshape(layout.shape())
    }

    /// Without dimension `dim`, which must have size 1.
    ///
    /// # Errors
    /// Another size.
    pub fn squeeze(&self, dim: usize) -> Result<Tensor<D>> {
        let layout = self.layout().squeeze(dim)?;
        self.reshape(layout.shape())
    }

    /// Stretched to `shape` by repeating dimensions of size 1 and adding ones at the left, without
    /// a copy.
    ///
    /// # Errors
    /// A size that is neither equal nor 1.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor<D>> {
        let out = self.with_layout(self.layout().broadcast_to(&Shape::new(shape)?)?);
        Ok(record(out, &[self], || Box::new(Stretch { shape: *self.shape() })))
    }

    /// The same elements without gaps; no copy if they lie so already.
    pub fn contiguous(&self) -> Result<Tensor<D>> {
        if self.layout().is_contiguous() {
            return Ok(self.clone());
        }
        let out = self.packed()?;
        Ok(record(out, &[self], || Box::new(Reshape { shape: *self.shape() })))
    }
}

struct Reshape {
    shape: Shape,
}

impl<D: Device> Rule<D> for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dx = grad.tensor().reshape(&self.shape)?;
        let own = dx.buffer().same_memory(grad.tensor().buffer());
        if own && !grad.is_exclusive() { inputs.add(0, dx) } else { inputs.give(0, dx) }
    }
}

struct Permute {
    inverse: Vec<usize>,
}

impl<D: Device> Rule<D> for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        inputs.add(0, grad.tensor().permute(&self.inverse)?)
    }
}

struct Slice {
    dim: usize,
    start: usize,
    shape: Shape,
}

impl<D: Device> Rule<D> for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        use sneppx_contract::Store;
        let dy = grad.tensor();
        let (device, len) = (dy.device().clone(), dy.dim(self.dim)?);
        inputs.write(0, &mut |dx, store| {
            if store == Store::Overwrite {
                device.fill(0.0, dx)?;
            }
            let mut part = dx;
            part.layout = dx.layout.narrow(self.dim, self.start, len)?;
            if part.layout.shape() != dy.shape() || dx.layout.shape() != &self.shape {
                return Err(Error::Internal(format!("slice of {:?}", self.shape)));
            }
            device.scaled_add(1.0, dy.view(), 1.0, part)
        })
    }
}

struct Stretch {
    shape: Shape,
}

impl<D: Device> Rule<D> for Stretch {
    fn name(&self) -> &'static str {
        "broadcast_to"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        unstretch(grad.tensor(), &self.shape, 0, inputs)
    }
}
