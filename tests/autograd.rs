//! The graph and the reverse walk: what is recorded, who hears of a gradient and when, what is
//! refused, and what it all costs in memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use sneppx::autograd::{CustomOperation, GradSink, LeafGrads, no_grad, recompute};
use sneppx::contract::{Memory, RandomKey, Store};
use sneppx::cpu::Cpu;
use sneppx::nn::{CrossEntropyLoss, LossReduction};
use sneppx::tensor::{Leaf, is_recording};
use sneppx::{DType, Error, Result, Tensor};

type T = Tensor<Cpu>;

fn device() -> Cpu {
    Cpu::with_threads(1).expect("one thread")
}

fn leaf(device: &Cpu, values: &[f64]) -> Result<T> {
    T::from_slice(device, values, &[values.len()])?.requires_grad()
}

fn grad(x: &T) -> Vec<f64> {
    x.grad().expect("a gradient").to_vec().expect("f64")
}

#[test]
fn a_graph_is_used_once() -> Result<()> {
    let x = leaf(&device(), &[1.0, 2.0])?;
    let shared = x.square()?;
    let (first, second) = (shared.sum_all()?, shared.exp()?.sum_all()?);
    first.backward()?;
    let before = grad(&x);
    for loss in [&first, &second] {
        let text = loss.backward().unwrap_err().to_string();
        assert!(text.contains("walked before") && text.contains("forward"), "{text}");
    }
    assert_eq!(grad(&x), before);
    Ok(())
}

#[test]
fn only_one_value_has_a_gradient_of_its_own() -> Result<()> {
    let x = leaf(&device(), &[1.0, 2.0])?;
    let text = x.square()?.backward().unwrap_err().to_string();
    assert!(text.contains("[2]") && text.contains("backward_with"), "{text}");

    let (y, device) = (x.square()?, device());
    let mut sink = LeafGrads::new(&device);
    let wrong = T::ones(&device, DType::F64, &[3])?;
    let text = y.backward_with(wrong, &mut sink).unwrap_err().to_string();
    assert!(text.contains("[3]") && text.contains("[2]"), "{text}");
    let wrong = T::ones(&device, DType::F32, &[2])?;
    let text = y.backward_with(wrong, &mut sink).unwrap_err().to_string();
    assert!(text.contains("f64") && text.contains("f32"), "{text}");
    assert!(x.grad().is_none());
    Ok(())
}

#[test]
fn what_depends_on_no_leaf_has_no_gradient() -> Result<()> {
    let device = device();
    let x = leaf(&device, &[1.0])?;
    for constant in [
        T::ones(&device, DType::F64, &[])?,
        x.detach().exp()?,
        no_grad(|| x.exp())?,
        x.ge(&x)?.cast(DType::F64)?,
    ] {
        let text = constant.backward().unwrap_err().to_string();
        assert!(text.contains("depends on no leaf"), "{text}");
    }
    assert!(x.grad().is_none());
    let text = T::zeros(&device, DType::I64, &[2])?.requires_grad().unwrap_err().to_string();
    assert!(text.contains("i64"), "{text}");
    Ok(())
}

#[test]
fn detached_values_are_constants() -> Result<()> {
    let x = leaf(&device(), &[3.0])?;
    x.mul(&x.detach())?.sum_all()?.backward()?;
    assert_eq!(grad(&x), [3.0]);
    Ok(())
}

#[test]
fn recording_goes_back_on_after_no_grad() {
    assert!(is_recording());
    no_grad(|| {
        assert!(!is_recording());
        no_grad(|| assert!(!is_recording()));
        assert!(!is_recording());
    });
    let panicked = catch_unwind(AssertUnwindSafe(|| no_grad(|| panic!("inside"))));
    assert!(panicked.is_err() && is_recording());
    let elsewhere = no_grad(|| std::thread::spawn(is_recording).join().expect("no panic"));
    assert!(elsewhere, "the flag belongs to one thread");
}

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

#[test]
fn a_parameter_may_be_away_between_forward_and_backward() -> Result<()> {
    let device = device();
    let weight = Leaf::new("w", T::from_slice(&device, &[1.0, 2.0], &[1, 2])?, true);
    let x = leaf(&device, &[3.0, 4.0])?;
    let forward = || x.linear(&weight.tensor()?, None)?.sum_all();
    let (lost, kept) = (forward()?, forward()?);
    let value = weight.release().expect("a value");
    let error = lost.backward().unwrap_err().to_string();
    assert!(error.contains("linear") && error.contains("w is used while"), "{error}");
    assert!(weight.tensor().is_err());
    x.leaf().unwrap().clear_grad();
    weight.clear_grad();
    weight.set_value(value)?;
    kept.backward()?;
    assert_eq!(grad(&x), [1.0, 2.0]);
    assert_eq!(weight.grad().unwrap().to_vec::<f64>()?, [3.0, 4.0]);
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

/// Each step of a walk or a drop that recursed would need more than the two bytes of stack that
/// are here for each node.
#[test]
fn deep_graphs_need_no_deep_stack() {
    const DEPTH: usize = 100_000;
    let build = || -> Result<(T, T)> {
        let x = leaf(&device(), &[1.0])?;
        let mut y = x.clone();
        for step in 0..DEPTH {
            y = if step % 1000 == 0 { y.affine(1.0, 0.5)? } else { y.reshape(&[1])? };
        }
        Ok((x, y))
    };
    let run = move || {
        let (x, y) = build().expect("a chain");
        y.backward().expect("a walk");
        assert_eq!(grad(&x), [1.0]);
        drop((x, y));
        drop(build().expect("a chain that nobody walks"));
    };
    let thread = std::thread::Builder::new().stack_size(2 * DEPTH).spawn(run).expect("a thread");
    thread.join().expect("no overflow");
}

/// Counts contributions and completions, and fails on a contribution after completion.
struct Watcher {
    grads: LeafGrads<Cpu>,
    targets: Vec<String>,
    ready: Vec<String>,
}

impl Watcher {
    fn new(device: &Cpu) -> Self {
        Watcher { grads: LeafGrads::new(device), targets: Vec::new(), ready: Vec::new() }
    }
}

impl GradSink<Cpu> for Watcher {
    fn target(&mut self, leaf: &Arc<Leaf<Cpu>>) -> Result<(T, Store)> {
        let name = leaf.name().to_owned();
        assert!(!self.ready.contains(&name), "{name} was complete already");
        self.targets.push(name);
        self.grads.target(leaf)
    }

    fn ready(&mut self, leaf: &Arc<Leaf<Cpu>>) -> Result<()> {
        self.ready.push(leaf.name().to_owned());
        Ok(())
    }
}

fn named(device: &Cpu, name: &str, shape: &[usize]) -> Result<Arc<Leaf<Cpu>>> {
    Ok(Leaf::new(name, T::full(device, DType::F64, shape, 0.5)?, true))
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

/// Gradients of inputs and parameters of a part of a model, run plainly or again.
fn part_of_a_model(again: bool) -> Result<(Vec<f32>, Vec<Vec<f32>>, Watcher)> {
    let device = device();
    let normal = |name: &str, shape: &[usize]| {
        let value = T::randn(&device, shape, RandomKey::from_seed(1).with_text(name))?;
        Ok::<_, Error>(Leaf::new(name, value, true))
    };
    let (x, w) = (normal("x", &[6, 8])?, normal("w", &[8, 8])?);
    let (bias, unused) = (normal("bias", &[8])?, normal("unused", &[3])?);
    let leaves = [w.clone(), bias.clone(), unused.clone()];
    let (weight, shift) = (w.clone(), bias.clone());
    let body = move |inputs: &[T]| {
        let hidden = inputs[0].linear(&weight.tensor()?, Some(&shift.tensor()?))?.gelu()?;
        let dropped = hidden.dropout(0.3, RandomKey::from_seed(5), 0)?;
        dropped.linear(&weight.tensor()?, None)?.add(&inputs[0])?.mul(&inputs[1])
    };
    let input = x.tensor()?.sin()?;
    let side = x.tensor()?.square()?;
    let out = match again {
        true => recompute(&[&input, &side], &leaves, body)?,
        false => body(&[input.clone(), side.clone()])?,
    };
    let loss = out.mul(&input)?.linear(&w.tensor()?, None)?.mean_all()?;
    let mut watcher = Watcher::new(&device);
    loss.backward_into(&mut watcher)?;
    let grads = [&x, &w, &bias].map(|leaf| leaf.grad().expect("a gradient").to_vec());
    assert!(unused.grad().is_none());
    Ok((out.to_vec()?, grads.into_iter().collect::<Result<_>>()?, watcher))
}

#[test]
fn running_again_gives_the_same_bits() -> Result<()> {
    let (plain, again) = (part_of_a_model(false)?, part_of_a_model(true)?);
    assert_eq!(plain.0, again.0);
    assert_eq!(plain.1, again.1);
    let mut ready = again.2.ready;
    ready.sort();
    assert_eq!(ready, ["bias", "unused", "w", "x"]);
    Ok(())
}

#[test]
fn running_again_keeps_less_and_nests() -> Result<()> {
    let device = device();
    let x = T::full(&device, DType::F64, &[1000], 0.1)?.requires_grad()?;
    let body = |inputs: &[T]| (0..10).try_fold(inputs[0].clone(), |x, _| x.sin());
    let live = || device.memory().live_bytes;
    let before = live();
    let plain = body(&[x.clone()])?;
    let plain_bytes = live() - before;
    let before = live();
    let again = recompute(&[&x], &[], body)?;
    let again_bytes = live() - before;
    assert!(again_bytes * 5 < plain_bytes, "{again_bytes} against {plain_bytes}");
    let nested = recompute(&[&x], &[], move |inputs| recompute(&[&inputs[0]], &[], body))?;
    let mut grads = Vec::new();
    for out in [plain, again, nested] {
        x.leaf().unwrap().clear_grad();
        out.sum_all()?.backward()?;
        grads.push(grad(&x));
    }
    assert!(grads[0] == grads[1] && grads[0] == grads[2]);
    Ok(())
}

#[test]
fn running_again_without_recording_or_with_an_error() -> Result<()> {
    let x = leaf(&device(), &[1.0])?;
    let out = no_grad(|| recompute(&[&x], &[], |inputs| inputs[0].exp()))?;
    assert!(!out.needs_grad());
    let runs = Arc::new(Mutex::new(0));
    let counted = runs.clone();
    let out = recompute(&[&x], &[], move |inputs| {
        let mut runs = counted.lock().expect("no panic");
        *runs += 1;
        if *runs == 2 { inputs[0].reshape(&[3]) } else { inputs[0].exp() }
    })?;
    let text = out.sum_all()?.backward().unwrap_err().to_string();
    assert!(text.contains("recompute") && text.contains("reshape"), "{text}");
    assert_eq!(*runs.lock().expect("no panic"), 2);
    Ok(())
}
