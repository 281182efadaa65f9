//! What a device can compute: a few required families, and fused ones composed from them.
//!
//! # For callers
//! Every operand is a [view](crate::View): a transpose, a slice or a broadcast costs nothing.
//! Results go into views that the caller allocated. Dtypes must match; there is no promotion. An
//! output may be the very view of an input in the elementwise families; any other overlap of an
//! output with an input or with itself is an error.
//!
//! # For implementers
//! Implement the required methods and a Transformer runs; override a provided one where it pays.
//! `conformance` compares each override with its composition and both with an `f64` oracle.
//! Check operands with the functions of [`check`](crate::check), which give every backend the same
//! errors. Sums of 16-bit floats are formed in `f32`. Equal inputs give equal bits: no float
//! atomics, no order that depends on the number of threads.

use crate::{
    Activation, AdamWStep, Attention, BinaryOp, CompareOp, CrossEntropy, Distribution, Memory,
    Norm, NormOperands, RandomKey, ReduceKind, Result, Rotation, SgdStep, Store, UnaryOp, ViewOf,
    provided,
};

/// What a device can compute.
pub trait Kernels: Memory {
    /// Sets every element of `out` to `value`, rounded to its dtype.
    fn fill(&self, value: f64, out: ViewOf<'_, Self>) -> Result<()>;

    /// Copies `x` to `out`: equal shapes and dtypes, any strides.
    fn copy(&self, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>) -> Result<()>;

    /// Converts `x` to the dtype of `out`: equal shapes. Floats round to nearest even; floats to
    /// integers truncate and saturate.
    fn cast(&self, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>) -> Result<()>;

    /// `out = alpha * x + beta * out`, floats, equal shapes (`x` may have strides of 0). With
    /// `beta = 0` the old values of `out` are not read.
    fn scaled_add(
        &self,
        alpha: f64,
        x: ViewOf<'_, Self>,
        beta: f64,
        out: ViewOf<'_, Self>,
    ) -> Result<()>;

    /// `out = op(x)`, floats, equal shapes; `Negate`, `Abs` and `Square` also take `I64`.
    fn unary(&self, op: UnaryOp, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>) -> Result<()>;

    /// `dx = op'(x) * dy`, floats, equal shapes. The derivative of `Abs` and `Relu` at 0 is 0.
    fn unary_backward(
        &self,
        op: UnaryOp,
        x: ViewOf<'_, Self>,
        dy: ViewOf<'_, Self>,
        dx: ViewOf<'_, Self>,
    ) -> Result<()>;

    /// `out = op(a, b)`: equal shapes and dtypes, broadcast by strides of 0. Every dtype but `U8`.
    fn binary(
        &self,
        op: BinaryOp,
        a: ViewOf<'_, Self>,
        b: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()>;

    /// `out = op(a, b)` as 0 or 1 in `U8`: equal shapes, `a` and `b` of one dtype.
    fn compare(
        &self,
        op: CompareOp,
        a: ViewOf<'_, Self>,
        b: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()>;

    /// `out = if condition != 0 { a } else { b }`: `condition` is `U8`, equal shapes.
    fn select(
        &self,
        condition: ViewOf<'_, Self>,
        a: ViewOf<'_, Self>,
        b: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()>;

    /// Reduces `x` over every dimension in which `out` has size 1; the numbers of dimensions are
    /// equal. The order of a sum depends on the shapes alone. The sum of nothing is 0, the largest
    /// of nothing is an error. `Store::Add` is for sums.
    fn reduce(
        &self,
        kind: ReduceKind,
        x: ViewOf<'_, Self>,
        store: Store,
        out: ViewOf<'_, Self>,
    ) -> Result<()>;

    /// `out = alpha * a·b + beta * out` with `a: [..., M, K]`, `b: [..., K, N]`,
    /// `out: [..., M, N]`, equal leading dimensions, floats of one dtype, any strides. With
    /// `beta = 0` the old values of `out` are not read. `K = 0` gives `beta * out`.
    fn matmul(
        &self,
        alpha: f64,
        a: ViewOf<'_, Self>,
        b: ViewOf<'_, Self>,
        beta: f64,
        out: ViewOf<'_, Self>,
    ) -> Result<()>;

    /// `out[i, ...] = table[indices[i], ...]` with `table: [V, ...]`, `indices: [N]` (`U32` or
    /// `I64`), `out: [N, ...]`. Every dtype.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`](crate::Error::IndexOutOfRange).
    fn index_select(
        &self,
        table: ViewOf<'_, Self>,
        indices: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()>;

    /// `out[indices[i], ...] += source[i, ...]`, in ascending order of `i`, floats.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`](crate::Error::IndexOutOfRange).
    fn index_add(
        &self,
        indices: ViewOf<'_, Self>,
        source: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()>;

    /// Fills `out` (floats) with random numbers: the element with row-major number `i` gets
    /// element `offset + i` of stream `key`, the same on every device.
    fn random(
        &self,
        distribution: Distribution,
        key: RandomKey,
        offset: u64,
        out: ViewOf<'_, Self>,
    ) -> Result<()>;

    // Everything below is provided.

    /// Zeroes each element with `probability`, scales the others by `1 / (1 - probability)`.
    /// Element `i` is kept where the uniform number at `offset + i` of `key` is at least
    /// `probability`. Its own derivative: apply it to `dy` with the same key.
    fn dropout(
        &self,
        probability: f64,
        key: RandomKey,
        offset: u64,
        x: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::elementwise::dropout(self, probability, key, offset, x, out)
    }

    /// Softmax over the last dimension, shifted by each row's maximum.
    fn softmax(&self, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>) -> Result<()> {
        provided::softmax::softmax(self, x, out)
    }

    /// `dx = y * (dy - sum(y * dy))` along the last dimension, `y` being the softmax.
    fn softmax_backward(
        &self,
        y: ViewOf<'_, Self>,
        dy: ViewOf<'_, Self>,
        dx: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::softmax::softmax_backward(self, y, dy, dx)
    }

    /// `sum = x + residual`, `out = (sum - mean) * rstd * weight + bias` over the last dimension.
    ///
    /// `sum` is written where it is given (and must be given with a residual). `statistics` is
    /// `[2, rows]` in the accumulator dtype: means (0 for RMS), then reciprocal
    /// deviations.
    fn normalize(
        &self,
        norm: Norm,
        operands: NormOperands<'_, Self::Buffer>,
        sum: Option<ViewOf<'_, Self>>,
        statistics: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::norm::normalize(self, norm, operands, sum, statistics, out)
    }

    /// The derivative of [`Kernels::normalize`]. `sum` is what was normalised, `dsum` a gradient
    /// that reaches it by another way and is added. `dx` is the gradient of `x` and of the
    /// residual alike. `dweight` and `dbias` are sums over rows in a fixed order.
    fn normalize_backward(
        &self,
        norm: Norm,
        sum: ViewOf<'_, Self>,
        weight: Option<ViewOf<'_, Self>>,
        statistics: ViewOf<'_, Self>,
        dy: ViewOf<'_, Self>,
        dsum: Option<ViewOf<'_, Self>>,
        dx: ViewOf<'_, Self>,
        dweight: Option<(ViewOf<'_, Self>, Store)>,
        dbias: Option<(ViewOf<'_, Self>, Store)>,
    ) -> Result<()> {
        provided::norm::normalize_backward(
            self, norm, sum, weight, statistics, dy, dsum, dx, dweight, dbias,
        )
    }

    /// `out = activation(x + bias)` with `x: [..., C]`, `bias: [C]`; without an activation just
    /// the sum.
    fn bias_activation(
        &self,
        activation: Option<Activation>,
        x: ViewOf<'_, Self>,
        bias: Option<ViewOf<'_, Self>>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::activation::bias_activation(self, activation, x, bias, out)
    }

    /// The derivative of [`Kernels::bias_activation`]; `dx` may be the view of `dy`. `dbias` is a
    /// sum over rows in a fixed order.
    fn bias_activation_backward(
        &self,
        activation: Option<Activation>,
        x: ViewOf<'_, Self>,
        bias: Option<ViewOf<'_, Self>>,
        dy: ViewOf<'_, Self>,
        dx: ViewOf<'_, Self>,
        dbias: Option<(ViewOf<'_, Self>, Store)>,
    ) -> Result<()> {
        provided::activation::bias_activation_backward(self, activation, x, bias, dy, dx, dbias)
    }

    /// `out = activation(gate) * up` (Shazeer, 2020; SwiGLU with [`Activation::Silu`]).
    fn gated_activation(
        &self,
        activation: Activation,
        gate: ViewOf<'_, Self>,
        up: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::activation::gated_activation(self, activation, gate, up, out)
    }

    /// The derivative of [`Kernels::gated_activation`].
    fn gated_activation_backward(
        &self,
        activation: Activation,
        gate: ViewOf<'_, Self>,
        up: ViewOf<'_, Self>,
        dy: ViewOf<'_, Self>,
        dgate: ViewOf<'_, Self>,
        dup: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::activation::gated_activation_backward(self, activation, gate, up, dy, dgate, dup)
    }

    /// Rotary position embedding (Su et al., 2021) in the half-split form of Llama:
    /// `x: [..., T, D]`, `cos` and `sin`: `[T, D / 2]` in the accumulator dtype; element `j` of the
    /// first half pairs with element `j` of the second.
    fn rotary(
        &self,
        rotation: Rotation,
        x: ViewOf<'_, Self>,
        cos: ViewOf<'_, Self>,
        sin: ViewOf<'_, Self>,
        out: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::rotary::rotary(self, rotation, x, cos, sin, out)
    }

    /// Cross entropy straight from `logits: [N, V]` and `targets: [N]` (`U32` or `I64`):
    /// `losses: [N]` and `log_sum_exp: [N]`, both in the accumulator dtype. Ignored rows get loss
    /// 0.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`](crate::Error::IndexOutOfRange) for a target that is neither a
    /// class nor ignored.
    fn cross_entropy(
        &self,
        spec: CrossEntropy,
        logits: ViewOf<'_, Self>,
        targets: ViewOf<'_, Self>,
        losses: ViewOf<'_, Self>,
        log_sum_exp: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::loss::cross_entropy(self, spec, logits, targets, losses, log_sum_exp)
    }

    /// The derivative of [`Kernels::cross_entropy`]: `dlosses: [N]` in the accumulator dtype (a
    /// stride of 0 is welcome), `dlogits: [N, V]`, which may be the view of `logits`. Ignored rows
    /// get exactly 0.
    fn cross_entropy_backward(
        &self,
        spec: CrossEntropy,
        logits: ViewOf<'_, Self>,
        targets: ViewOf<'_, Self>,
        log_sum_exp: ViewOf<'_, Self>,
        dlosses: ViewOf<'_, Self>,
        dlogits: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::loss::cross_entropy_backward(
            self,
            spec,
            logits,
            targets,
            log_sum_exp,
            dlosses,
            dlogits,
        )
    }

    /// `out = softmax(scale * q·kᵀ + mask)·v` (Vaswani et al., 2017) with `q: [B, H, T, D]`,
    /// `k: [B, G, S, D]`, `v: [B, G, S, E]`, `H` a multiple of `G` (query head `h` uses head
    /// `h / (H / G)`), `mask`: `U8` `[B, H, T, S]`, 0 hides. A row that sees nothing gives 0.
    /// `log_sum_exp: [B, H, T]` in the accumulator dtype is what the derivative needs.
    fn attention(
        &self,
        spec: Attention,
        q: ViewOf<'_, Self>,
        k: ViewOf<'_, Self>,
        v: ViewOf<'_, Self>,
        mask: Option<ViewOf<'_, Self>>,
        out: ViewOf<'_, Self>,
        log_sum_exp: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::attention::attention(self, spec, q, k, v, mask, out, log_sum_exp)
    }

    /// The derivative of [`Kernels::attention`]; `dq`, `dk` and `dv` are overwritten and must not
    /// overlap anything else (they may be disjoint views of one buffer).
    fn attention_backward(
        &self,
        spec: Attention,
        q: ViewOf<'_, Self>,
        k: ViewOf<'_, Self>,
        v: ViewOf<'_, Self>,
        mask: Option<ViewOf<'_, Self>>,
        out: ViewOf<'_, Self>,
        log_sum_exp: ViewOf<'_, Self>,
        dout: ViewOf<'_, Self>,
        dq: ViewOf<'_, Self>,
        dk: ViewOf<'_, Self>,
        dv: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::attention::attention_backward(
            self,
            spec,
            q,
            k,
            v,
            mask,
            out,
            log_sum_exp,
            dout,
            dq,
            dk,
            dv,
        )
    }

    /// One AdamW step on equal-length contiguous runs. `m` and `v` are in the accumulator dtype of
    /// `param`; all arithmetic happens in it.
    fn adamw_step(
        &self,
        step: AdamWStep,
        param: ViewOf<'_, Self>,
        grad: ViewOf<'_, Self>,
        m: ViewOf<'_, Self>,
        v: ViewOf<'_, Self>,
    ) -> Result<()> {
        provided::optim::adamw_step(self, step, param, grad, m, v)
    }

    /// One SGD step on equal-length contiguous runs; `momentum` is in the accumulator dtype.
    fn sgd_step(
        &self,
        step: SgdStep,
        param: ViewOf<'_, Self>,
        grad: ViewOf<'_, Self>,
        momentum: Option<ViewOf<'_, Self>>,
    ) -> Result<()> {
        provided::optim::sgd_step(self, step, param, grad, momentum)
    }

    /// `out[j]` = sum of squares of block `j` of the contiguous run `x`, blocks of `SUM_BLOCK`
    /// elements; `out` is in the accumulator dtype.
    fn sums_of_squares(&self, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>) -> Result<()> {
        provided::sums::sums_of_squares(self, x, out)
    }

    /// `out[0]` (`U8`) = 1 if every element of `x` is finite, else 0.
    fn all_finite(&self, x: ViewOf<'_, Self>, out: ViewOf<'_, Self>) -> Result<()> {
        provided::sums::all_finite(self, x, out)
    }

    /// The elementwise sum of `nodes` along one binary tree on their numbers: at each level node
    /// `i` is the sum of nodes `2i` and `2i + 1`, or its only child at the right edge.
    fn tree_sum(&self, nodes: &[ViewOf<'_, Self>], out: ViewOf<'_, Self>) -> Result<()> {
        provided::sums::tree_sum(self, nodes, out)
    }
}
