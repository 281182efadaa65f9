//! `sneppx train`: settings from preset, file and command line, then the run.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use sneppx::contract::Memory;
use sneppx::launch::{Environment, Launch};
use sneppx::train::{Observer, PRESETS, Settings, Summary, preset};
use sneppx::{Error, Result, backend};

use crate::plot::LossPlot;
use crate::progress::Progress;

/// Arguments of `sneppx train`. Names are those of the settings; unset ones keep the value of the
/// settings file, or of the preset.
#[derive(Args, Debug)]
pub struct TrainArguments {
    /// Starting point; `--list-presets` tells what there is [default: quick]
    #[arg(long)]
    preset: Option<String>,
    /// Print the presets and stop
    #[arg(long)]
    list_presets: bool,
    /// Settings file (TOML), as `run.toml` of an earlier run
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object as the last line of standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingArguments,
}

/// One argument per setting.
#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct SettingArguments {
    /// Text files, folders of text, or one token file
    #[arg(long, num_args = 1.., value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Vec<PathBuf>>,
    /// `bytes`, `chars`, or the path of a tokenizer.json
    #[arg(long, value_name = "KIND")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    /// Share of the data kept for validation, from its end
    #[arg(long, value_name = "FRACTION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_fraction: Option<f64>,
    /// Family of the model: gpt2 or llama
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<String>,
    /// Channels of the residual stream
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    dim: Option<usize>,
    /// Attention heads
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    heads: Option<usize>,
    /// Heads of keys and values
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_heads: Option<usize>,
    /// Blocks
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<usize>,
    /// Channels inside the feed-forward network
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ffn_dim: Option<usize>,
    /// Length of a training sequence
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    seq_len: Option<usize>,
    /// Size of the vocabulary of random tokens
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    vocab_size: Option<usize>,
    /// Optimizer steps
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    /// Sequences per optimizer step
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    global_batch: Option<usize>,
    /// Sequences per forward pass
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    micro_batch: Option<usize>,
    /// Peak learning rate
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    lr: Option<f64>,
    /// Smallest learning rate of a falling schedule
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    min_lr: Option<f64>,
    /// constant, linear, cosine or wsd
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    /// Steps over which the learning rate rises
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    warmup: Option<u64>,
    /// Decoupled weight decay, of matrices alone
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_decay: Option<f64>,
    /// Decay rate of the first moment
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    beta1: Option<f64>,
    /// Decay rate of the second moment
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    beta2: Option<f64>,
    /// Largest norm of the gradient; 0 switches clipping off
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    clip: Option<f64>,
    /// Dropout after the embedding, attention and the feed-forward network
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    dropout: Option<f64>,
    /// Keep only the inputs of blocks and run them again for the derivative
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    recompute: Option<bool>,
    /// Where every random number comes from
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Threads; 0 is all cores this process may use
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    /// Steps between evaluations; 0 evaluates at the end alone
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_every: Option<u64>,
    /// Global batches per evaluation
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_batches: Option<usize>,
    /// f32 or f64
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    precision: Option<String>,
    /// Folder for weights, metrics and the picture of the loss
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &TrainArguments, started: Instant) -> Result<()> {
    if arguments.list_presets {
        PRESETS.iter().for_each(|(name, what)| println!("{name:20} {what}"));
        return Ok(());
    }
    let settings = settings_of(arguments)?;
    let launch = Launch::detect(settings.threads, &Environment::of_process())?;
    let device = backend::open(&launch)?;
    let mut progress = Progress::new(arguments.json);
    let mut plot = LossPlot::new(settings.out.join("loss.svg"));
    let summary = device.clone().enter(|| {
        let observers: &mut [&mut (dyn Observer + Send)] = &mut [&mut progress, &mut plot];
        let mut observers: Vec<&mut dyn Observer> =
            observers.iter_mut().map(|observer| &mut **observer as &mut dyn Observer).collect();
        sneppx::train::train(&device, &settings, launch.threads, started, &mut observers)
    })?;
    report(&summary, &settings, arguments.json)
}

/// Preset, then file, then command line.
fn settings_of(arguments: &TrainArguments) -> Result<Settings> {
    let mut changes = Vec::new();
    if let Some(path) = &arguments.config {
        changes.push((path.display().to_string(), Settings::read_table(path)?));
    }
    let in_file = changes.first().and_then(|(_, table)| table.get("preset")?.as_str());
    let name = arguments.preset.as_deref().or(in_file).unwrap_or("quick").to_owned();
    let start = preset(&name)?;
    if let Some((_, table)) = changes.first_mut() {
        table.insert("preset".into(), name.into());
    }
    let given = toml::Table::try_from(&arguments.settings)
        .map_err(|error| Error::invalid("arguments", "command line", error.to_string()))?;
    changes.push(("command line".into(), given));
    Settings::resolve(&start, &changes)
}

fn report(summary: &Summary, settings: &Settings, json: bool) -> Result<()> {
    if json {
        let line = serde_json::to_string(summary)
            .map_err(|error| Error::Internal(format!("summary: {error}")))?;
        println!("{line}");
        return Ok(());
    }
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.4}"));
    println!(
        "{} steps, {:.0} tokens/s, {:.1} ms a step ({:.0} % of it matrix products)",
        summary.steps,
        summary.tokens_per_second,
        summary.step_ms_median,
        100.0 * summary.product_share
    );
    println!(
        "loss {} training, {} validation, {} floor",
        number(summary.train_loss),
        number(summary.val_loss),
        number(summary.loss_floor)
    );
    let out = settings.out.display();
    println!("weights, metrics and loss.svg are in {out}; continue a text with");
    println!("  sneppx generate --checkpoint {out} --prompt TEXT");
    Ok(())
}
