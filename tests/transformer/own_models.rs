//! `#[derive(Module)]` on models of one's own.

use std::marker::PhantomData;
use std::sync::Arc;

use sneppx::cpu::Cpu;
use sneppx::nn::{Builder, Init, Linear, LinearOptions, Module, NormLayer, Param, Unit};
use sneppx::{Device, Result};

use super::fixture::{device, names};

#[derive(Module)]
struct Perceptron<D: Device> {
    layers: Vec<Unit<D, Linear<D>>>,
    norm: Option<NormLayer<D>>,
    scale: Param<D>,
    width: usize,
    label: String,
    #[module(skip)]
    activations: Vec<&'static str>,
}

#[derive(Module)]
#[module(device = D)]
struct Pair<M: Module<D>, D: Device> {
    left: M,
    right: Arc<M>,
    #[module(skip)]
    device: PhantomData<D>,
}

#[derive(Module)]
#[module(device = Cpu)]
struct Fixed {
    r#type: Linear<Cpu>,
}

fn perceptron<D: Device>(builder: &Builder<D>, norm: bool) -> Result<Perceptron<D>> {
    let layer = |at: usize| {
        let place = builder.at("layers").at(&at.to_string());
        Ok(Unit::new(Linear::new(&place, 3, 3, LinearOptions { bias: at == 1, init: None })?))
    };
    let normed = || NormLayer::layer_norm(&builder.at("norm"), 3, 1e-5, None);
    Ok(Perceptron {
        layers: (0..2).map(layer).collect::<Result<_>>()?,
        norm: norm.then(normed).transpose()?,
        scale: builder.param("scale", &[], Init::Constant(1.0))?,
        width: 3,
        label: "small".into(),
        activations: vec!["none"],
    })
}

#[test]
fn models_of_ones_own_are_walked_in_declaration_order() -> Result<()> {
    let device = device();
    let root = Builder::new(&device, 1);
    let full = perceptron(&root, true)?;
    let want = ["layers.0.weight", "layers.1.weight", "layers.1.bias", "norm.weight", "scale"];
    assert_eq!(names(&full), want);
    assert_eq!(full.parameter_count(), 9 + 9 + 3 + 3 + 1);
    assert_eq!((full.width, full.label.as_str(), full.activations.len()), (3, "small", 1));
    let bare = perceptron(&root, false)?;
    assert_eq!(names(&bare), ["layers.0.weight", "layers.1.weight", "layers.1.bias", "scale"]);

    let shared = Arc::new(perceptron(&root.at("right"), false)?);
    let pair = Pair {
        left: perceptron(&root.at("left"), false)?,
        right: shared,
        device: PhantomData::<Cpu>,
    };
    assert_eq!(names(&pair)[3..5], ["left.scale", "right.layers.0.weight"]);
    for (path, param) in pair.named_parameters() {
        assert_eq!(path, param.leaf().name());
    }
    let fixed = Fixed { r#type: Linear::new(&root.at("type"), 2, 2, Default::default())? };
    assert_eq!(names(&fixed), ["type.weight", "type.bias"]);
    Ok(())
}
