//! Operations with a derivative of their own.

use sneppx::Result;
use sneppx::autograd::CustomOperation;
use sneppx::cpu::Cpu;
use sneppx::tensor::is_recording;

use super::fixture::{T, Watcher, device, grad, leaf, named};

/// `x * y`, with a choice of mistakes.
#[derive(Clone, Copy)]
enum Product {
    Right,
    LeavesOutSecond,
    ForgetsOne,
    WrongShape,
}

impl CustomOperation<Cpu> for Product {
    fn name(&self) -> &'static str {
        "custom product"
    }

    fn forward(&self, inputs: &[T]) -> Result<T> {
        assert!(!is_recording());
        inputs[0].mul(&inputs[1])
    }

    fn backward(&self, inputs: &[T], output: &T, grad: &T) -> Result<Vec<Option<T>>> {
        assert_eq!(output.shape(), grad.shape());
        let first = grad.mul(&inputs[1])?;
        Ok(match self {
            Product::Right => vec![Some(first), Some(grad.mul(&inputs[0])?)],
            Product::LeavesOutSecond => vec![Some(first), None],
            Product::ForgetsOne => vec![Some(first)],
            Product::WrongShape => vec![Some(first.unsqueeze(0)?), None],
        })
    }
}

#[test]
fn a_custom_operation_brings_its_own_derivative() -> Result<()> {
    let device = device();
    let (x, y) = (leaf(&device, &[2.0, 3.0])?, leaf(&device, &[5.0, 7.0])?);
    let out = T::custom(Product::Right, &[&x.square()?, &y])?;
    assert_eq!(out.to_vec::<f64>()?, [20.0, 63.0]);
    out.add(&T::custom(Product::Right, &[&x, &x])?)?.sum_all()?.backward()?;
    assert_eq!(grad(&x), [2.0 * 2.0 * 5.0 + 4.0, 2.0 * 3.0 * 7.0 + 6.0]);
    assert_eq!(grad(&y), [4.0, 9.0]);
    let constant = T::custom(Product::Right, &[&x.detach(), &y.detach()])?;
    assert!(!constant.needs_grad());
    Ok(())
}

#[test]
fn mistakes_of_a_custom_derivative_are_named() -> Result<()> {
    let device = device();
    let x = leaf(&device, &[2.0, 3.0])?;
    for (mistake, want) in [
        (Product::ForgetsOne, "one gradient for each of 2 inputs"),
        (Product::WrongShape, "gradient [1, 2] and input [2] differ"),
    ] {
        let error = T::custom(mistake, &[&x, &x])?.sum_all()?.backward().unwrap_err();
        let text = error.to_string();
        assert!(text.contains(want) && text.contains("custom product"), "{text}");
    }
    Ok(())
}

#[test]
fn leaves_behind_a_branch_without_gradient_are_heard_of_too() -> Result<()> {
    let device = device();
    let (a, b) = (named(&device, "a", &[2])?, named(&device, "b", &[2])?);
    let mut watcher = Watcher::new(&device);
    // b reaches the loss through the branch that is left out, and a by both ways.
    let branch = b.tensor()?.exp()?.mul(&a.tensor()?)?;
    let out = T::custom(Product::LeavesOutSecond, &[&a.tensor()?.exp()?, &branch])?;
    out.sum_all()?.backward_into(&mut watcher)?;
    watcher.ready.sort();
    assert_eq!(watcher.ready, ["a", "b"]);
    assert_eq!(watcher.targets, ["a"]);
    assert!(a.grad().is_some() && b.grad().is_none());
    Ok(())
}
