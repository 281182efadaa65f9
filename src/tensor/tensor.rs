//! The tensor type: construction, inspection and transfer to the host.

use std::fmt;
use std::sync::Arc;

use sneppx_contract::{
    Buffer, DType, Device, Distribution, Element, Error, HostVec, Layout, RandomKey, Result, Shape,
    View, ViewOf,
};

use super::{Leaf, Node};

/// A tensor on device `D`: a reference-counted buffer and the layout of its elements in it.
///
/// Operations are methods; they check their operands, call the device once, and record how to
/// differentiate the result where an input needs a gradient.
///
/// ```
/// use sneppx::{Tensor, cpu::Cpu};
/// let device = Cpu::with_threads(1)?;
/// let x = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let y = x.matmul(&x)?;
/// assert_eq!(y.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
/// # Ok::<(), sneppx::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor<D: Device> {
    device: D,
    buffer: D::Buffer,
    layout: Layout,
    origin: Option<Arc<Node<D>>>,
}

impl<D: Device> Tensor<D> {
    /// A tensor of unspecified values, to be written by a kernel.
    pub fn empty(device: &D, dtype: DType, shape: Shape) -> Result<Self> {
        let buffer = device.alloc(dtype, shape.numel())?;
        Ok(Tensor::from_parts(device.clone(), buffer, Layout::contiguous(shape)))
    }

    /// A tensor of unspecified values with this tensor's device, dtype and shape.
    pub fn empty_like(&self) -> Result<Self> {
        Tensor::empty(&self.device, self.dtype(), *self.shape())
    }

    /// A tensor in which every element is `value`.
    pub fn full(device: &D, dtype: DType, shape: &[usize], value: f64) -> Result<Self> {
        let out = Tensor::empty(device, dtype, Shape::new(shape)?)?;
        device.fill(value, out.view())?;
        Ok(out)
    }

    /// A tensor of zeros.
    pub fn zeros(device: &D, dtype: DType, shape: &[usize]) -> Result<Self> {
        Tensor::full(device, dtype, shape, 0.0)
    }

    /// A tensor of ones.
    pub fn ones(device: &D, dtype: DType, shape: &[usize]) -> Result<Self> {
        Tensor::full(device, dtype, shape, 1.0)
    }

    /// A tensor of host values in row-major order.
    ///
    /// # Errors
    /// The number of values is not the number of elements of `shape`.
    pub fn from_slice<T: Element>(device: &D, values: &[T], shape: &[usize]) -> Result<Self> {
        let shape = Shape::new(shape)?;
        if shape.numel() != values.len() {
            let detail = format!("{} values for shape {shape:?}", values.len());
            return Err(Error::shape("from_slice", detail));
        }
        let buffer = device.upload(T::host_slice(values))?;
        Ok(Tensor::from_parts(device.clone(), buffer, Layout::contiguous(shape)))
    }

    /// A tensor of host values of any dtype, in row-major order.
    ///
    /// # Errors
    /// As [`Tensor::from_slice`].
    pub fn from_host(device: &D, values: &HostVec, shape: &[usize]) -> Result<Self> {
        let shape = Shape::new(shape)?;
        if shape.numel() != values.len() {
            let detail = format!("{} values for shape {shape:?}", values.len());
            return Err(Error::shape("from_host", detail));
        }
        let buffer = device.upload(values.as_slice())?;
        Ok(Tensor::from_parts(device.clone(), buffer, Layout::contiguous(shape)))
    }

    /// A scalar.
    pub fn scalar<T: Element>(device: &D, value: T) -> Result<Self> {
        Tensor::from_slice(device, &[value], &[])
    }

    /// `0, 1, …, len - 1` as `dtype`.
    pub fn arange(device: &D, dtype: DType, len: usize) -> Result<Self> {
        let values: Vec<f64> = (0..len).map(|i| i as f64).collect();
        Tensor::from_host(device, &HostVec::from_f64(dtype, &values), &[len])
    }

    /// Random numbers of stream `key`, the same on every device.
    pub fn random(
        device: &D,
        dtype: DType,
        shape: &[usize],
        distribution: Distribution,
        key: RandomKey,
    ) -> Result<Self> {
        let out = Tensor::empty(device, dtype, Shape::new(shape)?)?;
        device.random(distribution, key, 0, out.view())?;
        Ok(out)
    }

    /// Standard normal `f32` numbers of stream `key`.
    pub fn randn(device: &D, shape: &[usize], key: RandomKey) -> Result<Self> {
        let distribution = Distribution::Normal { mean: 0.0, deviation: 1.0 };
        Tensor::random(device, DType::F32, shape, distribution, key)
    }

    /// A tensor over a buffer that exists already.
    ///
    /// # Errors
    /// A layout that does not fit the buffer.
    pub fn from_buffer(device: D, buffer: D::Buffer, layout: Layout) -> Result<Self> {
        layout.check("from_buffer", buffer.len())?;
        Ok(Tensor::from_parts(device, buffer, layout))
    }

    /// The sizes.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The size of dimension `dim`.
    ///
    /// # Errors
    /// A dimension that does not exist.
    pub fn dim(&self, dim: usize) -> Result<usize> {
        self.shape().get(dim).copied().ok_or_else(|| {
            Error::shape("dim", format!("dimension {dim} of {:?} does not exist", self.shape()))
        })
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// The type of every element.
    pub fn dtype(&self) -> DType {
        self.buffer.dtype()
    }

    /// The device the elements live on.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The buffer the elements live in, possibly with others.
    pub fn buffer(&self) -> &D::Buffer {
        &self.buffer
    }

    /// Where the elements lie in the buffer.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What kernels take.
    pub fn view(&self) -> ViewOf<'_, D> {
        View::new(&self.buffer, self.layout)
    }

    /// Every element on the host, in row-major order.
    ///
    /// # Errors
    /// Another dtype than `T`; deferred errors of the device.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            return Err(Error::dtype("to_vec", T::DTYPE.name(), self.dtype()));
        }
        T::from_host(self.to_host()?)
            .ok_or_else(|| Error::Internal("a download changed its dtype".into()))
    }

    /// Every element on the host, in row-major order, in this tensor's dtype.
    pub fn to_host(&self) -> Result<HostVec> {
        match self.layout.contiguous_range() {
            Some(range) => self.device.read(&self.buffer, range),
            None => {
                let packed = self.empty_like()?;
                self.device.copy(self.view(), packed.view())?;
                self.device.download(&packed.buffer)
            }
        }
    }

    /// The value of a tensor with one element, as the nearest `f64`.
    ///
    /// # Errors
    /// More or fewer elements.
    pub fn item(&self) -> Result<f64> {
        if self.numel() != 1 {
            let detail = format!("{:?} has {} elements, not one", self.shape(), self.numel());
            return Err(Error::shape("item", detail));
        }
        Ok(self.to_host()?.to_f64()[0])
    }

    /// The same elements, without the record of how they were computed.
    pub fn detach(&self) -> Self {
        Tensor { origin: None, ..self.clone() }
    }

    /// The same elements as a leaf of the graph, whose gradient `backward` leaves in
    /// [`Tensor::grad`].
    ///
    /// # Errors
    /// An integer dtype.
    pub fn requires_grad(&self) -> Result<Self> {
        if !self.dtype().is_float() {
            return Err(Error::dtype("requires_grad", "a float dtype", self.dtype()));
        }
        let leaf = Leaf::new("leaf", self.detach(), true);
        Ok(self.detach().with_origin(Some(Node::leaf(leaf))))
    }

    /// The gradient that `backward` left, if this tensor is a leaf and took part.
    pub fn grad(&self) -> Option<Tensor<D>> {
        self.leaf()?.grad()
    }

    /// The leaf this tensor is, if it is one.
    pub fn leaf(&self) -> Option<&Arc<Leaf<D>>> {
        self.origin.as_ref()?.as_leaf()
    }

    /// The node that computed this tensor or stands for it as a leaf, if it needs a gradient.
    pub fn origin(&self) -> Option<&Arc<Node<D>>> {
        self.origin.as_ref()
    }

    /// Whether a gradient can flow through this tensor.
    pub fn needs_grad(&self) -> bool {
        self.origin.is_some()
    }

    pub(crate) fn from_parts(device: D, buffer: D::Buffer, layout: Layout) -> Self {
        Tensor { device, buffer, layout, origin: None }
    }

    pub(crate) fn with_origin(self, origin: Option<Arc<Node<D>>>) -> Self {
        Tensor { origin, ..self }
    }

    /// The same memory under another layout, without a record.
    pub(crate) fn with_layout(&self, layout: Layout) -> Self {
        Tensor::from_parts(self.device.clone(), self.buffer.clone(), layout)
    }

    /// The same elements without gaps, without a record; no copy if they are so already.
    pub(crate) fn packed(&self) -> Result<Self> {
        if self.layout.is_contiguous() {
            return Ok(self.detach());
        }
        let out = self.empty_like()?;
        self.device.copy(self.view(), out.view())?;
        Ok(out)
    }

    /// The same elements as a matrix over the last dimension, `[rows, columns]`, without a record;
    /// copies only where the layout forces it.
    pub(crate) fn as_rows(&self, operation: &'static str) -> Result<Self> {
        let (rows, columns) = sneppx_contract::check::rows(operation, self.view())?;
        let shape = Shape::new(&[rows, columns])?;
        match self.layout.reshape(&shape)? {
            Some(layout) => Ok(self.with_layout(layout)),
            None => Ok(self.packed()?.with_layout(Layout::contiguous(shape))),
        }
    }
}

impl<D: Device> fmt::Debug for Tensor<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?}, {})", self.layout, self.dtype())
    }
}
