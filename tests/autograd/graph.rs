//! What is recorded, what is refused, and how deep a graph may be.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sneppx::autograd::{LeafGrads, no_grad};
use sneppx::tensor::is_recording;
use sneppx::{DType, Result};

use super::fixture::{T, device, grad, leaf};

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
