//! First values and dropout: from seeds, and from nothing else.

use sneppx::autograd::no_grad;
use sneppx::cpu::Cpu;
use sneppx::nn::{Builder, Dropout, Layer, Module, Pass, Transformer, TransformerConfig};
use sneppx::{DType, Result};

use super::fixture::{Model, T, device, gpt2, grads, loss, model, values};

#[test]
fn seed_01_first_values_depend_on_seed_and_path_alone() -> Result<()> {
    let device = device();
    let first = values(&model(&device, gpt2())?)?;
    assert_eq!(first, values(&model(&device, gpt2())?)?, "equal seeds");
    let other = Transformer::new(gpt2(), &Builder::new(&device, 8))?;
    assert_ne!(first, values(&other)?, "another seed");

    // One more block and a head of its own change nothing that was there before.
    let larger = TransformerConfig { num_layers: 3, tied: false, ..gpt2() };
    let larger = model(&device, larger)?.named_parameters();
    let small = model(&device, gpt2())?.named_parameters();
    for (path, param) in small {
        if path.ends_with("out.weight") || path.ends_with("down.weight") {
            continue; // Their deviation depends on the number of blocks.
        }
        let (_, again) = larger.iter().find(|(name, _)| *name == path).expect("the same name");
        let [one, two] = [&param, again].map(|param| param.leaf().value());
        assert_eq!(one?.to_vec::<f32>()?, two?.to_vec::<f32>()?, "{path}");
    }
    let (wide, narrow) = (Cpu::with_threads(3)?, Cpu::with_threads(1)?);
    assert_eq!(values(&model(&wide, gpt2())?)?, values(&model(&narrow, gpt2())?)?);
    Ok(())
}

#[test]
fn seed_01_dropout_follows_the_sample_and_not_the_call() -> Result<()> {
    let device = device();
    let layer = Dropout::new(&Builder::new(&device, 1).at("place"), 0.5)?;
    let ones = T::ones(&device, DType::F32, &[2, 1000])?;
    let mask = |x: &T, pass: Pass| -> Result<Vec<f32>> { layer.forward(x, &pass)?.to_vec() };
    let both = mask(&ones, Pass::training(42, 3, 0))?;
    assert_eq!(both, mask(&ones, Pass::training(42, 3, 0))?, "again");

    // Two ranks with one sample each see what one rank with both sees.
    let one = ones.slice(0, 0, 1)?;
    let ranks = [mask(&one, Pass::training(42, 3, 0))?, mask(&one, Pass::training(42, 3, 1))?];
    assert_eq!(ranks.concat(), both);

    let agreement = |a: &[f32], b: &[f32]| a.iter().zip(b).filter(|(a, b)| a == b).count();
    let elsewhere = Dropout::new(&Builder::new(&device, 1).at("elsewhere"), 0.5)?;
    let others = [
        ranks[1].clone(),
        mask(&one, Pass::training(42, 4, 0))?,
        mask(&one, Pass::training(43, 3, 0))?,
        elsewhere.forward(&one, &Pass::training(42, 3, 0))?.to_vec()?,
    ];
    for other in &others {
        let same = agreement(&ranks[0], other);
        assert!((420..=580).contains(&same), "{same} places agree");
    }
    assert_eq!(mask(&ones, Pass::evaluation())?, [1.0; 2000]);
    assert!(ranks[0].iter().all(|&value| value == 0.0 || value == 2.0));
    Ok(())
}

/// Two steps of training, with `between` run between them: losses and gradients.
fn two_steps(between: impl Fn(&Model) -> Result<()>) -> Result<Vec<Vec<f32>>> {
    let model = model(&device(), TransformerConfig { dropout: 0.3, ..gpt2() })?;
    let mut seen = Vec::new();
    for step in 0..2 {
        model.parameters().iter().for_each(|leaf| leaf.clear_grad());
        let loss = loss(&model, 2, 8, &Pass::training(42, step, 0))?;
        loss.backward()?;
        seen.push(loss.to_vec::<f32>()?);
        seen.extend(grads(&model)?);
        between(&model)?;
    }
    Ok(seen)
}

#[test]
fn seed_01_an_evaluation_in_between_changes_nothing() -> Result<()> {
    let plain = two_steps(|_| Ok(()))?;
    assert_eq!(plain, two_steps(|_| Ok(()))?);
    let evaluated = two_steps(|model| {
        no_grad(|| loss(model, 1, 5, &Pass::evaluation()))?;
        no_grad(|| loss(model, 1, 5, &Pass::training(9, 9, 9)))?;
        Ok(())
    })?;
    assert_eq!(plain, evaluated);
    Ok(())
}
