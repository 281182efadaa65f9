//! Reads the golden values that lie beside this file; README.md says what their names mean.

#![allow(dead_code, reason = "each test that declares this module uses a part of it")]

use std::path::PathBuf;

use safetensors::tensor::{Dtype, SafeTensors};

/// A safetensors file of this folder, in memory.
pub struct GoldenFile {
    name: &'static str,
    bytes: Vec<u8>,
}

/// One stored tensor with its values as `f64`, which is exact for all of them.
pub struct GoldenTensor {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl GoldenFile {
    pub fn open(name: &'static str) -> Self {
        let bytes = std::fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        GoldenFile { name, bytes }
    }

    pub fn names(&self) -> Vec<String> {
        self.tensors().names().into_iter().map(str::to_owned).collect()
    }

    pub fn tensor(&self, name: &str) -> GoldenTensor {
        let tensors = self.tensors();
        let view = tensors.tensor(name).unwrap_or_else(|e| panic!("{}, {name}: {e}", self.name));
        let bytes = view.data();
        let values = match view.dtype() {
            Dtype::F64 => numbers(bytes, f64::from_le_bytes),
            Dtype::F32 => numbers(bytes, |bytes| f64::from(f32::from_le_bytes(bytes))),
            Dtype::I64 => numbers(bytes, |bytes| i64::from_le_bytes(bytes) as f64),
            other => panic!("{}, {name}: {other:?} is not expected", self.name),
        };
        GoldenTensor { shape: view.shape().to_vec(), values }
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }
}

/// A JSON file of this folder.
pub fn json(name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Asserts that `got` is within `tolerance` of `want`, relative to the largest of `want` or 1.
pub fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0, |top: f64, value| top.max(value.abs()));
    for (place, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got - want).abs() / scale;
        assert!(error <= tolerance, "{what}: {got} at {place}, want {want} ({error:e} off)");
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn numbers<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    let (chunks, rest) = bytes.as_chunks::<N>();
    assert!(rest.is_empty(), "a tensor ends within a number");
    chunks.iter().map(|chunk| read(*chunk)).collect()
}
