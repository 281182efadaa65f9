//! Arithmetic element by element, with broadcasting.

use sneppx_contract::{
    Activation, BinaryOp, Device, Layout, ReduceKind, Result, Shape, Store, UnaryOp,
};

use crate::tensor::{Accumulate, Gradient, Rule, Saved, Tensor, record};

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:expr;)*) => {
        impl<D: Device> Tensor<D> {
            $($(#[$doc])* pub fn $name(&self) -> Result<Tensor<D>> { self.unary($op) })*
        }
    };
}

unary_methods! {
    /// `-x`
    neg => UnaryOp::Negate;
    /// `|x|`; the derivative at 0 is 0.
    abs => UnaryOp::Abs;
    /// `x²`
    square => UnaryOp::Square;
    /// Square root.
    sqrt => UnaryOp::Sqrt;
    /// `1 / x`
    reciprocal => UnaryOp::Reciprocal;
    /// Natural exponential.
    exp => UnaryOp::Exp;
    /// Natural logarithm.
    log => UnaryOp::Log;
    /// Sine, radians.
    sin => UnaryOp::Sin;
    /// Cosine, radians.
    cos => UnaryOp::Cos;
    /// Hyperbolic tangent.
    tanh => UnaryOp::Tanh;
    /// `1 / (1 + exp(-x))`
    sigmoid => UnaryOp::Sigmoid;
    /// Exact GELU, [`Activation::Gelu`].
    gelu => UnaryOp::Activation(Activation::Gelu);
    /// GPT-2's GELU, [`Activation::GeluTanh`].
    gelu_tanh => UnaryOp::Activation(Activation::GeluTanh);
    /// `x * sigmoid(x)`
    silu => UnaryOp::Activation(Activation::Silu);
    /// `max(x, 0)`; the derivative at 0 is 0.
    relu => UnaryOp::Activation(Activation::Relu);
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:expr;)*) => {
        impl<D: Device> Tensor<D> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Shapes that do not broadcast; different dtypes.
                pub fn $name(&self, other: &Tensor<D>) -> Result<Tensor<D>> {
                    self.binary($op, other)
                }
            )*
        }
    };
}

binary_methods! {
    /// `self + other`
    add => BinaryOp::Add;
    /// `self - other`
    sub => BinaryOp::Subtract;
    /// `self * other`
    mul => BinaryOp::Multiply;
    /// `self / other`
    div => BinaryOp::Divide;
    /// The larger of each pair. The gradient goes to the larger; halves of it to both where they
    /// are equal.
    maximum => BinaryOp::Maximum;
    /// The smaller of each pair. The gradient goes to the smaller; halves of it to both where they
    /// are equal.
    minimum => BinaryOp::Minimum;
}

impl<D: Device> Tensor<D> {
    /// `op` of every element.
    pub fn unary(&self, op: UnaryOp) -> Result<Tensor<D>> {
        let out = self.empty_like()?;
        self.device().unary(op, self.view(), out.view())?;
        Ok(record(out, &[self], || Box::new(Unary { op, x: Saved::new(self) })))
    }

    /// `scale * x + shift`
    pub fn affine(&self, scale: f64, shift: f64) -> Result<Tensor<D>> {
        self.unary(UnaryOp::Affine { scale, shift })
    }

    /// `factor * x`
    pub fn mul_scalar(&self, factor: f64) -> Result<Tensor<D>> {
        self.affine(factor, 0.0)
    }

    /// `x + summand`
    pub fn add_scalar(&self, summand: f64) -> Result<Tensor<D>> {
        self.affine(1.0, summand)
    }

    /// `x` raised to a constant.
    pub fn powf(&self, exponent: f64) -> Result<Tensor<D>> {
        self.unary(UnaryOp::Power(exponent))
    }

    /// `op` of each pair, after broadcasting.
    ///
    /// # Errors
    /// Shapes that do not broadcast; different dtypes.
    pub fn binary(&self, op: BinaryOp, other: &Tensor<D>) -> Result<Tensor<D>> {
        let shape = Shape::broadcast(binary_name(op), self.shape(), other.shape())?;
        let (a, b) = (stretch(self, &shape)?, stretch(other, &shape)?);
        let out = Tensor::empty(self.device(), self.dtype(), shape)?;
        self.device().binary(op, a.view(), b.view(), out.view())?;
        Ok(record(out, &[self, other], || {
            let saves = !matches!(op, BinaryOp::Add | BinaryOp::Subtract);
            let operands = saves.then(|| (Saved::new(self), Saved::new(other)));
            Box::new(Binary { op, shapes: [*self.shape(), *other.shape()], operands })
        }))
    }
}

/// `x` stretched to `shape`, without a record.
pub(super) fn stretch<D: Device>(x: &Tensor<D>, shape: &Shape) -> Result<Tensor<D>> {
    Ok(x.with_layout(x.layout().broadcast_to(shape)?))
}

/// Gives the sum of `grad` over the dimensions that broadcasting stretched to input `input`.
pub(super) fn unstretch<D: Device>(
    grad: &Tensor<D>,
    shape: &Shape,
    input: usize,
    inputs: &mut dyn Accumulate<D>,
) -> Result<()> {
    if grad.shape() == shape {
        return inputs.add(input, grad.clone());
    }
    let lead = grad.ndim() - shape.ndim();
    let kept: Vec<usize> = std::iter::repeat_n(1, lead).chain(shape.iter().copied()).collect();
    let kept = Shape::new(&kept)?;
    let device = grad.device().clone();
    inputs.fresh(input, &mut |mut target| {
        // The leading ones are views of the same memory.
        target.layout = Layout::contiguous(kept).with_offset(target.layout.offset());
        device.reduce(ReduceKind::Sum, grad.view(), Store::Overwrite, target)
    })
}

fn binary_name(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "add",
        BinaryOp::Subtract => "sub",
        BinaryOp::Multiply => "mul",
        BinaryOp::Divide => "div",
        BinaryOp::Maximum => "maximum",
        BinaryOp::Minimum => "minimum",
    }
}

struct Unary<D: Device> {
    op: UnaryOp,
    x: Saved<D>,
}

impl<D: Device> Rule<D> for Unary<D> {
    fn name(&self) -> &'static str {
        "unary"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let (x, dx) = (self.x.value()?, grad.reusable()?);
        let device = dx.device();
        device.unary_backward(self.op, x.view(), grad.tensor().view(), dx.view())?;
        inputs.give(0, dx)
    }
}

struct Binary<D: Device> {
    op: BinaryOp,
    shapes: [Shape; 2],
    operands: Option<(Saved<D>, Saved<D>)>,
}

impl<D: Device> Rule<D> for Binary<D> {
    fn name(&self) -> &'static str {
        binary_name(self.op)
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let grad = grad.tensor();
        for input in 0..2 {
            if inputs.needs(input) {
                let part = self.part(grad, input)?;
                unstretch(&part, &self.shapes[input], input, inputs)?;
            }
        }
        Ok(())
    }
}

impl<D: Device> Binary<D> {
    /// The gradient of operand `input` before broadcasting is undone.
    fn part(&self, grad: &Tensor<D>, input: usize) -> Result<Tensor<D>> {
        let Some((a, b)) = &self.operands else {
            let negative = self.op == BinaryOp::Subtract && input == 1;
            return if negative { grad.neg() } else { Ok(grad.clone()) };
        };
        let (a, b) = (&a.value()?, &b.value()?);
        let (own, other) = if input == 0 { (a, b) } else { (b, a) };
        match (self.op, input) {
            (BinaryOp::Multiply, _) => grad.mul(other),
            (BinaryOp::Divide, 0) => grad.div(b),
            (BinaryOp::Divide, _) => grad.mul(&a.div(b)?)?.div(b)?.neg(),
            // 1 where the operand won, 1/2 where both are equal, 0 where it lost.
            (BinaryOp::Maximum, _) => grad.mul(
                &own.ge(other)?
                    .cast(grad.dtype())?
                    .add(&own.gt(other)?.cast(grad.dtype())?)?
                    .mul_scalar(0.5)?,
            ),
            (BinaryOp::Minimum, _) => grad.mul(
                &own.le(other)?
                    .cast(grad.dtype())?
                    .add(&own.lt(other)?.cast(grad.dtype())?)?
                    .mul_scalar(0.5)?,
            ),
            (BinaryOp::Add | BinaryOp::Subtract, _) => Ok(grad.clone()),
        }
    }
}
