//! Layers and operations: outputs and gradients, in `f64` and `f32`.

use std::collections::BTreeSet;

use sneppx::autograd::LeafGrads;
use sneppx::autograd::rules::AttentionOptions;
use sneppx::contract::{Activation, Visibility};
use sneppx::{DType, Result};

use super::stored::{Stored, T, close, device, settings};

/// What an operation sees: its inputs in the order of the table, and what else is stored.
struct Inputs<'a> {
    x: &'a [T],
    stored: &'a Stored,
    name: &'a str,
    settings: &'a serde_json::Value,
    dtype: DType,
}

impl Inputs<'_> {
    fn number(&self, key: &str) -> f64 {
        let key = format!("{}.{key}", self.name);
        self.settings[&key].as_f64().unwrap_or_else(|| panic!("{key} is not there"))
    }

    fn constant(&self, key: &str) -> T {
        self.stored.tensor(self.x[0].device(), &format!("{}.{key}", self.name))
    }

    fn attention(&self, visibility: Visibility, mask: Option<&T>) -> Result<T> {
        let options = AttentionOptions { scale: Some(self.number("scale")), visibility };
        self.x[0].attention(&self.x[1], &self.x[2], mask, options)
    }

    fn rope(&self) -> Result<T> {
        let table = |key: &str| self.constant(key).cast(self.dtype);
        self.x[0].rotary(&table("cos")?, &table("sin")?)
    }
}

type Operation = fn(&Inputs<'_>) -> Result<T>;

const QKV: &[&str] = &["query", "key", "value"];

const TABLE: &[(&str, &[&str], Operation)] = &[
    ("linear", &["input", "weight", "bias"], |i| i.x[0].linear(&i.x[1], Some(&i.x[2]))),
    ("linear_no_bias", &["input", "weight"], |i| i.x[0].linear(&i.x[1], None)),
    ("embedding", &["weight"], |i| i.x[0].embedding(&i.constant("indices"))),
    ("swiglu", &["input", "gate_weight", "up_weight", "down_weight"], |i| {
        let (gate, up) = (i.x[0].linear(&i.x[1], None)?, i.x[0].linear(&i.x[2], None)?);
        gate.gated_activation(&up, Activation::Silu)?.linear(&i.x[3], None)
    }),
    ("layer_norm", &["input", "weight", "bias"], |i| {
        i.x[0].layer_norm(Some(&i.x[1]), Some(&i.x[2]), i.number("eps"))
    }),
    ("layer_norm_no_bias", &["input", "weight"], |i| {
        i.x[0].layer_norm(Some(&i.x[1]), None, i.number("eps"))
    }),
    ("layer_norm_no_affine", &["input"], |i| i.x[0].layer_norm(None, None, i.number("eps"))),
    ("rms_norm", &["input", "weight"], |i| i.x[0].rms_norm(Some(&i.x[1]), i.number("eps"))),
    ("gelu_exact", &["input"], |i| i.x[0].gelu()),
    ("gelu_tanh", &["input"], |i| i.x[0].gelu_tanh()),
    ("silu", &["input"], |i| i.x[0].silu()),
    ("softmax", &["input"], |i| i.x[0].softmax()),
    ("log_softmax", &["input"], |i| i.x[0].log_softmax()),
    ("softmax_dim1", &["input"], |i| i.x[0].transpose(1, 2)?.softmax()?.transpose(1, 2)),
    ("rope", &["input"], |i| i.rope()),
    ("rope_offset", &["input"], |i| i.rope()),
    ("attention_causal", QKV, |i| i.attention(Visibility::Causal, None)),
    ("attention_causal_long", QKV, |i| i.attention(Visibility::Causal, None)),
    ("attention_grouped", QKV, |i| i.attention(Visibility::Causal, None)),
    ("attention_masked", QKV, |i| i.attention(Visibility::All, Some(&i.constant("mask")))),
];

#[test]
fn every_recorded_layer_is_computed() {
    let names = Stored::open("layers.safetensors").names();
    let recorded: BTreeSet<&str> =
        names.iter().filter_map(|name| Some(name.split_once('.')?.0)).collect();
    assert_eq!(recorded, TABLE.iter().map(|(name, ..)| *name).collect());
}

#[test]
fn layers_agree_with_pytorch_in_f64() -> Result<()> {
    layers_agree(DType::F64, 1e-10)
}

#[test]
fn layers_agree_with_pytorch_in_f32() -> Result<()> {
    layers_agree(DType::F32, 1e-5)
}

fn layers_agree(dtype: DType, tolerance: f64) -> Result<()> {
    let (stored, settings) = (Stored::open("layers.safetensors"), settings("layers.json"));
    let device = device();
    for &(name, inputs, operation) in TABLE {
        let of = |part: &str| format!("{name}.{part}");
        let leaf = |input: &&str| stored.floats(&device, &of(input), dtype).requires_grad();
        let x: Vec<T> = inputs.iter().map(leaf).collect::<Result<_>>()?;
        let out = operation(&Inputs { x: &x, stored: &stored, name, settings: &settings, dtype })?;
        close(name, &out, &stored.tensor(&device, &of("output")), tolerance);
        let upstream = stored.floats(&device, &of("grad_output"), dtype);
        out.backward_with(upstream, &mut LeafGrads::new(&device))?;
        for (input, x) in inputs.iter().zip(&x) {
            let want = stored.tensor(&device, &of(&format!("grad_{input}")));
            close(&of(input), &x.grad().expect("a gradient"), &want, tolerance);
        }
    }
    Ok(())
}

/// The tables that the model makes itself are those of the file.
#[test]
fn rotary_tables_hold_the_angles_of_llama() -> Result<()> {
    use sneppx::nn::RotaryTables;
    let (stored, settings) = (Stored::open("layers.safetensors"), settings("layers.json"));
    let device = device();
    for name in ["rope", "rope_offset"] {
        let number = |key: &str| settings[format!("{name}.{key}")].as_f64().expect("a number");
        let tables = RotaryTables::new(&device, DType::F64, 8, 8, number("base"))?;
        let x = stored.tensor(&device, &format!("{name}.input"));
        let out = tables.apply(&x, number("offset") as usize)?;
        close(name, &out, &stored.tensor(&device, &format!("{name}.output")), 1e-12);
    }
    Ok(())
}
