//! Rows chosen by index, and sums into chosen rows.

use sneppx_contract::{DType, Device, Error, Result, Shape, Store};

use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

impl<D: Device> Tensor<D> {
    /// The slices of `self` along `dim` that `indices` (`[N]`, `u32` or `i64`) names; that
    /// dimension of the result has size `N`.
    ///
    /// # Errors
    /// An index outside the dimension, with its value and place.
    pub fn index_select(&self, dim: usize, indices: &Tensor<D>) -> Result<Tensor<D>> {
        self.dim(dim)?;
        let count = one_dimensional("index_select", indices)?;
        // The chosen dimension first: any layout is welcome to the device.
        let table = self.with_layout(self.layout().transpose(0, dim)?);
        let out = Tensor::empty(self.device(), self.dtype(), table.shape().with_dim(0, count))?;
        self.device().index_select(table.view(), indices.view(), out.view())?;
        let out = out.with_layout(out.layout().transpose(0, dim)?);
        Ok(record(out, &[self], || {
            Box::new(IndexSelect { dim, indices: indices.detach(), shape: *self.shape() })
        }))
    }

    /// Rows of this table `[V, C]` for `indices` of any shape: `[..., C]`. The embedding of tokens.
    ///
    /// # Errors
    /// A table without two dimensions; an index outside it.
    pub fn embedding(&self, indices: &Tensor<D>) -> Result<Tensor<D>> {
        let &[_, columns] = &self.shape()[..] else {
            let detail = format!("the table is {:?}, expected [rows, columns]", self.shape());
            return Err(Error::shape("embedding", detail));
        };
        let rows = self.index_select(0, &indices.flatten()?)?;
        rows.reshape(&[&indices.shape()[..], &[columns]].concat())
    }

    /// `self` with `source[i]` added to slice `indices[i]` along `dim`, in ascending order of `i`.
    ///
    /// # Errors
    /// An index outside the dimension; a source of another shape.
    pub fn index_add(
        &self,
        dim: usize,
        indices: &Tensor<D>,
        source: &Tensor<D>,
    ) -> Result<Tensor<D>> {
        self.dim(dim)?;
        source.dim(dim)?;
        let out = Tensor::empty(self.device(), self.dtype(), *self.shape())?;
        self.device().copy(self.view(), out.view())?;
        let rows = out.with_layout(out.layout().transpose(0, dim)?);
        let added = source.with_layout(source.layout().transpose(0, dim)?);
        self.device().index_add(indices.view(), added.view(), rows.view())?;
        Ok(record(out, &[self, source], || Box::new(IndexAdd { dim, indices: indices.detach() })))
    }

    /// One element of each row of the last dimension: `indices` has this tensor's shape but for
    /// the last dimension, and so has the result: `out[.., j] = self[.., indices[.., j]]`.
    ///
    /// # Errors
    /// Shapes that disagree; an index outside the last dimension.
    pub fn gather(&self, indices: &Tensor<D>) -> Result<Tensor<D>> {
        let flat = self.flat_indices("gather", indices)?;
        self.flatten()?.index_select(0, &flat)?.reshape(indices.shape())
    }

    /// `self` with `source[.., j]` added at `indices[.., j]` of the last dimension, in row-major
    /// order: the counterpart of [`Tensor::gather`].
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    pub fn scatter_add(&self, indices: &Tensor<D>, source: &Tensor<D>) -> Result<Tensor<D>> {
        let flat = self.flat_indices("scatter_add", indices)?;
        let sum = self.flatten()?.index_add(0, &flat, &source.flatten()?)?;
        sum.reshape(self.shape())
    }

    /// Indices into the last dimension as indices into all elements.
    fn flat_indices(&self, name: &'static str, indices: &Tensor<D>) -> Result<Tensor<D>> {
        let (Some((&columns, lead)), Some((&chosen, index_lead))) =
            (self.shape().split_last(), indices.shape().split_last())
        else {
            return Err(Error::shape(name, "a scalar has no last dimension"));
        };
        if lead != index_lead {
            let detail = format!("{:?} and indices {:?} disagree", self.shape(), indices.shape());
            return Err(Error::shape(name, detail));
        }
        let chosen_in_rows = indices.cast(DType::I64)?.to_vec::<i64>()?;
        let mut flat = Vec::with_capacity(chosen_in_rows.len());
        for (position, index) in chosen_in_rows.into_iter().enumerate() {
            let column = sneppx_contract::check::index(name, index, position, columns)?;
            flat.push((position / chosen.max(1) * columns + column) as i64);
        }
        Tensor::from_slice(self.device(), &flat, &[flat.len()])
    }
}

fn one_dimensional<D: Device>(name: &'static str, indices: &Tensor<D>) -> Result<usize> {
    match &indices.shape()[..] {
        &[count] => Ok(count),
        other => Err(Error::shape(name, format!("indices are {other:?}, expected one dimension"))),
    }
}

struct IndexSelect<D: Device> {
    dim: usize,
    indices: Tensor<D>,
    shape: Shape,
}

impl<D: Device> Rule<D> for IndexSelect<D> {
    fn name(&self) -> &'static str {
        "index_select"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let dy = grad.tensor();
        let dy = dy.with_layout(dy.layout().transpose(0, self.dim)?);
        let device = dy.device().clone();
        inputs.write(0, &mut |dx, store| {
            if *dx.layout.shape() != self.shape {
                return Err(Error::Internal(format!("index_select of {:?}", self.shape)));
            }
            if store == Store::Overwrite {
                device.fill(0.0, dx)?;
            }
            let mut rows = dx;
            rows.layout = dx.layout.transpose(0, self.dim)?;
            device.index_add(self.indices.view(), dy.view(), rows)
        })
    }
}

struct IndexAdd<D: Device> {
    dim: usize,
    indices: Tensor<D>,
}

impl<D: Device> Rule<D> for IndexAdd<D> {
    fn name(&self) -> &'static str {
        "index_add"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        if inputs.needs(1) {
            inputs.give(1, grad.tensor().index_select(self.dim, &self.indices)?)?;
        }
        inputs.add(0, grad.tensor().clone())
    }
}
