//! Reading the recorded tensors, and holding results against them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use sneppx::contract::HostVec;
use sneppx::cpu::Cpu;
use sneppx::{DType, Tensor};

/// Everything here runs on the CPU.
pub type T = Tensor<Cpu>;

/// A device whose kernels split their work.
pub fn device() -> Cpu {
    Cpu::with_threads(2).expect("two threads")
}

/// One file of recorded tensors.
pub struct Stored {
    name: &'static str,
    bytes: Vec<u8>,
}

impl Stored {
    /// The file `name` of this folder.
    pub fn open(name: &'static str) -> Self {
        let path = folder().join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        Stored { name, bytes }
    }

    /// The names of all tensors.
    pub fn names(&self) -> BTreeSet<String> {
        self.tensors().names().into_iter().map(str::to_owned).collect()
    }

    /// Shape and values of tensor `name`.
    pub fn values(&self, name: &str) -> (Vec<usize>, HostVec) {
        let stored = self.tensors();
        let found = stored.tensor(name).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let dtype = match found.dtype() {
            Dtype::F64 => DType::F64,
            Dtype::F32 => DType::F32,
            Dtype::I64 => DType::I64,
            Dtype::U8 => DType::U8,
            other => panic!("{}: {name} is {other:?}", self.name),
        };
        let mut values = HostVec::zeros(dtype, found.shape().iter().product());
        values.bytes_mut().copy_from_slice(found.data());
        (found.shape().to_vec(), values)
    }

    /// Tensor `name` as it is.
    pub fn tensor(&self, device: &Cpu, name: &str) -> T {
        let (shape, values) = self.values(name);
        T::from_host(device, &values, &shape).expect("a stored tensor")
    }

    /// Tensor `name`, floats as `dtype`.
    pub fn floats(&self, device: &Cpu, name: &str, dtype: DType) -> T {
        let (shape, values) = self.values(name);
        assert!(values.dtype().is_float(), "{name} is {}", values.dtype());
        let values = HostVec::from_f64(dtype, &values.to_f64());
        T::from_host(device, &values, &shape).expect("a stored tensor")
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).expect("a whole safetensors file")
    }
}

/// The settings that a file of this folder holds.
pub fn settings(name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(folder().join(name)).expect("a file of settings");
    serde_json::from_str(&text).expect("JSON")
}

/// Fails unless `got` has the shape of `want` and its values to `tolerance` of the largest.
pub fn close(what: &str, got: &T, want: &T, tolerance: f64) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let got = got.to_host().expect("values").to_f64();
    let want = want.to_host().expect("values").to_f64();
    close_values(what, &got, &want, tolerance);
}

/// [`close`] on the host.
pub fn close_values(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    for (element, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got - want).abs();
        assert!(
            error <= tolerance * largest,
            "{what}: element {element} is {got}, want {want}: off by {:e} of the largest value",
            error / largest
        );
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}
