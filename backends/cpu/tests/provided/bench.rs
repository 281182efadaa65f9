//! A device, a dtype and a tolerance, and the oracles that several families need.

use sneppx_contract::{DType, HostVec, Kernels, Layout, Memory, RandomKey, Shape, View, rng};
use sneppx_cpu::{Cpu, CpuBuffer, CpuOptions};

pub const DTYPES: [(DType, f64); 4] =
    [(DType::F64, 1e-12), (DType::F32, 2e-5), (DType::BF16, 2e-2), (DType::F16, 4e-3)];

/// Buffers of one dtype and the loops' view of them.
pub struct Bench {
    pub device: Cpu,
    pub dtype: DType,
    pub tolerance: f64,
}

impl Bench {
    pub fn all() -> impl Iterator<Item = Bench> {
        let device = Cpu::new(CpuOptions { threads: Some(2) }).unwrap();
        DTYPES.into_iter().map(move |(dtype, tolerance)| Bench {
            device: device.clone(),
            dtype,
            tolerance,
        })
    }

    /// Numbers near 1 in size, the same for every dtype.
    pub fn numbers(&self, seed: u64, len: usize) -> CpuBuffer {
        let key = RandomKey::from_seed(seed);
        let values: Vec<f64> =
            (0..len as u64).map(|i| f64::from(rng::uniform(key.word(i))) * 3.0 - 1.5).collect();
        self.device.upload(HostVec::from_f64(self.dtype, &values).as_slice()).unwrap()
    }

    pub fn empty(&self, len: usize) -> CpuBuffer {
        let out = self.device.alloc(self.dtype, len).unwrap();
        self.device.fill(f64::NAN, View::whole(&out)).unwrap();
        out
    }

    pub fn wide(&self, len: usize) -> CpuBuffer {
        let out = self.device.alloc(self.dtype.accumulator(), len).unwrap();
        self.device.fill(f64::NAN, View::whole(&out)).unwrap();
        out
    }

    pub fn values(&self, buffer: &CpuBuffer) -> Vec<f64> {
        self.device.download(buffer).unwrap().to_f64()
    }

    pub fn agrees(&self, what: &str, got: &CpuBuffer, want: &[f64]) {
        let got = self.values(got);
        assert_eq!(got.len(), want.len(), "{what}");
        for (place, (got, want)) in got.iter().zip(want).enumerate() {
            let close = got == want || (got - want).abs() <= self.tolerance * (1.0 + want.abs());
            assert!(close, "{what} in {}: {got} at {place}, want {want}", self.dtype);
        }
    }
}

/// Tolerance of comparisons with central differences.
pub fn coarse(bench: Bench) -> Bench {
    Bench { tolerance: bench.tolerance.max(1e-8), ..bench }
}

pub fn shaped<'a>(buffer: &'a CpuBuffer, shape: &[usize]) -> View<'a, CpuBuffer> {
    View::new(buffer, Layout::contiguous(Shape::new(shape).unwrap()))
}

/// The derivative of `f` at `x` along every coordinate, by central differences.
pub fn slopes(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let step = 1e-5;
    let at = |place: usize, by: f64| {
        let mut moved = x.to_vec();
        moved[place] += by;
        f(&moved)
    };
    (0..x.len()).map(|i| (at(i, step) - at(i, -step)) / (2.0 * step)).collect()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn softmax_rows(x: &[f64], columns: usize) -> Vec<f64> {
    x.chunks(columns)
        .flat_map(|row| {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let parts: Vec<f64> = row.iter().map(|x| (x - largest).exp()).collect();
            let sum: f64 = parts.iter().sum();
            parts.into_iter().map(move |part| part / sum).collect::<Vec<_>>()
        })
        .collect()
}
