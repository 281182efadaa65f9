//! Parts of a model that run again for their derivative.

use std::sync::{Arc, Mutex};

use sneppx::autograd::{no_grad, recompute};
use sneppx::contract::{Memory, RandomKey};
use sneppx::tensor::Leaf;
use sneppx::{DType, Error, Result};

use super::fixture::{T, Watcher, device, grad, leaf};

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
    let plain = body(std::slice::from_ref(&x))?;
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
