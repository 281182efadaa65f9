//! A device, a dtype and a way to lay tensors out: what a case runs on.

use sneppx_contract::{DType, HostVec, Layout, Memory, Shape, View};
use sneppx_cpu::{Cpu, CpuBuffer, CpuOptions};

/// How tensors of more than one dimension lie in their buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Style {
    /// Without gaps.
    Dense,
    /// Rows without gaps, with gaps between them.
    Rows,
    /// Last dimension outermost.
    Columns,
}

pub struct Rig {
    pub device: Cpu,
    pub dtype: DType,
    pub style: Style,
}

/// A buffer and the layout of one tensor in it.
pub struct Tensor {
    pub buffer: CpuBuffer,
    pub layout: Layout,
}

impl Tensor {
    pub fn view(&self) -> View<'_, CpuBuffer> {
        View::new(&self.buffer, self.layout)
    }
}

impl Rig {
    pub fn new(threads: usize, dtype: DType, style: Style) -> Self {
        let device = Cpu::new(CpuOptions { threads: Some(threads) }).unwrap();
        Rig { device, dtype, style }
    }

    /// Numbers that every float dtype holds exactly, between -2 and 2.
    pub fn numbers(len: usize, seed: u64) -> Vec<f64> {
        let key = sneppx_contract::RandomKey::from_seed(seed);
        (0..len).map(|at| f64::from(key.word(at as u64) % 257) / 64.0 - 2.0).collect()
    }

    /// A tensor of random numbers in the rig's dtype and style.
    pub fn random(&self, shape: &[usize], seed: u64) -> Tensor {
        self.tensor(shape, &Rig::numbers(shape.iter().product(), seed))
    }

    /// A tensor of these values, in row-major order, in the rig's dtype and style.
    pub fn tensor(&self, shape: &[usize], values: &[f64]) -> Tensor {
        let layout = self.layout(shape);
        let mut host = vec![0.0; layout.end().unwrap()];
        for (index, &value) in values.iter().enumerate() {
            host[layout.position(index)] = value;
        }
        self.upload(self.dtype, layout, &host)
    }

    /// Zeros in the rig's dtype and style.
    pub fn zeros(&self, shape: &[usize]) -> Tensor {
        self.tensor(shape, &vec![0.0; shape.iter().product()])
    }

    /// Zeros without gaps in the type of arithmetic.
    pub fn wide(&self, shape: &[usize]) -> Tensor {
        let zeros = vec![0.0; shape.iter().product()];
        self.dense(self.dtype.accumulator(), shape, &zeros)
    }

    /// Values without gaps in any dtype.
    pub fn dense(&self, dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
        self.upload(dtype, Layout::contiguous(Shape::new(shape).unwrap()), values)
    }

    /// The values of a tensor in row-major order.
    pub fn read(&self, tensor: &Tensor) -> Vec<f64> {
        let host = self.device.download(&tensor.buffer).unwrap().to_f64();
        (0..tensor.layout.numel()).map(|index| host[tensor.layout.position(index)]).collect()
    }

    fn upload(&self, dtype: DType, layout: Layout, host: &[f64]) -> Tensor {
        let host = HostVec::from_f64(dtype, host);
        Tensor { buffer: self.device.upload(host.as_slice()).unwrap(), layout }
    }

    fn layout(&self, shape: &[usize]) -> Layout {
        let dense = Layout::contiguous(Shape::new(shape).unwrap());
        let Some((&columns, lead)) = shape.split_last() else { return dense };
        match self.style {
            Style::Dense => dense,
            _ if lead.is_empty() => dense,
            Style::Rows => {
                let padded = [lead, &[columns + 5]].concat();
                let padded = Layout::contiguous(Shape::new(&padded).unwrap()).with_offset(3);
                padded.narrow(lead.len(), 2, columns).unwrap()
            }
            Style::Columns => {
                let turned = [&[columns], lead].concat();
                let turned = Layout::contiguous(Shape::new(&turned).unwrap());
                let order: Vec<usize> = (1..shape.len()).chain([0]).collect();
                turned.permute(&order).unwrap()
            }
        }
    }
}
