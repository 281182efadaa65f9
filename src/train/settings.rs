//! Everything a training run can be told, in one flat table.
//!
//! The names are those of the command line and of the settings file alike. A run starts from a
//! preset; a file changes it, and the command line has the last word. What results is written to
//! `run.toml`, so that a run can be repeated from it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sneppx_contract::{DType, Error, Result};

use crate::nn::{FeedForwardKind, TransformerConfig};
use crate::optim::Schedule;

/// The families of models that settings can describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// [`TransformerConfig::gpt2`]
    Gpt2,
    /// [`TransformerConfig::llama`]
    Llama,
}

/// The dtype of parameters and activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32-bit floats.
    F32,
    /// 64-bit floats.
    F64,
}

impl Precision {
    /// The dtype it stands for.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::F64 => DType::F64,
        }
    }
}

/// The course of the learning rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleKind {
    /// Stays.
    Constant,
    /// Falls in a straight line to the smallest.
    Linear,
    /// Falls along half a cosine to the smallest.
    Cosine,
    /// Stays, then falls in a straight line over the last fifth.
    Wsd,
}

/// The settings of a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// The preset the run started from.
    pub preset: String,
    /// Family of the model.
    pub family: Family,
    /// Channels of the residual stream.
    pub dim: usize,
    /// Attention heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Blocks.
    pub layers: usize,
    /// Channels inside the feed-forward network.
    pub ffn_dim: usize,
    /// Length of a training sequence, and the longest the model has positions for.
    pub seq_len: usize,
    /// Size of the vocabulary where the data does not say: random tokens.
    pub vocab_size: usize,
    /// Feed-forward network.
    pub feed_forward: FeedForwardKind,
    /// Whether linear maps and layer norms have biases.
    pub bias: bool,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Dropout after the embedding, attention and the feed-forward network.
    pub dropout: f64,
    /// `corpus`, `random`, or `files`.
    pub source: String,
    /// Text files, folders of text, or token files.
    pub data: Vec<PathBuf>,
    /// `bytes`, `chars`, or the path of a `tokenizer.json`.
    pub tokenizer: String,
    /// Share of the data kept for validation, from its end.
    pub validation_fraction: f64,
    /// Optimizer steps.
    pub steps: u64,
    /// Sequences per optimizer step.
    pub global_batch: usize,
    /// Sequences per forward pass; divides the global batch.
    pub micro_batch: usize,
    /// Peak learning rate.
    pub lr: f64,
    /// Smallest learning rate of a falling schedule.
    pub min_lr: f64,
    /// Course of the learning rate.
    pub schedule: ScheduleKind,
    /// Steps over which the learning rate rises.
    pub warmup: u64,
    /// Decoupled weight decay, of matrices alone.
    pub weight_decay: f64,
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Largest norm of the gradient; 0 switches clipping off.
    pub clip: f64,
    /// Whether blocks keep only their inputs and run again for the derivative.
    pub recompute: bool,
    /// Where every random number comes from.
    pub seed: u64,
    /// Threads; 0 is all cores this process may use.
    pub threads: usize,
    /// Steps between evaluations; 0 evaluates at the end alone.
    pub eval_every: u64,
    /// Global batches per evaluation.
    pub eval_batches: usize,
    /// Dtype of parameters and activations.
    pub precision: Precision,
    /// Where results are written.
    pub out: PathBuf,
}

impl Settings {
    /// `preset` changed by the tables in `changes`, later ones winning. Where they set no warm-up,
    /// the preset's takes half of the run at most.
    ///
    /// # Errors
    /// An unknown key or a value of another type, with the name of the table it stands in; values
    /// that cannot be used, as [`Settings::validate`].
    pub fn resolve(preset: &Settings, changes: &[(String, toml::Table)]) -> Result<Settings> {
        let mut table = to_table(preset)?;
        for (place, change) in changes {
            for (key, value) in change {
                if !table.contains_key(key) {
                    let known: Vec<_> = table.keys().map(String::as_str).collect();
                    let reason =
                        format!("{place}: no such setting; there are {}", known.join(", "));
                    return Err(Error::invalid("setting", key, reason));
                }
                table.insert(key.clone(), value.clone());
                // One by one, so that the message can say which value does not fit where.
                from_table(table.clone())
                    .map_err(|why| Error::invalid("setting", key, format!("{place}: {why}")))?;
            }
        }
        let mut settings: Settings =
            from_table(table).map_err(|why| Error::invalid("settings", "run", why))?;
        if !changes.iter().any(|(_, change)| change.contains_key("warmup")) {
            settings.warmup = settings.warmup.min(settings.steps / 2);
        }
        settings.validate()?;
        Ok(settings)
    }

    /// The table in a settings file.
    ///
    /// # Errors
    /// The file cannot be read or is not TOML.
    pub fn read_table(path: &Path) -> Result<toml::Table> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        text.parse().map_err(|error| Error::file(path, format!("is not valid TOML: {error}")))
    }

    /// The settings in a whole settings file, as `run.toml` of a run is.
    ///
    /// # Errors
    /// The file cannot be read; a setting is missing, unknown or cannot be used.
    pub fn read(path: &Path) -> Result<Settings> {
        from_table(Self::read_table(path)?).map_err(|why| Error::file(path, why))
    }

    /// These settings as a file that [`Settings::read_table`] reads.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::Internal(format!("settings: {error}")))
    }

    /// Checks every value that no other part checks.
    ///
    /// # Errors
    /// The first value that cannot be used, with its name and why.
    pub fn validate(&self) -> Result<()> {
        if self.steps == 0 {
            return Err(Error::invalid("steps", 0, "there is nothing to train; give at least 1"));
        }
        let sizes = [
            ("global-batch", self.global_batch),
            ("micro-batch", self.micro_batch),
            ("seq-len", self.seq_len),
            ("eval-batches", self.eval_batches),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|&(_, size)| size == 0) {
            return Err(Error::invalid(name, size, "must be at least 1"));
        }
        if !self.global_batch.is_multiple_of(self.micro_batch) {
            let reason = format!("does not divide global-batch = {}", self.global_batch);
            return Err(Error::invalid("micro-batch", self.micro_batch, reason));
        }
        if self.clip.is_nan() || self.clip < 0.0 {
            let reason = "must be 0 (off) or a positive norm";
            return Err(Error::invalid("clip", self.clip, reason));
        }
        if !(0.0..1.0).contains(&self.validation_fraction) {
            let reason = "must lie in 0 <= f < 1";
            return Err(Error::invalid("validation-fraction", self.validation_fraction, reason));
        }
        if !["corpus", "random", "files"].contains(&self.source.as_str()) {
            let reason = "must be corpus, random or files";
            return Err(Error::invalid("source", &self.source, reason));
        }
        self.model(self.vocab_size.max(1)).validate()?;
        self.learning_rates().map(|_| ())
    }

    /// The model for a vocabulary of `vocab_size` tokens.
    pub fn model(&self, vocab_size: usize) -> TransformerConfig {
        let new = match self.family {
            Family::Gpt2 => TransformerConfig::gpt2,
            Family::Llama => TransformerConfig::llama,
        };
        let (dim, heads, layers) = (self.dim, self.heads, self.layers);
        TransformerConfig {
            num_kv_heads: self.kv_heads,
            feed_forward: self.feed_forward,
            bias: self.bias,
            tied: self.tied,
            dropout: self.dropout,
            ..new(vocab_size, dim, heads, layers, self.ffn_dim, self.seq_len)
        }
    }

    /// The course of the learning rate.
    ///
    /// # Errors
    /// Rates or lengths that make no course.
    pub fn learning_rates(&self) -> Result<Schedule> {
        let (peak, min, warmup, total) = (self.lr, self.min_lr, self.warmup, self.steps);
        match self.schedule {
            ScheduleKind::Constant => Schedule::constant(peak, warmup),
            ScheduleKind::Linear => Schedule::linear(peak, min, warmup, total),
            ScheduleKind::Cosine => Schedule::cosine(peak, min, warmup, total),
            ScheduleKind::Wsd => Schedule::wsd(peak, min, warmup, total, total / 5),
        }
    }
}

fn to_table(settings: &Settings) -> Result<toml::Table> {
    toml::Table::try_from(settings).map_err(|error| Error::Internal(format!("settings: {error}")))
}

fn from_table(table: toml::Table) -> Result<Settings, String> {
    table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}
