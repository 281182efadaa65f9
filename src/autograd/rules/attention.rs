//! Scaled dot-product attention.

use sneppx_contract::{Attention, Device, Error, Layout, Result, Shape, Visibility};

use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

/// How attention looks at its keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOptions {
    /// Factor on the scores; `None` is `1 / sqrt(head size)`.
    pub scale: Option<f64>,
    /// Which keys a query sees.
    pub visibility: Visibility,
}

impl Default for AttentionOptions {
    fn default() -> Self {
        AttentionOptions { scale: None, visibility: Visibility::Causal }
    }
}

impl AttentionOptions {
    fn spec(&self, head_size: usize) -> Attention {
        let scale = self.scale.unwrap_or(1.0 / (head_size as f64).sqrt());
        Attention { scale, visibility: self.visibility }
    }
}

impl<D: Device> Tensor<D> {
    /// `softmax(scale · self·keysᵀ)·values`: `self` `[B, H, T, D]`, `keys` `[B, G, S, D]`,
    /// `values` `[B, G, S, E]`, result `[B, H, T, E]`; `H` is a multiple of `G`. `mask` (`u8`,
    /// broadcast to `[B, H, T, S]`) hides keys where it is 0; a query that sees nothing gives 0.
    ///
    /// # Errors
    /// Sizes that disagree; different dtypes.
    pub fn attention(
        &self,
        keys: &Tensor<D>,
        values: &Tensor<D>,
        mask: Option<&Tensor<D>>,
        options: AttentionOptions,
    ) -> Result<Tensor<D>> {
        let (&[b, h, t, d], &[_, _, s, _], &[_, _, _, e]) =
            (&self.shape()[..], &keys.shape()[..], &values.shape()[..])
        else {
            let detail = format!(
                "queries {:?}, keys {:?} and values {:?} need four dimensions each",
                self.shape(),
                keys.shape(),
                values.shape()
            );
            return Err(Error::shape("attention", detail));
        };
        let mask = match mask {
            Some(mask) => {
                let full = Shape::new(&[b, h, t, s])?;
                Some(mask.with_layout(mask.layout().broadcast_to(&full)?))
            }
            None => None,
        };
        let spec = options.spec(d);
        let device = self.device();
        // Memory order [B, T, H, E], so that the heads of a position lie side by side.
        let out = Tensor::empty(device, self.dtype(), Shape::new(&[b, t, h, e])?)?;
        let out = out.with_layout(out.layout().transpose(1, 2)?);
        let statistics = Shape::new(&[b, h, t])?;
        let log_sum_exp = Tensor::empty(device, self.dtype().accumulator(), statistics)?;
        device.attention(
            spec,
            self.view(),
            keys.view(),
            values.view(),
            mask.as_ref().map(Tensor::view),
            out.view(),
            log_sum_exp.view(),
        )?;
        Ok(record(out.clone(), &[self, keys, values], || {
            let saved = SavedAttention { spec, mask, out, log_sum_exp };
            let [q, k, v] = [self, keys, values].map(Tensor::detach);
            Box::new(Separate { saved, q, k, v })
        }))
    }

    /// Attention of heads packed side by side: `self` is `[B, T, (heads + 2 * kv_heads) * D]`,
    /// queries first, then keys, then values; the result is `[B, T, heads * D]`.
    ///
    /// Equal to splitting, [`Tensor::attention`] and merging, without the copies.
    ///
    /// # Errors
    /// A last dimension that the heads do not divide.
    pub fn packed_attention(
        &self,
        heads: usize,
        kv_heads: usize,
        options: AttentionOptions,
    ) -> Result<Tensor<D>> {
        let packed = self.packed()?;
        let heads = PackedHeads::new(self.shape(), heads, kv_heads)?;
        let [q, k, v] = heads.split(packed.layout())?.map(|layout| packed.with_layout(layout));
        let PackedHeads { batch, length, heads: count, size, .. } = heads;
        let out = Shape::new(&[batch, length, count * size])?;
        let out = Tensor::empty(self.device(), self.dtype(), out)?;
        let head_view = out.with_layout(heads.merged(out.layout())?);
        let statistics = Shape::new(&[batch, count, length])?;
        let log_sum_exp = Tensor::empty(self.device(), self.dtype().accumulator(), statistics)?;
        let spec = options.spec(size);
        self.device().attention(
            spec,
            q.view(),
            k.view(),
            v.view(),
            None,
            head_view.view(),
            log_sum_exp.view(),
        )?;
        Ok(record(out, &[self], || {
            let saved = SavedAttention { spec, mask: None, out: head_view, log_sum_exp };
            Box::new(Packed { saved, heads, q, k, v })
        }))
    }
}

/// Sizes of heads packed side by side in the last dimension.
#[derive(Clone, Copy)]
struct PackedHeads {
    batch: usize,
    length: usize,
    heads: usize,
    kv_heads: usize,
    size: usize,
}

impl PackedHeads {
    fn new(shape: &Shape, heads: usize, kv_heads: usize) -> Result<Self> {
        let total = heads + 2 * kv_heads;
        let &[batch, length, width] = &shape[..] else {
            let detail = format!("{shape:?}, expected [batch, length, packed heads]");
            return Err(Error::shape("packed_attention", detail));
        };
        let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        if heads == 0 || !divides || !width.is_multiple_of(total) {
            let detail = format!(
                "width {width} does not hold {heads} query heads and {kv_heads} heads each of \
                 keys and values of one size"
            );
            return Err(Error::shape("packed_attention", detail));
        }
        Ok(PackedHeads { batch, length, heads, kv_heads, size: width / total })
    }

    /// Queries, keys and values as `[B, heads, T, D]` views of a packed layout.
    fn split(&self, packed: &Layout) -> Result<[Layout; 3]> {
        let PackedHeads { batch, length, heads, kv_heads, size } = *self;
        let part = |start: usize, count: usize| -> Result<Layout> {
            let strides = packed.strides();
            Layout::strided(
                &[batch, count, length, size],
                &[strides[0], size, strides[1], 1],
                packed.offset() + start * size,
            )
        };
        Ok([part(0, heads)?, part(heads, kv_heads)?, part(heads + kv_heads, kv_heads)?])
    }

    /// A `[B, T, heads * D]` layout as `[B, heads, T, D]`.
    fn merged(&self, out: &Layout) -> Result<Layout> {
        let PackedHeads { batch, length, heads, size, .. } = *self;
        let shape = Shape::new(&[batch, length, heads, size])?;
        match out.reshape(&shape)? {
            Some(layout) => layout.transpose(1, 2),
            None => Err(Error::Internal(format!("heads of {out:?} cannot be told apart"))),
        }
    }
}

/// What both forms keep beside the operands.
struct SavedAttention<D: Device> {
    spec: Attention,
    mask: Option<Tensor<D>>,
    /// `[B, H, T, E]`
    out: Tensor<D>,
    log_sum_exp: Tensor<D>,
}

impl<D: Device> SavedAttention<D> {
    fn backward(
        &self,
        [q, k, v]: [&Tensor<D>; 3],
        dout: &Tensor<D>,
        [dq, dk, dv]: [&Tensor<D>; 3],
    ) -> Result<()> {
        q.device().attention_backward(
            self.spec,
            q.view(),
            k.view(),
            v.view(),
            self.mask.as_ref().map(Tensor::view),
            self.out.view(),
            self.log_sum_exp.view(),
            dout.view(),
            dq.view(),
            dk.view(),
            dv.view(),
        )
    }
}

struct Separate<D: Device> {
    saved: SavedAttention<D>,
    q: Tensor<D>,
    k: Tensor<D>,
    v: Tensor<D>,
}

impl<D: Device> Rule<D> for Separate<D> {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let operands = [&self.q, &self.k, &self.v];
        let empty = |x: &Tensor<D>| Tensor::empty(x.device(), x.dtype(), *x.shape());
        let [dq, dk, dv] = [empty(&self.q)?, empty(&self.k)?, empty(&self.v)?];
        self.saved.backward(operands, grad.tensor(), [&dq, &dk, &dv])?;
        inputs.give(0, dq)?;
        inputs.give(1, dk)?;
        inputs.give(2, dv)
    }
}

struct Packed<D: Device> {
    saved: SavedAttention<D>,
    heads: PackedHeads,
    q: Tensor<D>,
    k: Tensor<D>,
    v: Tensor<D>,
}

impl<D: Device> Rule<D> for Packed<D> {
    fn name(&self) -> &'static str {
        "packed_attention"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let PackedHeads { batch, length, heads, kv_heads, size } = self.heads;
        let width = (heads + 2 * kv_heads) * size;
        let dpacked = Shape::new(&[batch, length, width])?;
        let dpacked = Tensor::empty(self.q.device(), self.q.dtype(), dpacked)?;
        let parts = self.heads.split(dpacked.layout())?;
        let [dq, dk, dv] = parts.map(|layout| dpacked.with_layout(layout));
        let dout = grad.tensor().packed()?;
        let dout = dout.with_layout(self.heads.merged(dout.layout())?);
        self.saved.backward([&self.q, &self.k, &self.v], &dout, [&dq, &dk, &dv])?;
        inputs.give(0, dpacked)
    }
}
