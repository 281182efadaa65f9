//! Causal self-attention with many heads, grouped keys and values, and rotary positions.

use sneppx_contract::{DType, Device, Error, HostVec, Result};

use super::{Builder, Init, KeyValueCache, Layer, Linear, LinearOptions, Module, Pass};
use crate::autograd::rules::AttentionOptions;
use crate::tensor::Tensor;

/// Cosines and sines of the angles of rotary embedding: position `t` turns pair `j` by
/// `t * base^(-2j / D)` (Su et al., 2021).
#[derive(Clone, Debug)]
pub struct RotaryTables<D: Device> {
    /// `[positions, D / 2]`
    cos: Tensor<D>,
    /// `[positions, D / 2]`
    sin: Tensor<D>,
}

impl<D: Device> RotaryTables<D> {
    /// Tables for heads of size `head_size`, for tensors of `dtype`.
    ///
    /// # Errors
    /// An odd head size; a base that is not positive.
    pub fn new(
        device: &D,
        dtype: DType,
        head_size: usize,
        positions: usize,
        base: f64,
    ) -> Result<Self> {
        if !head_size.is_multiple_of(2) {
            let reason = "rotary positions turn pairs, so the head size must be even";
            return Err(Error::invalid("head size", head_size, reason));
        }
        if !(base > 0.0 && base.is_finite()) {
            return Err(Error::invalid("rotary base", base, "must be positive and finite"));
        }
        let half = head_size / 2;
        let angles: Vec<f64> = (0..positions * half)
            .map(|i| (i / half) as f64 * base.powf(-2.0 * (i % half) as f64 / head_size as f64))
            .collect();
        let table = |function: fn(f64) -> f64| {
            let values: Vec<f64> = angles.iter().copied().map(function).collect();
            let values = HostVec::from_f64(dtype.accumulator(), &values);
            Tensor::from_host(device, &values, &[positions, half])
        };
        Ok(RotaryTables { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }

    /// `x` `[B, H, T, D]` turned by its positions, the first being `offset`.
    ///
    /// # Errors
    /// Positions beyond the tables.
    pub fn apply(&self, x: &Tensor<D>, offset: usize) -> Result<Tensor<D>> {
        let length = x.dim(2)?;
        x.rotary(&self.cos.slice(0, offset, length)?, &self.sin.slice(0, offset, length)?)
    }
}

/// Causal self-attention: `[B, T, C]` to `[B, T, C]`.
#[derive(Clone, Debug, Module)]
pub struct CausalSelfAttention<D: Device> {
    /// Queries of all heads, then keys, then values: `[(H + 2G) * D, C]`.
    pub qkv: Linear<D>,
    /// `[C, H * D]`
    pub out: Linear<D>,
    heads: usize,
    kv_heads: usize,
    #[module(skip)]
    rotary: Option<RotaryTables<D>>,
}

impl<D: Device> CausalSelfAttention<D> {
    /// Attention at `builder`'s place over `dim` channels; `init` is for the weight of queries,
    /// keys and values, `out_init` for the one that writes to the residual stream.
    ///
    /// # Errors
    /// Heads that do not divide the width, or key heads that do not divide the heads.
    pub fn new(
        builder: &Builder<D>,
        dim: usize,
        [heads, kv_heads]: [usize; 2],
        bias: bool,
        rotary: Option<RotaryTables<D>>,
        [init, out_init]: [Init; 2],
    ) -> Result<Self> {
        if heads == 0 || !dim.is_multiple_of(heads) {
            let reason = format!("{dim} channels cannot be divided among {heads} heads evenly");
            return Err(Error::invalid("num_heads", heads, reason));
        }
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let reason = format!("{heads} heads cannot share {kv_heads} key heads evenly");
            return Err(Error::invalid("num_kv_heads", kv_heads, reason));
        }
        let width = dim / heads * (heads + 2 * kv_heads);
        let inner = LinearOptions { bias, init: Some(init) };
        let outer = LinearOptions { bias, init: Some(out_init) };
        Ok(CausalSelfAttention {
            qkv: Linear::new(&builder.at("qkv"), dim, width, inner)?,
            out: Linear::new(&builder.at("out"), dim, dim, outer)?,
            heads,
            kv_heads,
            rotary,
        })
    }

    /// Attention of new positions `x` `[B, T, C]` to themselves and to those in `cache`, which
    /// takes them in as block `layer`.
    ///
    /// # Errors
    /// A cache without room.
    pub fn forward_cached(
        &self,
        x: &Tensor<D>,
        layer: usize,
        cache: &KeyValueCache<D>,
    ) -> Result<Tensor<D>> {
        let [queries, keys, values] = self.heads_of(x, cache.len())?;
        let [keys, values] = cache.append(layer, &keys, &values)?;
        let out = queries.attention(&keys, &values, None, AttentionOptions::default())?;
        self.out.apply(&out.transpose(1, 2)?.reshape(x.shape())?)
    }

    /// Queries `[B, H, T, D]`, keys and values `[B, G, T, D]`, turned by their positions.
    fn heads_of(&self, x: &Tensor<D>, offset: usize) -> Result<[Tensor<D>; 3]> {
        let packed = self.qkv.apply(x)?; // [B, T, (H + 2G) * D]
        let (batch, length, width) = (packed.dim(0)?, packed.dim(1)?, packed.dim(2)?);
        let total = self.heads + 2 * self.kv_heads;
        let packed = packed.reshape(&[batch, length, total, width / total])?.transpose(1, 2)?;
        let part = |start: usize, count: usize| packed.slice(1, start, count);
        let mut queries = part(0, self.heads)?;
        let mut keys = part(self.heads, self.kv_heads)?;
        if let Some(tables) = &self.rotary {
            queries = tables.apply(&queries, offset)?;
            keys = tables.apply(&keys, offset)?;
        }
        Ok([queries, keys, part(self.heads + self.kv_heads, self.kv_heads)?])
    }
}

impl<D: Device> Layer<D> for CausalSelfAttention<D> {
    fn forward(&self, x: &Tensor<D>, _: &Pass) -> Result<Tensor<D>> {
        let options = AttentionOptions::default();
        let mixed = if self.rotary.is_none() {
            self.qkv.apply(x)?.packed_attention(self.heads, self.kv_heads, options)?
        } else {
            let [queries, keys, values] = self.heads_of(x, 0)?;
            let out = queries.attention(&keys, &values, None, options)?;
            out.transpose(1, 2)?.reshape(x.shape())?
        };
        self.out.apply(&mixed)
    }
}
