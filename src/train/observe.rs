//! What happens beside the step: reports to whoever wants to see them.

use sneppx_contract::Result;

use super::{Settings, Summary};

/// What a run begins with.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// The settings of the run.
    pub settings: &'a Settings,
    /// What the device calls itself.
    pub device: String,
    /// Values in all parameters.
    pub parameters: usize,
    /// Number of tokens there are.
    pub vocab_size: usize,
    /// Samples in the training data.
    pub samples: usize,
    /// The entropy of a token in nats, where it is known.
    pub loss_floor: Option<f64>,
    /// Floating-point operations per second that plain matrix products reach on this device.
    pub product_rate: f64,
    /// Steps done before this run began.
    pub first_step: u64,
}

/// What one optimizer step gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Steps done so far, this one included.
    pub step: u64,
    /// Mean loss over the step's tokens, in nats.
    pub loss: f64,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Tokens of the step.
    pub tokens: u64,
    /// Wall-clock time of the step in seconds.
    pub seconds: f64,
    /// Time that the matrix products alone would take, over the step's time.
    pub product_share: f64,
    /// Bytes in the device's buffers now, and the most so far.
    pub live_bytes: usize,
    /// The most bytes in the device's buffers so far.
    pub peak_bytes: usize,
}

/// What an evaluation gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Steps done so far.
    pub step: u64,
    /// Mean loss over the tokens of the validation data that were looked at, in nats.
    pub loss: f64,
    /// How many there were.
    pub tokens: u64,
}

/// Sees a run go by. An error ends it.
pub trait Observer {
    /// The run begins.
    ///
    /// # Errors
    /// Whatever should end the run.
    fn start(&mut self, start: &Start<'_>) -> Result<()> {
        let _ = start;
        Ok(())
    }

    /// A step is done.
    ///
    /// # Errors
    /// Whatever should end the run.
    fn step(&mut self, report: &StepReport) -> Result<()> {
        let _ = report;
        Ok(())
    }

    /// An evaluation is done.
    ///
    /// # Errors
    /// Whatever should end the run.
    fn evaluation(&mut self, evaluation: &Evaluation) -> Result<()> {
        let _ = evaluation;
        Ok(())
    }

    /// The run is done.
    ///
    /// # Errors
    /// Whatever should be reported.
    fn finish(&mut self, summary: &Summary) -> Result<()> {
        let _ = summary;
        Ok(())
    }
}
