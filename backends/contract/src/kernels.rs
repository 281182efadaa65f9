//! What a device can compute: a few required families, and fused ones composed from them.
//!
//! # For callers
//! Every operand is a [`View`]: a transpose, a slice or a broadcast costs nothing. Results go into
//! views that the caller allocated. Dtypes must match; there is no promotion. An output may be the
//! very view of an input in the elementwise families; any other overlap of an output with an input
//! or with itself is an error.
//!
//! # For implementers
//! Implement the required methods and a Transformer runs; override a provided one where it pays.
//! `conformance` compares each override with its composition and both with an `f64` oracle.
//! Check operands with the functions of [`check`](crate::check), which give every backend the same
//! errors. Sums of 16-bit floats are formed in `f32`. Equal inputs give equal bits: no float
//! atomics, no order that depends on the number of threads.

use crate::{Memory, RandomKey, Result, ViewOf, provided};

/// Elementwise functions of one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UnaryOp {
    /// `-x`
    Negate,
    /// `|x|`
    Abs,
    /// `x * x`
    Square,
    /// Square root.
    Sqrt,
    /// `1 / x`
    Reciprocal,
    /// Natural exponential.
    Exp,
    /// Natural logarithm.
    Log,
    /// Sine, radians.
    Sin,
    /// Cosine, radians.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `scale * x + shift`
    Affine {
        /// Factor.
        scale: f64,
        /// Summand.
        shift: f64,
    },
    /// `x` raised to a constant.
    Power(f64),
    /// An activation function.
    Activation(Activation),
}

/// The activation functions of Transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * Φ(x)` with the exact normal distribution function (Hendrycks and Gimpel, 2016).
    Gelu,
    /// The tanh approximation of GELU that GPT-2 uses:
    /// `x/2 * (1 + tanh(sqrt(2/π) * (x + 0.044715 x³)))`.
    GeluTanh,
    /// `x * sigmoid(x)`, also called swish.
    Silu,
    /// `max(x, 0)`
    Relu,
}

/// Elementwise functions of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `a + b`; integers wrap.
    Add,
    /// `a - b`; integers wrap.
    Subtract,
    /// `a * b`; integers wrap.
    Multiply,
    /// `a / b`; integer division by 0 gives 0.
    Divide,
    /// The larger; NaN if either is NaN.
    Maximum,
    /// The smaller; NaN if either is NaN.
    Minimum,
}

/// Elementwise comparisons; the result is [`DType::U8`](crate::DType::U8), 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// `a == b`
    Equal,
    /// `a != b`
    NotEqual,
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterEqual,
}

/// Reductions over whole dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceKind {
    /// The sum, in a fixed order.
    Sum,
    /// The largest; NaN if any is NaN.
    Max,
    /// The smallest; NaN if any is NaN.
    Min,
}

/// What happens to the old values of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// They are replaced.
    Overwrite,
    /// The result is added to them.
    Add,
}

/// Distributions of [`Kernels::random`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Uniform in `[low, high)`: `low + (high - low) * u` with `u` of [`crate::rng::uniform`] at
    /// word `i`.
    Uniform {
        /// Smallest value.
        low: f64,
        /// Bound.
        high: f64,
    },
    /// Normal: `mean + deviation * z`, with `z` number `i % 2` of [`crate::rng::normal_pair`] at
    /// words `2 * (i / 2)` and `2 * (i / 2) + 1`.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        deviation: f64,
    },
}

/// Which normalisation over the last dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// With or without the mean.
    pub kind: NormKind,
    /// Added to the variance or mean square before the root.
    pub epsilon: f64,
}

/// The two normalisations of Transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Subtracts the mean, divides by the standard deviation (Ba, Kiros, Hinton, 2016). The
    /// variance is formed from differences to the mean, never as `E[x²] - E[x]²`.
    Layer,
    /// Divides by the root of the mean square (Zhang and Sennrich, 2019).
    Rms,
}

/// How cross entropy treats rows and classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Rows with this target have loss 0 and gradient 0.
    pub ignore_index: i64,
    /// Weight `e` of the uniform part: `(1 - e) * nll + e * mean over classes of -log p`.
    pub label_smoothing: f64,
}

/// Scaled dot-product attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Factor on the scores, usually `1 / sqrt(head size)`.
    pub scale: f64,
    /// Which keys a query sees.
    pub visibility: Visibility,
}

/// Which keys a query sees, beside an explicit mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// All of them.
    All,
    /// Query `i` of `t` sees keys `0 ..= i + (s - t)` of `s`: aligned at the end, so that a query
    /// appended to a key/value cache sees all of it and itself.
    Causal,
}

/// One AdamW step (Loshchilov and Hutter, 2019): decoupled decay first, then
/// `p -= lr * m̂ / (sqrt(v̂) + epsilon)`, moments corrected by `step`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Added to the root of the corrected second moment.
    pub epsilon: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// This step's number; the first is 1.
    pub step: u64,
    /// Factor on the gradient before anything else: clipping and unscaling.
    pub gradient_scale: f64,
}

/// One step of stochastic gradient descent:
/// `g += decay * p; b = momentum * b + (1 - dampening) * g` (`b = g` at the first step);
/// `p -= lr * b`, or `lr * (g + momentum * b)` with Nesterov.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    /// Learning rate.
    pub learning_rate: f64,
    /// Momentum; 0 needs no buffer.
    pub momentum: f64,
    /// How much less of the gradient enters the buffer.
    pub dampening: f64,
    /// Whether the look-ahead form is used.
    pub nesterov: bool,
    /// L2 decay, added to the gradient.
    pub weight_decay: f64,
    /// This step's number; the first is 1.
    pub step: u64,
    /// Factor on the gradient before anything else: clipping and unscaling.
    pub gradient_scale: f64,
}

/// The direction of a rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Rotates by the angles: the forward pass.
    Forward,
    /// Rotates back: the derivative.
    Backward,
}

/// Elements per partial sum of [`Kernels::sums_of_squares`]; a constant of the contract, so that
/// norms do not depend on how a flat buffer is cut.
pub const SUM_BLOCK: usize = 4096;

/// The inputs of [`Kernels::normalize`].
#[derive(Debug)]
pub struct NormOperands<'a, B> {
    /// `[..., C]`
    pub x: crate::View<'a, B>,
    /// `[..., C]`, added to `x` before the normalisation.
    pub residual: Option<crate::View<'a, B>>,
    /// `[C]`, the scale.
    pub weight: Option<crate::View<'a, B>>,
    /// `[C]`, the shift.
    pub bias: Option<crate::View<'a, B>>,
}

// By hand: derived, they would ask for a buffer that can be copied, which none can.
impl<B> Clone for NormOperands<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for NormOperands<'_, B> {}

/// What a device can compute.
pub trait Kernels: Memory {
    // ---- required ------------------------------------------------------------------------------

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

    // ---- provided ------------------------------------------------------------------------------

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
    /// `[2, rows]` in the accumulator dtype: means (0 for [`NormKind::Rms`]), then reciprocal
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

    /// `out[j]` = sum of squares of block `j` of the contiguous run `x`, blocks of [`SUM_BLOCK`]
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
