//! Names and order of parameters.

use sneppx::Result;
use sneppx::nn::{Module, TransformerConfig};

use super::fixture::{device, gpt2, llama, model, names};

#[test]
fn names_of_gpt2() -> Result<()> {
    let model = model(&device(), gpt2())?;
    let block = |layer: usize| {
        [
            "attention_norm.weight",
            "attention_norm.bias",
            "attention.qkv.weight",
            "attention.qkv.bias",
            "attention.out.weight",
            "attention.out.bias",
            "feed_forward_norm.weight",
            "feed_forward_norm.bias",
            "feed_forward.up.weight",
            "feed_forward.up.bias",
            "feed_forward.down.weight",
            "feed_forward.down.bias",
        ]
        .map(|name| format!("blocks.{layer}.{name}"))
    };
    let mut want = vec!["embedding.weight".to_owned(), "positions.weight".to_owned()];
    want.extend((0..2).flat_map(block));
    want.extend(["norm.weight".to_owned(), "norm.bias".to_owned()]);
    assert_eq!(names(&model), want);
    let shape = |path: &str| {
        let named = model.named_parameters();
        let (_, param) = named.iter().find(|(name, _)| name == path).expect("a name");
        param.leaf().shape().to_vec()
    };
    assert_eq!(shape("blocks.0.attention.qkv.weight"), [36, 12]);
    assert_eq!(shape("blocks.1.feed_forward.down.weight"), [12, 20]);
    assert_eq!(shape("positions.weight"), [8, 12]);
    Ok(())
}

#[test]
fn names_of_llama() -> Result<()> {
    let model = model(&device(), llama())?;
    let block = |layer: usize| {
        [
            "attention_norm.weight",
            "attention.qkv.weight",
            "attention.out.weight",
            "feed_forward_norm.weight",
            "feed_forward.gate.weight",
            "feed_forward.up.weight",
            "feed_forward.down.weight",
        ]
        .map(|name| format!("blocks.{layer}.{name}"))
    };
    let mut want = vec!["embedding.weight".to_owned()];
    want.extend((0..2).flat_map(block));
    want.extend(["norm.weight".to_owned(), "head.weight".to_owned()]);
    assert_eq!(names(&model), want);
    Ok(())
}

#[test]
fn a_parameter_is_called_by_its_path() -> Result<()> {
    for config in [gpt2(), llama(), TransformerConfig { tied: true, ..llama() }] {
        for (path, param) in model(&device(), config)?.named_parameters() {
            assert_eq!(path, param.leaf().name());
        }
    }
    Ok(())
}

#[test]
fn a_tied_weight_is_visited_twice_and_counted_once() -> Result<()> {
    let device = device();
    let tied = model(&device, gpt2())?;
    let free = model(&device, TransformerConfig { tied: false, ..gpt2() })?;
    assert_eq!(free.parameter_count() - tied.parameter_count(), 11 * 12);
    let blocks = 2 * (36 * 12 + 36 + 12 * 12 + 12 + 2 * 12 * 20 + 20 + 12 + 4 * 12);
    assert_eq!(tied.parameter_count(), 11 * 12 + 8 * 12 + blocks + 2 * 12);
    let mut paths = Vec::new();
    tied.visit("", &mut |path, param| {
        if param.leaf().id() == tied.embedding.weight.leaf().id() {
            paths.push(path.to_owned());
        }
    });
    assert_eq!(paths, ["embedding.weight", "head.weight"]);
    Ok(())
}
