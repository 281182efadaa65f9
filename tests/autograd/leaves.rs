//! Who collects a gradient, where, and when it is complete.

use std::sync::Arc;

use sneppx::autograd::GradSink;
use sneppx::contract::Store;
use sneppx::cpu::Cpu;
use sneppx::nn::{CrossEntropyLoss, LossReduction};
use sneppx::tensor::Leaf;
use sneppx::{DType, Error, Result};

use super::fixture::{T, Watcher, device, grad, leaf, named};

#[test]
fn gradients_add_up_over_calls_until_they_are_cleared() -> Result<()> {
    let x = leaf(&device(), &[1.0, 2.0])?;
    for calls in 1..=3 {
        x.square()?.sum_all()?.backward()?;
        let factor = f64::from(calls);
        assert_eq!(grad(&x), [2.0 * factor, 4.0 * factor]);
    }
    x.leaf().unwrap().clear_grad();
    assert!(x.grad().is_none());
    x.sum_all()?.backward()?;
    assert_eq!(grad(&x), [1.0, 1.0]);
    // A leaf is its own gradient's root.
    let one = leaf(&device(), &[5.0])?;
    one.backward()?;
    assert_eq!(grad(&one), [1.0]);
    Ok(())
}

#[test]
fn gradients_are_written_where_a_leaf_keeps_them() -> Result<()> {
    let device = device();
    let room = T::full(&device, DType::F64, &[5], 9.0)?;
    let value = T::from_slice(&device, &[1.0, 2.0, 3.0], &[3])?;
    let x = Leaf::new("x", value, true);
    x.set_grad_home(Some(room.slice(0, 1, 3)?));
    x.tensor()?.square()?.sum_all()?.backward()?;
    assert_eq!(room.to_vec::<f64>()?, [9.0, 2.0, 4.0, 6.0, 9.0]);
    x.tensor()?.sum_all()?.backward()?;
    assert_eq!(room.to_vec::<f64>()?, [9.0, 3.0, 5.0, 7.0, 9.0]);
    x.clear_grad();
    x.tensor()?.sum_all()?.backward()?;
    assert_eq!(room.to_vec::<f64>()?, [9.0, 1.0, 1.0, 1.0, 9.0]);
    Ok(())
}

#[test]
fn frozen_leaves_take_no_part() -> Result<()> {
    let device = device();
    let value = T::from_slice(&device, &[2.0], &[1])?;
    let (frozen, free) = (Leaf::new("a", value.clone(), false), Leaf::new("b", value, true));
    frozen.tensor()?.mul(&free.tensor()?)?.sum_all()?.backward()?;
    assert!(frozen.grad().is_none());
    assert_eq!(free.grad().unwrap().to_vec::<f64>()?, [2.0]);
    frozen.set_trainable(true);
    frozen.tensor()?.mul(&free.tensor()?)?.sum_all()?.backward()?;
    assert_eq!(frozen.grad().unwrap().to_vec::<f64>()?, [2.0]);
    Ok(())
}

/// What a rule keeps of a parameter is the parameter, so its memory can go and come back.
#[test]
fn a_parameter_may_be_away_between_forward_and_backward() -> Result<()> {
    type Forward = fn(&T, &T) -> Result<T>;
    let uses: [(&str, Forward); 5] = [
        ("linear", |x, w| x.linear(w, None)),
        ("matmul", |x, w| w.matmul(&x.unsqueeze(1)?)),
        ("mul", |x, w| x.mul(w)),
        ("unary", |x, w| w.square()?.mul_scalar(0.5)?.add(x)),
        ("div", |x, w| x.div(w)),
    ];
    let device = device();
    for (name, forward) in uses {
        let run = |away: bool| -> Result<Vec<f64>> {
            let weight = Leaf::new("w", T::from_slice(&device, &[1.0, 2.0], &[1, 2])?, true);
            let x = leaf(&device, &[3.0, 4.0])?;
            let out = forward(&x, &weight.tensor()?)?.sum_all()?;
            if away {
                let value = weight.release().expect("a value");
                assert!(weight.tensor().is_err());
                weight.set_value(value.mul_scalar(1.0)?)?;
            }
            out.backward()?;
            Ok([grad(&x), weight.grad().expect("a gradient").to_vec()?].concat())
        };
        assert_eq!(run(true)?, run(false)?, "{name}");
    }
    let weight = Leaf::new("w", T::from_slice(&device, &[1.0, 2.0], &[1, 2])?, true);
    let x = leaf(&device, &[3.0, 4.0])?;
    for forward in uses.map(|(_, forward)| forward) {
        let out = forward(&x, &weight.tensor()?)?.sum_all()?;
        let value = weight.release().expect("a value");
        let error = out.backward().unwrap_err().to_string();
        assert!(error.contains("gradient of") && error.contains("w is used while"), "{error}");
        weight.set_value(value)?;
    }
    Ok(())
}

/// Local gradients of ranks 0 and 1; their mean is 9.
#[test]
fn ddp_04_a_parameter_used_twice_has_both_contributions() -> Result<()> {
    let device = device();
    for (x, want) in [(1.0, 6.0), (2.0, 12.0)] {
        let w = leaf(&device, &[3.0])?;
        let x = T::from_slice(&device, &[x], &[1])?;
        w.mul(&w.mul(&x)?)?.sum_all()?.backward()?;
        assert_eq!(grad(&w), [want]);
    }
    Ok(())
}

#[test]
fn zero_03_a_tied_embedding_adds_both_uses() -> Result<()> {
    let device = device();
    let table = [1.0, 0.0, 0.0, 2.0, 1.0, 1.0];
    let mut sum = [0.0; 6];
    for (token, target) in [(0u32, 1u32), (2, 0)] {
        let weight = T::from_slice(&device, &table, &[3, 2])?.requires_grad()?;
        let hidden = weight.embedding(&T::from_slice(&device, &[token], &[1])?)?;
        let target = T::from_slice(&device, &[target], &[1])?;
        let loss = CrossEntropyLoss { reduction: LossReduction::Mean, ..Default::default() };
        let loss = loss.apply(&hidden.linear(&weight, None)?, &target)?;
        assert!((loss.item()? - 1.861_994_804_1).abs() < 1e-9, "{}", loss.item()?);
        loss.backward()?;
        sum.iter_mut().zip(grad(&weight)).for_each(|(sum, grad)| *sum += grad);
    }
    let mean = sum.map(|value| value / 2.0);
    let want = [
        [0.211_159_399_1, -1.055_796_995_6],
        [-0.211_159_399_1, 0.211_159_399_1],
        [0.211_159_399_1, 0.844_637_596_5],
    ];
    for (got, want) in mean.iter().zip(want.concat()) {
        assert!((got - want).abs() < 1e-9, "{mean:?}");
    }
    let norm = mean.iter().map(|value| value * value).sum::<f64>().sqrt();
    assert!((norm - 1.416_500_311_6).abs() < 1e-9, "{norm} (1.249 untied, 2.003 counted twice)");
    Ok(())
}

#[test]
fn a_sink_hears_of_each_leaf_once_after_its_last_contribution() -> Result<()> {
    let device = device();
    let (a, b) = (named(&device, "a", &[2, 2])?, named(&device, "b", &[2, 2])?);
    let mut watcher = Watcher::new(&device);
    // b is used first in forward, and so complete last; a is used on both sides of b.
    let early = b.tensor()?.linear(&a.tensor()?, None)?;
    let late = early.tanh()?.linear(&a.tensor()?, None)?.mul(&a.tensor()?)?;
    late.sum_all()?.backward_into(&mut watcher)?;
    assert_eq!(watcher.ready.len(), 2);
    assert_eq!(watcher.targets.iter().filter(|name| *name == "a").count(), 3);
    assert_eq!(watcher.targets.iter().filter(|name| *name == "b").count(), 1);

    let mut watcher = Watcher::new(&device);
    let c = named(&device, "c", &[2, 2])?;
    let first = c.tensor()?.exp()?;
    let second = first.linear(&a.tensor()?, None)?;
    second.linear(&b.tensor()?, None)?.sum_all()?.backward_into(&mut watcher)?;
    assert_eq!(watcher.ready, ["b", "a", "c"], "the last used is complete first");
    Ok(())
}

#[test]
fn an_error_of_the_sink_ends_the_walk() -> Result<()> {
    struct Refusing;
    impl GradSink<Cpu> for Refusing {
        fn target(&mut self, leaf: &Arc<Leaf<Cpu>>) -> Result<(T, Store)> {
            Err(Error::invalid("gradient", leaf.name(), "has no place here"))
        }
        fn ready(&mut self, _: &Arc<Leaf<Cpu>>) -> Result<()> {
            panic!("nothing is complete")
        }
    }
    let x = leaf(&device(), &[1.0])?;
    let text = x.exp()?.sum_all()?.backward_into(&mut Refusing).unwrap_err().to_string();
    assert!(text.contains("no place") && text.contains("gradient of"), "{text}");
    Ok(())
}
