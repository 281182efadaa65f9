//! Comparisons, which have no derivative, and the choice between two tensors, which has.

use sneppx_contract::{CompareOp, DType, Device, Error, Result, Shape};

use super::elementwise::{stretch, unstretch};
use crate::tensor::{Accumulate, Gradient, Rule, Tensor, record};

macro_rules! compare_methods {
    ($($(#[$doc:meta])* $name:ident => $op:expr;)*) => {
        impl<D: Device> Tensor<D> {
            $(
                $(#[$doc])*
                ///
                /// As 0 or 1 in `u8`, after broadcasting; carries no gradient.
                ///
                /// # Errors
                /// Shapes that do not broadcast; different dtypes.
                pub fn $name(&self, other: &Tensor<D>) -> Result<Tensor<D>> {
                    self.compare($op, other)
                }
            )*
        }
    };
}

impl<D: Device> Tensor<D> {
    /// `op` of each pair as 0 or 1 in `u8`, after broadcasting; carries no gradient.
    ///
    /// # Errors
    /// Shapes that do not broadcast; different dtypes.
    pub fn compare(&self, op: CompareOp, other: &Tensor<D>) -> Result<Tensor<D>> {
        let shape = Shape::broadcast("compare", self.shape(), other.shape())?;
        let (a, b) = (stretch(self, &shape)?, stretch(other, &shape)?);
        let out = Tensor::empty(self.device(), DType::U8, shape)?;
        self.device().compare(op, a.view(), b.view(), out.view())?;
        Ok(out)
    }

    /// `self` where `condition` (`u8`) is not 0, `other` elsewhere, after broadcasting all three.
    ///
    /// # Errors
    /// Shapes that do not broadcast; a condition that is not `u8`; different dtypes.
    pub fn select_where(&self, condition: &Tensor<D>, other: &Tensor<D>) -> Result<Tensor<D>> {
        const NAME: &str = "select_where";
        if condition.dtype() != DType::U8 {
            return Err(Error::dtype(NAME, "a u8 condition", condition.dtype()));
        }
        let shape = Shape::broadcast(NAME, self.shape(), other.shape())?;
        let shape = Shape::broadcast(NAME, &shape, condition.shape())?;
        let (a, b) = (stretch(self, &shape)?, stretch(other, &shape)?);
        let condition = stretch(condition, &shape)?;
        let out = Tensor::empty(self.device(), self.dtype(), shape)?;
        self.device().select(condition.view(), a.view(), b.view(), out.view())?;
        Ok(record(out, &[self, other], || {
            Box::new(SelectWhere { condition, shapes: [*self.shape(), *other.shape()] })
        }))
    }
}

struct SelectWhere<D: Device> {
    condition: Tensor<D>,
    shapes: [Shape; 2],
}

impl<D: Device> Rule<D> for SelectWhere<D> {
    fn name(&self) -> &'static str {
        "select_where"
    }

    fn backward(self: Box<Self>, grad: Gradient<D>, inputs: &mut dyn Accumulate<D>) -> Result<()> {
        let grad = grad.tensor();
        let zero = Tensor::zeros(grad.device(), grad.dtype(), &[])?;
        if inputs.needs(0) {
            let part = grad.select_where(&self.condition, &zero)?;
            unstretch(&part, &self.shapes[0], 0, inputs)?;
        }
        if inputs.needs(1) {
            let part = zero.select_where(&self.condition, grad)?;
            unstretch(&part, &self.shapes[1], 1, inputs)?;
        }
        Ok(())
    }
}

compare_methods! {
    /// `self == other`
    eq => CompareOp::Equal;
    /// `self != other`
    ne => CompareOp::NotEqual;
    /// `self < other`
    lt => CompareOp::Less;
    /// `self <= other`
    le => CompareOp::LessEqual;
    /// `self > other`
    gt => CompareOp::Greater;
    /// `self >= other`
    ge => CompareOp::GreaterEqual;
}
