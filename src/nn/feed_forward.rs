//! The feed-forward part of a block.

use serde::{Deserialize, Serialize};
use sneppx_contract::{Activation, Device, Result};

use super::{Builder, Init, Layer, Linear, LinearOptions, Module, Pass};
use crate::tensor::Tensor;

/// Which feed-forward network a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedForwardKind {
    /// Two linear maps with exact GELU between them.
    Gelu,
    /// Two linear maps with the tanh form of GELU between them, as in GPT-2.
    GeluTanh,
    /// Two linear maps with ReLU between them.
    Relu,
    /// `down(silu(gate(x)) * up(x))`, as in Llama.
    SwiGlu,
}

/// The feed-forward network: `[..., dim]` to `[..., dim]` by way of `[..., ffn_dim]`.
#[derive(Clone, Debug, Module)]
pub struct FeedForward<D: Device> {
    /// `[ffn_dim, dim]`; only gated kinds have it.
    pub gate: Option<Linear<D>>,
    /// `[ffn_dim, dim]`
    pub up: Linear<D>,
    /// `[dim, ffn_dim]`
    pub down: Linear<D>,
    #[module(skip)]
    kind: FeedForwardKind,
}

impl<D: Device> FeedForward<D> {
    /// A network at `builder`'s place; `init` is for the inner weights, `out_init` for the one that
    /// writes to the residual stream.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(
        builder: &Builder<D>,
        kind: FeedForwardKind,
        [dim, ffn_dim]: [usize; 2],
        bias: bool,
        [init, out_init]: [Init; 2],
    ) -> Result<Self> {
        let inner = LinearOptions { bias, init: Some(init) };
        let outer = LinearOptions { bias, init: Some(out_init) };
        let gate = if kind == FeedForwardKind::SwiGlu {
            Some(Linear::new(&builder.at("gate"), dim, ffn_dim, inner)?)
        } else {
            None
        };
        let up = Linear::new(&builder.at("up"), dim, ffn_dim, inner)?;
        let down = Linear::new(&builder.at("down"), ffn_dim, dim, outer)?;
        Ok(FeedForward { gate, up, down, kind })
    }
}

impl<D: Device> Layer<D> for FeedForward<D> {
    fn forward(&self, x: &Tensor<D>, _: &Pass) -> Result<Tensor<D>> {
        let activation = match self.kind {
            FeedForwardKind::Gelu => Activation::Gelu,
            FeedForwardKind::GeluTanh => Activation::GeluTanh,
            FeedForwardKind::Relu => Activation::Relu,
            FeedForwardKind::SwiGlu => Activation::Silu,
        };
        let hidden = match &self.gate {
            Some(gate) => gate.apply(x)?.gated_activation(&self.up.apply(x)?, activation)?,
            None => self.up.apply_activated(x, activation)?,
        };
        self.down.apply(&hidden)
    }
}
