//! GPT-2 and Llama as transformers stores them: which stored tensors a parameter is made of.

use sneppx::cpu::Cpu;
use sneppx::nn::{Builder, Module, Transformer, TransformerConfig};
use sneppx::{DType, Result};

use super::stored::{Stored, T, settings};

/// The two families.
#[derive(Clone, Copy, Debug)]
pub enum Family {
    Gpt2,
    Llama,
}

impl Family {
    /// The shape of the recorded model.
    pub fn config(self) -> TransformerConfig {
        match self {
            Family::Gpt2 => {
                let stored = settings("gpt2.json");
                let size = |key: &str| stored[key].as_u64().expect("a size") as usize;
                let config = TransformerConfig::gpt2(
                    size("vocab_size"),
                    size("n_embd"),
                    size("n_head"),
                    size("n_layer"),
                    size("n_inner"),
                    size("n_positions"),
                );
                let norm_epsilon = stored["layer_norm_epsilon"].as_f64().expect("a number");
                TransformerConfig { norm_epsilon, ..config }
            }
            Family::Llama => {
                let stored = settings("llama.json");
                let size = |key: &str| stored[key].as_u64().expect("a size") as usize;
                let config = TransformerConfig::llama(
                    size("vocab_size"),
                    size("hidden_size"),
                    size("num_attention_heads"),
                    size("num_hidden_layers"),
                    size("intermediate_size"),
                    size("max_position_embeddings"),
                );
                TransformerConfig {
                    num_kv_heads: size("num_key_value_heads"),
                    norm_epsilon: stored["rms_norm_eps"].as_f64().expect("a number"),
                    ..config
                }
            }
        }
    }

    /// The recorded model with its weights.
    pub fn model(self, device: &Cpu, dtype: DType) -> Result<Transformer<Cpu>> {
        let stored = match self {
            Family::Gpt2 => Stored::open("gpt2.safetensors"),
            Family::Llama => Stored::open("llama.safetensors"),
        };
        let model = Transformer::new(self.config(), &Builder::new(device, 0).with_dtype(dtype)?)?;
        let mut used = Vec::new();
        for (path, param) in model.named_parameters() {
            used.extend(self.parts(&path).0);
            param.leaf().set_value(self.assemble(&stored, "", &path, device, dtype)?)?;
        }
        used.sort();
        assert_eq!(
            used,
            stored.names().into_iter().collect::<Vec<_>>(),
            "every weight has a place"
        );
        Ok(model)
    }

    /// What parameter `path` is made of, from tensors of `stored` whose names begin with `prefix`.
    pub fn assemble(
        self,
        stored: &Stored,
        prefix: &str,
        path: &str,
        device: &Cpu,
        dtype: DType,
    ) -> Result<T> {
        let (names, transposed) = self.parts(path);
        let part = |name: &String| {
            let part = stored.floats(device, &format!("{prefix}{name}"), dtype);
            if transposed { part.transpose(0, 1)?.contiguous() } else { Ok(part) }
        };
        let parts: Vec<T> = names.iter().map(part).collect::<Result<_>>()?;
        T::concatenate(&parts.iter().collect::<Vec<_>>(), 0)
    }

    /// The stored names for parameter `path`, and whether they are stored as `[in, out]`.
    fn parts(self, path: &str) -> (Vec<String>, bool) {
        let stored = |name: &str| match self {
            Family::Gpt2 => format!("transformer.{name}"),
            Family::Llama => format!("model.{name}"),
        };
        if let Some((layer, place)) =
            path.strip_prefix("blocks.").and_then(|rest| rest.split_once('.'))
        {
            let (names, transposed) = self.parts_of_block(place);
            let room = if matches!(self, Family::Gpt2) { "h" } else { "layers" };
            let full = |name: &String| stored(&format!("{room}.{layer}.{name}"));
            return (names.iter().map(full).collect(), transposed);
        }
        let name = match (self, path) {
            (Family::Gpt2, "embedding.weight") => stored("wte.weight"),
            (Family::Gpt2, "positions.weight") => stored("wpe.weight"),
            (Family::Gpt2, "norm.weight") => stored("ln_f.weight"),
            (Family::Gpt2, "norm.bias") => stored("ln_f.bias"),
            (Family::Llama, "embedding.weight") => stored("embed_tokens.weight"),
            (Family::Llama, "norm.weight") => stored("norm.weight"),
            (Family::Llama, "head.weight") => "lm_head.weight".to_owned(),
            (family, path) => panic!("{family:?} has no {path}"),
        };
        (vec![name], false)
    }

    fn parts_of_block(self, place: &str) -> (Vec<String>, bool) {
        let (module, kind) = place.rsplit_once('.').expect("a module and a name");
        let modules: &[&str] = match (self, module) {
            (Family::Gpt2, "attention_norm") => &["ln_1"],
            (Family::Gpt2, "attention.qkv") => &["attn.c_attn"],
            (Family::Gpt2, "attention.out") => &["attn.c_proj"],
            (Family::Gpt2, "feed_forward_norm") => &["ln_2"],
            (Family::Gpt2, "feed_forward.up") => &["mlp.c_fc"],
            (Family::Gpt2, "feed_forward.down") => &["mlp.c_proj"],
            (Family::Llama, "attention_norm") => &["input_layernorm"],
            (Family::Llama, "attention.qkv") => {
                &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
            }
            (Family::Llama, "attention.out") => &["self_attn.o_proj"],
            (Family::Llama, "feed_forward_norm") => &["post_attention_layernorm"],
            (Family::Llama, "feed_forward.gate") => &["mlp.gate_proj"],
            (Family::Llama, "feed_forward.up") => &["mlp.up_proj"],
            (Family::Llama, "feed_forward.down") => &["mlp.down_proj"],
            (family, module) => panic!("a block of {family:?} has no {module}"),
        };
        let names = modules.iter().map(|module| format!("{module}.{kind}")).collect();
        let transposed =
            matches!(self, Family::Gpt2) && kind == "weight" && !module.ends_with("norm");
        (names, transposed)
    }
}
