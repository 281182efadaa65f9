//! Metrics as a file, one JSON object a line, and the summary of a run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sneppx_contract::{Error, Result};

use super::{Evaluation, Observer, StepReport};

/// What a whole run gave; `sneppx train --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The preset the run started from.
    pub preset: String,
    /// What the device calls itself.
    pub device: String,
    /// What ranks talk by.
    pub communicator: String,
    /// How many ranks there were.
    pub world_size: usize,
    /// How state is cut over ranks.
    pub strategy: String,
    /// Dtype of parameters and activations.
    pub precision: String,
    /// Threads of this rank.
    pub threads: usize,
    /// Values in all parameters.
    pub params: usize,
    /// Optimizer steps.
    pub steps: u64,
    /// Tokens trained on.
    pub tokens: u64,
    /// Loss of the last steps (the mean of at most 20), in nats.
    pub train_loss: Option<f64>,
    /// Loss of the last evaluation, in nats.
    pub val_loss: Option<f64>,
    /// The entropy of a token in nats, where it is known.
    pub loss_floor: Option<f64>,
    /// Median time of a step in milliseconds.
    pub step_ms_median: f64,
    /// Tokens over the summed time of the steps.
    pub tokens_per_second: f64,
    /// Billions of floating-point operations of the matrix products per second.
    pub gflops: f64,
    /// Time that the matrix products alone would take, over the median step.
    pub product_share: f64,
    /// The most bytes in the device's buffers.
    pub peak_bytes: usize,
    /// The most bytes the process had resident, where the system tells.
    pub resident_peak_bytes: Option<u64>,
    /// Seconds from the start of the program to the end of the first step.
    pub start_to_first_step_s: f64,
    /// SHA-256 over parameters, then moments, in path order, as little-endian `f32`.
    pub state_sha256: String,
}

/// Writes a line per step and per evaluation.
#[derive(Debug)]
pub struct MetricsFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl MetricsFile {
    /// A new file at `path`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| Error::file(path, error))?;
        Ok(MetricsFile { path: path.to_owned(), file: BufWriter::new(file) })
    }

    fn line(&mut self, value: &serde_json::Value) -> Result<()> {
        writeln!(self.file, "{value}")
            .and_then(|()| self.file.flush())
            .map_err(|error| Error::file(&self.path, format!("cannot be written: {error}")))
    }
}

impl Observer for MetricsFile {
    fn step(&mut self, report: &StepReport) -> Result<()> {
        self.line(&serde_json::json!({
            "step": report.step,
            "loss": report.loss,
            "learning_rate": report.learning_rate,
            "grad_norm": report.grad_norm,
            "tokens": report.tokens,
            "seconds": report.seconds,
            "product_share": report.product_share,
            "live_bytes": report.live_bytes,
            "peak_bytes": report.peak_bytes,
        }))
    }

    fn evaluation(&mut self, evaluation: &Evaluation) -> Result<()> {
        self.line(&serde_json::json!({
            "step": evaluation.step,
            "val_loss": evaluation.loss,
            "val_tokens": evaluation.tokens,
        }))
    }
}
