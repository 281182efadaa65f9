//! One block of a Transformer: attention and a feed-forward network, each behind a norm.

use sneppx_contract::{Device, Result};

use super::{
    CausalSelfAttention, Dropout, FeedForward, KeyValueCache, Layer, Module, NormLayer, Pass,
};
use crate::tensor::Tensor;

/// `x + attention(norm(x))`, then `x + feed_forward(norm(x))`: `[B, T, C]` to `[B, T, C]`.
#[derive(Clone, Debug, Module)]
pub struct Block<D: Device> {
    /// Before attention.
    pub attention_norm: NormLayer<D>,
    /// Attention.
    pub attention: CausalSelfAttention<D>,
    /// After attention.
    #[module(skip)]
    pub attention_dropout: Dropout,
    /// Before the feed-forward network.
    pub feed_forward_norm: NormLayer<D>,
    /// The feed-forward network.
    pub feed_forward: FeedForward<D>,
    /// After the feed-forward network.
    #[module(skip)]
    pub feed_forward_dropout: Dropout,
}

impl<D: Device> Block<D> {
    /// The block applied to new positions, with the keys and values of earlier ones in `cache`.
    ///
    /// # Errors
    /// A cache without room.
    pub fn forward_cached(
        &self,
        x: &Tensor<D>,
        layer: usize,
        cache: &KeyValueCache<D>,
    ) -> Result<Tensor<D>> {
        let pass = Pass::evaluation();
        let normed = self.attention_norm.forward(x, &pass)?;
        let attended = self.attention.forward_cached(&normed, layer, cache)?;
        self.rest(&attended, x, &pass)
    }

    /// Everything after attention.
    fn rest(&self, attended: &Tensor<D>, x: &Tensor<D>, pass: &Pass) -> Result<Tensor<D>> {
        let attended = self.attention_dropout.forward(attended, pass)?;
        let middle = self.feed_forward_norm.apply_after_sum(&attended, x)?;
        let fed = self.feed_forward.forward(&middle.out, pass)?;
        self.feed_forward_dropout.forward(&fed, pass)?.add(&middle.sum)
    }
}

impl<D: Device> Layer<D> for Block<D> {
    fn forward(&self, x: &Tensor<D>, pass: &Pass) -> Result<Tensor<D>> {
        let attended = self.attention.forward(&self.attention_norm.forward(x, pass)?, pass)?;
        self.rest(&attended, x, pass)
    }
}
