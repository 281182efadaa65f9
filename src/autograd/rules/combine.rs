//! Several tensors joined into one.

use sneppx_contract::{Device, Error, Result};

use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

impl<D: Device> Tensor<D> {
    /// `tensors` one after another along `dim`.
    ///
    /// # Errors
    /// No tensors; shapes that differ in another dimension; different dtypes.
    pub fn concatenate(tensors: &[&Tensor<D>], dim: usize) -> Result<Tensor<D>> {
        const NAME: &str = "concatenate";
        let Some(first) = tensors.first() else {
            return Err(Error::shape(NAME, "there are no tensors to join"));
        };
        first.dim(dim)?;
        let mut sizes = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let size = tensor.shape().get(dim).copied().unwrap_or(0);
            let aligned = tensor.ndim() == first.ndim()
                && tensor.shape().with_dim(dim, 0) == first.shape().with_dim(dim, 0);
            if !aligned {
                let detail = format!(
                    "{:?} and {:?} differ in more than dimension {dim}",
                    first.shape(),
                    tensor.shape()
                );
                return Err(Error::shape(NAME, detail));
            }
            if tensor.dtype() != first.dtype() {
                return Err(Error::dtype(NAME, first.dtype().name(), tensor.dtype()));
            }
            sizes.push(size);
        }
        let shape = first.shape().with_dim(dim, sizes.iter().sum());
        let out = Tensor::empty(first.device(), first.dtype(), shape)?;
        let mut start = 0;
        for (tensor, &size) in tensors.iter().zip(&sizes) {
            let part = out.with_layout(out.layout().narrow(dim, start, size)?);
            out.device().copy(tensor.view(), part.view())?;
            start += size;
        }
        Ok(record(out, tensors, || Box::new(Concatenate { dim, sizes })))
    }

    /// `tensors` of one shape along a new dimension before `dim`.
    ///
    /// # Errors
    /// As [`Tensor::concatenate`].
    pub fn stack(tensors: &[&Tensor<D>], dim: usize) -> Result<Tensor<D>> {
        let parts = tensors.iter().map(|x| x.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
        Tensor::concatenate(&parts.iter().collect::<Vec<_>>(), dim)
    }
}

struct Concatenate {
    dim: usize,
    sizes: Vec<usize>,
}

impl<D: Device> Rule<D> for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let mut start = 0;
        for (input, &size) in self.sizes.iter().enumerate() {
            inputs.add(input, grad.tensor().slice(self.dim, start, size)?)?;
            start += size;
        }
        Ok(())
    }
}
