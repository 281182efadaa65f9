//! The GPT-2 of the golden files as a model of this crate: Hugging Face names and layouts.

use sneppx::contract::HostVec;
use sneppx::cpu::Cpu;
use sneppx::nn::{Builder, Module, Transformer, TransformerConfig};
use sneppx::{DType, Tensor};

use crate::golden::{GoldenFile, GoldenTensor, json};

/// The model of `gpt2.safetensors` in `dtype`.
pub fn gpt2(device: &Cpu, dtype: DType) -> Transformer<Cpu> {
    let settings = json("gpt2.json");
    let size = |name: &str| settings[name].as_u64().unwrap_or_else(|| panic!("{name}")) as usize;
    let [vocabulary, dim, heads] = ["vocab_size", "n_embd", "n_head"].map(size);
    let [layers, ffn_dim, positions] = ["n_layer", "n_inner", "n_positions"].map(size);
    let mut config = TransformerConfig::gpt2(vocabulary, dim, heads, layers, ffn_dim, positions);
    config.norm_epsilon = settings["layer_norm_epsilon"].as_f64().unwrap();
    let builder = Builder::new(device, 0).with_dtype(dtype).unwrap();
    let model = Transformer::new(config, &builder).unwrap();
    let file = GoldenFile::open("gpt2.safetensors");
    let mut left = file.names();
    for (path, param) in model.named_parameters() {
        let name = gpt2_name(&path);
        let stored = gpt2_tensor(&file, &name);
        assert_eq!(param.leaf().shape()[..], stored.shape[..], "{path}");
        let values = HostVec::from_f64(dtype, &stored.values);
        let value = Tensor::from_host(device, &values, &stored.shape).unwrap();
        param.leaf().set_value(value).unwrap();
        left.retain(|other| *other != name);
    }
    assert!(left.is_empty(), "not in the model: {left:?}");
    model
}

/// What transformers calls the parameter at `path`.
pub fn gpt2_name(path: &str) -> String {
    let renamed = [
        ("blocks.", "h."),
        ("feed_forward_norm.", "ln_2."),
        ("attention_norm.", "ln_1."),
        ("attention.qkv.", "attn.c_attn."),
        ("attention.out.", "attn.c_proj."),
        ("feed_forward.up.", "mlp.c_fc."),
        ("feed_forward.down.", "mlp.c_proj."),
        ("embedding.", "wte."),
        ("positions.", "wpe."),
    ];
    let mut name = path.to_owned();
    for (ours, theirs) in renamed {
        name = name.replace(ours, theirs);
    }
    let name = if name.starts_with("norm.") { name.replace("norm.", "ln_f.") } else { name };
    format!("transformer.{name}")
}

/// A weight of a GPT-2 file, or what is shaped like one, in this crate's layout: the weights of its
/// linear maps are stored `[inputs, outputs]` and come out `[outputs, inputs]`.
pub fn gpt2_tensor(file: &GoldenFile, name: &str) -> GoldenTensor {
    let stored = file.tensor(name);
    let is_linear = ["c_attn.weight", "c_proj.weight", "c_fc.weight"];
    match stored.shape[..] {
        [inputs, outputs] if is_linear.iter().any(|end| name.ends_with(end)) => {
            let turned = (0..inputs * outputs)
                .map(|at| stored.values[at % inputs * outputs + at / inputs])
                .collect();
            GoldenTensor { shape: vec![outputs, inputs], values: turned }
        }
        _ => stored,
    }
}
