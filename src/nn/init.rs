//! How parameters come into being: a path, a shape, and a stream of random numbers of their own.

use sneppx_contract::{DType, Device, Distribution, Error, RandomKey, Result};

use super::{Param, join_path};
use crate::tensor::Tensor;

/// First values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element the same.
    Constant(f64),
    /// Normal around 0.
    Normal {
        /// Standard deviation.
        deviation: f64,
    },
    /// Uniform in `[-bound, bound)`.
    Uniform {
        /// Largest magnitude.
        bound: f64,
    },
}

/// Where in a model parameters are being made, on which device and from which seed.
///
/// Values depend on (seed, path, element) alone: two models with equal seeds are equal bit for bit
/// on any device and rank, and adding a layer does not change the others.
///
/// ```
/// use sneppx::{cpu::Cpu, nn::{Builder, Init}};
/// let device = Cpu::with_threads(1)?;
/// let root = Builder::new(&device, 42);
/// let weight = root.at("head").param("weight", &[10, 4], Init::Normal { deviation: 0.02 })?;
/// assert_eq!(weight.leaf().name(), "head.weight");
/// # Ok::<(), sneppx::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder<D: Device> {
    device: D,
    dtype: DType,
    key: RandomKey,
    path: String,
}

impl<D: Device> Builder<D> {
    /// The root of a model in `f32`.
    pub fn new(device: &D, seed: u64) -> Self {
        let key = RandomKey::from_seed(seed).with_text("parameters");
        Builder { device: device.clone(), dtype: DType::F32, key, path: String::new() }
    }

    /// The same with parameters of another dtype.
    ///
    /// # Errors
    /// An integer dtype.
    pub fn with_dtype(mut self, dtype: DType) -> Result<Self> {
        if !dtype.is_float() {
            return Err(Error::dtype("parameters", "a float dtype", dtype));
        }
        self.dtype = dtype;
        Ok(self)
    }

    /// The part of the model called `name`.
    pub fn at(&self, name: &str) -> Self {
        Builder { path: join_path(&self.path, name), ..self.clone() }
    }

    /// A parameter called `name` with these first values.
    ///
    /// # Errors
    /// A shape with too many elements; out of memory.
    pub fn param(&self, name: &str, shape: &[usize], init: Init) -> Result<Param<D>> {
        let path = join_path(&self.path, name);
        let key = self.key.with_text(&path);
        let random =
            |distribution| Tensor::random(&self.device, self.dtype, shape, distribution, key);
        let value = match init {
            Init::Constant(value) => Tensor::full(&self.device, self.dtype, shape, value)?,
            Init::Normal { deviation } => random(Distribution::Normal { mean: 0.0, deviation })?,
            Init::Uniform { bound } => random(Distribution::Uniform { low: -bound, high: bound })?,
        };
        Ok(Param::new(path, value))
    }

    /// The device parameters are made on.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The dtype of parameters.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dotted path so far.
    pub fn path(&self) -> &str {
        &self.path
    }
}
