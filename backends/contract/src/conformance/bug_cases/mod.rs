//! Mistakes that other frameworks made, with numbers worked out apart from any backend.
//!
//! The names begin with the number of the case. Each runs on the device and on its
//! [`Composed`](super::composed::Composed) twin, so overrides and compositions are held to the same
//! numbers.

use crate::{DType, Device, HostVec, Layout, Result, Shape, View, ViewOf};

mod attention;
mod loss;
mod norm;
mod optim;

pub use attention::*;
pub use loss::*;
pub use norm::*;
pub use optim::*;

/// A buffer that a kernel wrote, with its shape.
struct Tensor<D: Device> {
    device: D,
    buffer: D::Buffer,
    layout: Layout,
}

impl<D: Device> Tensor<D> {
    fn new(device: &D, dtype: DType, shape: &[usize], values: &[f64]) -> Result<Self> {
        let buffer = device.upload(HostVec::from_f64(dtype, values).as_slice())?;
        let layout = Layout::contiguous(Shape::new(shape)?);
        layout.check("a case", values.len())?;
        Ok(Tensor { device: device.clone(), buffer, layout })
    }

    /// An output, full of NaN so that an element that was forgotten shows.
    fn output(device: &D, dtype: DType, shape: &[usize]) -> Result<Self> {
        Self::new(device, dtype, shape, &vec![f64::NAN; shape.iter().product()])
    }

    fn view(&self) -> ViewOf<'_, D> {
        View::new(&self.buffer, self.layout)
    }

    fn values(&self) -> Result<Vec<f64>> {
        Ok(self.device.download(&self.buffer)?.to_f64())
    }
}

#[track_caller]
fn near(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let close = (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(close, "{what}: element {at} is {got}, want {want} ± {tolerance:e}");
    }
}

#[track_caller]
fn all_finite(what: &str, got: &[f64]) {
    assert!(got.iter().all(|value| value.is_finite()), "{what}: {got:?}");
}

/// The two dtypes whose results are compared digit by digit, with what their digits allow: the
/// wanted numbers have ten.
const EXACT: [(DType, f64); 2] = [(DType::F32, 1e-6), (DType::F64, 1e-9)];
