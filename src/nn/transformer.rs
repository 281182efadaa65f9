//! The decoder-only Transformer, from GPT-2 to Llama by configuration.

use serde::{Deserialize, Serialize};
use sneppx_contract::{DType, Device, Error, NormKind, Result};

use super::{
    Block, Builder, CausalSelfAttention, Dropout, Embedding, FeedForward, FeedForwardKind, Init,
    KeyValueCache, Layer, Linear, LinearOptions, Module, NormLayer, Pass, RotaryTables, Unit,
};
use crate::autograd::rules::CrossEntropyOptions;
use crate::tensor::Tensor;

/// How a model knows where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Position {
    /// A learned vector per position, added to the token's.
    Learned,
    /// Rotary embedding of queries and keys with this base.
    Rotary(f64),
}

/// The shape of a [`Transformer`].
///
/// [`TransformerConfig::gpt2`] and [`TransformerConfig::llama`] give the two families; every field
/// can be changed after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerConfig {
    /// Number of tokens.
    pub vocab_size: usize,
    /// Channels of the residual stream.
    pub dim: usize,
    /// Attention heads.
    pub num_heads: usize,
    /// Blocks.
    pub num_layers: usize,
    /// Channels inside the feed-forward network.
    pub ffn_dim: usize,
    /// Longest sequence.
    pub max_seq_len: usize,
    /// Heads of keys and values; `num_heads` unless grouped.
    pub num_kv_heads: usize,
    /// Positions.
    pub position: Position,
    /// Feed-forward network.
    pub feed_forward: FeedForwardKind,
    /// RMS norm instead of layer norm.
    pub rms_norm: bool,
    /// Added to the variance or mean square in norms.
    pub norm_epsilon: f64,
    /// Whether linear maps and layer norms have biases.
    pub bias: bool,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Dropout after the embedding, attention and the feed-forward network.
    pub dropout: f64,
}

impl TransformerConfig {
    /// The GPT-2 family (Radford et al., 2019): learned positions, layer norm, tanh GELU, biases,
    /// tied head.
    pub fn gpt2(
        vocab_size: usize,
        dim: usize,
        num_heads: usize,
        num_layers: usize,
        ffn_dim: usize,
        max_seq_len: usize,
    ) -> Self {
        TransformerConfig {
            vocab_size,
            dim,
            num_heads,
            num_layers,
            ffn_dim,
            max_seq_len,
            num_kv_heads: num_heads,
            position: Position::Learned,
            feed_forward: FeedForwardKind::GeluTanh,
            rms_norm: false,
            norm_epsilon: 1e-5,
            bias: true,
            tied: true,
            dropout: 0.0,
        }
    }

    /// The Llama family (Touvron et al., 2023): rotary positions with base 10000, RMS norm,
    /// SwiGLU, no biases, a head of its own.
    pub fn llama(
        vocab_size: usize,
        dim: usize,
        num_heads: usize,
        num_layers: usize,
        ffn_dim: usize,
        max_seq_len: usize,
    ) -> Self {
        TransformerConfig {
            position: Position::Rotary(10_000.0),
            feed_forward: FeedForwardKind::SwiGlu,
            rms_norm: true,
            norm_epsilon: 1e-6,
            bias: false,
            tied: false,
            ..Self::gpt2(vocab_size, dim, num_heads, num_layers, ffn_dim, max_seq_len)
        }
    }

    /// Channels of one head.
    pub fn head_size(&self) -> usize {
        self.dim / self.num_heads.max(1)
    }

    /// Heads of keys and values.
    pub fn kv_heads(&self) -> usize {
        self.num_kv_heads
    }

    /// Floating-point operations of the matrix products of one training step (forward and
    /// backward) per token, for sequences of `length`: six per weight of a product, and twelve per
    /// channel and visible key in attention, of which the causal mask leaves half.
    pub fn flops_per_token(&self, length: usize) -> f64 {
        let heads = (self.num_heads + 2 * self.num_kv_heads) * self.head_size();
        let maps = if self.feed_forward == FeedForwardKind::SwiGlu { 3 } else { 2 };
        let block = self.dim * heads + self.dim * self.dim + maps * self.dim * self.ffn_dim;
        let weights = self.num_layers * block + self.dim * self.vocab_size;
        6.0 * weights as f64 + 6.0 * (self.num_layers * self.dim * length) as f64
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that cannot be used, with its value and why.
    pub fn validate(&self) -> Result<()> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("dim", self.dim),
            ("num_heads", self.num_heads),
            ("num_kv_heads", self.num_kv_heads),
            ("ffn_dim", self.ffn_dim),
            ("max_seq_len", self.max_seq_len),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|&(_, size)| size == 0) {
            return Err(Error::invalid(name, size, "must be at least 1"));
        }
        if !self.dim.is_multiple_of(self.num_heads) {
            let reason = format!("does not divide dim = {} evenly", self.dim);
            return Err(Error::invalid("num_heads", self.num_heads, reason));
        }
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            let reason = format!("does not divide num_heads = {} evenly", self.num_heads);
            return Err(Error::invalid("num_kv_heads", self.num_kv_heads, reason));
        }
        if matches!(self.position, Position::Rotary(_)) && !self.head_size().is_multiple_of(2) {
            let reason = format!(
                "dim = {} over num_heads = {}: rotary positions need an even head size",
                self.dim, self.num_heads
            );
            return Err(Error::invalid("head size", self.head_size(), reason));
        }
        if !(self.norm_epsilon > 0.0 && self.norm_epsilon.is_finite()) {
            let reason = "must be positive and finite";
            return Err(Error::invalid("norm_epsilon", self.norm_epsilon, reason));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::invalid("dropout", self.dropout, "must lie in 0 <= p < 1"));
        }
        Ok(())
    }

    fn norm_kind(&self) -> NormKind {
        if self.rms_norm { NormKind::Rms } else { NormKind::Layer }
    }
}

/// A decoder-only Transformer: tokens `[B, T]` to logits `[B, T, vocab_size]`.
///
/// Weights start as in GPT-2: normal with deviation 0.02, those that write to the residual stream
/// with `0.02 / sqrt(2 * num_layers)`, biases at 0, scales at 1.
///
/// ```
/// use sneppx::{Tensor, cpu::Cpu, nn::{Builder, Pass, Transformer, TransformerConfig}};
/// let device = Cpu::with_threads(1)?;
/// let config = TransformerConfig::gpt2(50, 16, 2, 1, 64, 8);
/// let model = Transformer::new(config, &Builder::new(&device, 1))?;
/// let tokens = Tensor::from_slice(&device, &[1u32, 2, 3], &[1, 3])?;
/// let logits = model.forward(&tokens, &Pass::evaluation())?;
/// assert_eq!(*logits.shape(), [1, 3, 50]);
/// # Ok::<(), sneppx::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Transformer<D: Device> {
    /// `[vocab_size, dim]`
    pub embedding: Embedding<D>,
    /// `[max_seq_len, dim]`, if positions are learned.
    pub positions: Option<Embedding<D>>,
    /// The blocks, each a unit.
    pub blocks: Vec<Unit<D, Block<D>>>,
    /// After the last block.
    pub norm: NormLayer<D>,
    /// `[vocab_size, dim]`, without a bias; the embedding's own weight where they are tied.
    pub head: Linear<D>,
    #[module(skip)]
    dropout: Dropout,
    #[module(skip)]
    config: TransformerConfig,
}

impl<D: Device> Transformer<D> {
    /// A model with first values from `builder`'s seed.
    ///
    /// # Errors
    /// A configuration that cannot be used; out of memory.
    pub fn new(config: TransformerConfig, builder: &Builder<D>) -> Result<Self> {
        config.validate()?;
        let init = Init::Normal { deviation: 0.02 };
        let embedding =
            Embedding::new(&builder.at("embedding"), config.vocab_size, config.dim, init)?;
        let (positions, rotary) = match config.position {
            Position::Learned => {
                let rows = config.max_seq_len;
                let table = Embedding::new(&builder.at("positions"), rows, config.dim, init)?;
                (Some(table), None)
            }
            Position::Rotary(base) => {
                let (device, dtype) = (builder.device(), builder.dtype());
                let (size, rows) = (config.head_size(), config.max_seq_len);
                (None, Some(RotaryTables::new(device, dtype, size, rows, base)?))
            }
        };
        let blocks = (0..config.num_layers)
            .map(|layer| {
                let at = builder.at("blocks").at(&layer.to_string());
                Ok(Unit::new(new_block(&config, &at, rotary.clone())?))
            })
            .collect::<Result<_>>()?;
        let norm = new_norm(&config, &builder.at("norm"))?;
        let head = if config.tied {
            Linear { weight: embedding.weight.clone(), bias: None }
        } else {
            let options = LinearOptions { bias: false, init: Some(init) };
            Linear::new(&builder.at("head"), config.dim, config.vocab_size, options)?
        };
        let dropout = Dropout::new(&builder.at("embedding"), config.dropout)?;
        Ok(Transformer { embedding, positions, blocks, norm, head, dropout, config })
    }

    /// The configuration it was made from.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// The dtype of its parameters.
    pub fn dtype(&self) -> DType {
        self.embedding.weight.leaf().dtype()
    }

    /// Whether blocks keep only their inputs and run again for the derivative.
    pub fn set_recompute(&self, recompute: bool) {
        self.blocks.iter().for_each(|block| block.set_recompute(recompute));
    }

    /// Logits `[B, T, vocab_size]` of `tokens` `[B, T]` (`u32` or `i64`).
    ///
    /// # Errors
    /// A token outside the vocabulary; a sequence longer than `max_seq_len`.
    pub fn forward(&self, tokens: &Tensor<D>, pass: &Pass) -> Result<Tensor<D>> {
        self.head.apply(&self.hidden(tokens, pass)?)
    }

    /// The loss of every token: cross entropy of the logits against `targets` `[B, T]`, as
    /// `[B * T]` in row-major order, without ever holding all logits of a large vocabulary.
    ///
    /// # Errors
    /// As [`Transformer::forward`], and a target that is neither a token nor ignored.
    pub fn losses(
        &self,
        tokens: &Tensor<D>,
        targets: &Tensor<D>,
        options: CrossEntropyOptions,
        pass: &Pass,
    ) -> Result<Tensor<D>> {
        if tokens.shape() != targets.shape() {
            let (tokens, targets) = (tokens.shape(), targets.shape());
            return Err(Error::shapes_differ("losses", "tokens", tokens, "targets", targets));
        }
        let hidden = self.hidden(tokens, pass)?.reshape(&[tokens.numel(), self.config.dim])?;
        hidden.linear_cross_entropy(&self.head.weight.tensor()?, &targets.flatten()?, options)
    }

    /// What the head sees: `[B, T, dim]`.
    ///
    /// # Errors
    /// As [`Transformer::forward`].
    pub fn hidden(&self, tokens: &Tensor<D>, pass: &Pass) -> Result<Tensor<D>> {
        let embedded = self.embed(tokens, 0)?;
        let mut x = self.dropout.forward(&embedded, pass)?;
        for block in &self.blocks {
            x = block.forward(&x, pass)?;
        }
        self.norm.forward(&x, pass)
    }

    /// Logits `[B, T, vocab_size]` of new `tokens` `[B, T]` after those in `cache`, which takes
    /// them in. Equal to a forward pass over the whole sequence.
    ///
    /// # Errors
    /// As [`Transformer::forward`], the positions in the cache included.
    pub fn forward_cached(
        &self,
        tokens: &Tensor<D>,
        cache: &mut KeyValueCache<D>,
    ) -> Result<Tensor<D>> {
        let mut x = self.embed(tokens, cache.len())?;
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.forward_cached(&x, layer, cache)?;
        }
        cache.advance(tokens.dim(1)?);
        self.head.apply(&self.norm.forward(&x, &Pass::evaluation())?)
    }

    /// Tokens, and where they stand if that is learned: `[B, T, dim]`.
    fn embed(&self, tokens: &Tensor<D>, offset: usize) -> Result<Tensor<D>> {
        let &[_, length] = &tokens.shape()[..] else {
            let detail = format!("tokens are {:?}, expected [batch, length]", tokens.shape());
            return Err(Error::shape("transformer", detail));
        };
        let limit = self.config.max_seq_len;
        if offset + length > limit {
            let reason = format!("the model has positions for {limit}; shorten the sequence");
            return Err(Error::invalid("sequence length", offset + length, reason));
        }
        let embedded = self.embedding.apply(tokens)?;
        match &self.positions {
            Some(table) => embedded.add(&table.weight.tensor()?.slice(0, offset, length)?),
            None => Ok(embedded),
        }
    }
}

fn new_block<D: Device>(
    config: &TransformerConfig,
    builder: &Builder<D>,
    rotary: Option<RotaryTables<D>>,
) -> Result<Block<D>> {
    let deviation = 0.02;
    let out_deviation = deviation / (2.0 * config.num_layers as f64).sqrt();
    let init = [deviation, out_deviation].map(|deviation| Init::Normal { deviation });
    let heads = [config.num_heads, config.num_kv_heads];
    let (dim, bias) = (config.dim, config.bias);
    let attention = builder.at("attention");
    let feed_forward = builder.at("feed_forward");
    Ok(Block {
        attention_norm: new_norm(config, &builder.at("attention_norm"))?,
        attention: CausalSelfAttention::new(&attention, dim, heads, bias, rotary, init)?,
        attention_dropout: Dropout::new(&attention, config.dropout)?,
        feed_forward_norm: new_norm(config, &builder.at("feed_forward_norm"))?,
        feed_forward: FeedForward::new(
            &feed_forward,
            config.feed_forward,
            [dim, config.ffn_dim],
            bias,
            init,
        )?,
        feed_forward_dropout: Dropout::new(&feed_forward, config.dropout)?,
    })
}

fn new_norm<D: Device>(config: &TransformerConfig, builder: &Builder<D>) -> Result<NormLayer<D>> {
    match config.norm_kind() {
        NormKind::Rms => NormLayer::rms_norm(builder, config.dim, config.norm_epsilon),
        NormKind::Layer => {
            let bias = config.bias.then_some(Init::Constant(0.0));
            NormLayer::layer_norm(builder, config.dim, config.norm_epsilon, bias)
        }
    }
}
