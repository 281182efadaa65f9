//! The words of the kernel families: which function, which norm, which step.

use crate::View;

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

/// Distributions of [`Kernels::random`](crate::Kernels::random).
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

/// Elements per partial sum of [`sums_of_squares`](crate::Kernels::sums_of_squares): fixed, so that
/// norms do not depend on how a flat buffer is cut.
pub const SUM_BLOCK: usize = 4096;

/// The inputs of [`Kernels::normalize`](crate::Kernels::normalize).
#[derive(Debug)]
pub struct NormOperands<'a, B> {
    /// `[..., C]`
    pub x: View<'a, B>,
    /// `[..., C]`, added to `x` before the normalisation.
    pub residual: Option<View<'a, B>>,
    /// `[C]`, the scale.
    pub weight: Option<View<'a, B>>,
    /// `[C]`, the shift.
    pub bias: Option<View<'a, B>>,
}

// By hand: derived, they would ask for a buffer that can be copied, which none can.
impl<B> Clone for NormOperands<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for NormOperands<'_, B> {}
