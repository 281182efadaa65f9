//! Progress on the terminal.

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use sneppx::train::{Evaluation, Observer, Start, StepReport, Summary};
use sneppx::{Error, Result};

/// A bar with the loss, its floor, speed and memory; where standard error is no terminal, a line
/// now and then.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Steps between lines where there is no terminal.
    every: u64,
    floor: Option<f64>,
    quiet: bool,
}

impl Progress {
    /// `quiet` leaves out the introduction.
    pub fn new(quiet: bool) -> Self {
        Progress { bar: ProgressBar::hidden(), every: 1, floor: None, quiet }
    }

    fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }
}

impl Observer for Progress {
    fn start(&mut self, start: &Start<'_>) -> Result<()> {
        let settings = start.settings;
        self.bar = ProgressBar::new(settings.steps);
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} {msg} [{eta} left]")
            .map_err(|error| Error::Internal(format!("progress bar: {error}")))?;
        self.bar.set_style(style);
        self.every = (settings.steps / 20).max(1);
        self.floor = start.loss_floor;
        if !self.quiet {
            self.say(&format!(
                "{}: {} parameters, {} tokens in the vocabulary, {} samples; on {}, {:.0} GFLOP/s \
                 in plain matrix products",
                settings.preset,
                start.parameters,
                start.vocab_size,
                start.samples,
                start.device,
                start.product_rate / 1e9
            ));
            if let Some(floor) = start.loss_floor {
                self.say(&format!("the entropy of the data is {floor:.4} nats a token"));
            }
        }
        Ok(())
    }

    fn step(&mut self, report: &StepReport) -> Result<()> {
        let floor = self.floor.map_or(String::new(), |floor| format!(" (floor {floor:.3})"));
        let message = format!(
            "loss {:.4}{floor}, {:.0} tokens/s, {:.0} % products, {}",
            report.loss,
            report.tokens as f64 / report.seconds,
            100.0 * report.product_share,
            HumanBytes(report.peak_bytes as u64)
        );
        if self.bar.is_hidden() {
            if report.step == 1 || report.step.is_multiple_of(self.every) {
                eprintln!("step {}: {message}", report.step);
            }
        } else {
            self.bar.set_position(report.step);
            self.bar.set_message(message);
        }
        Ok(())
    }

    fn evaluation(&mut self, evaluation: &Evaluation) -> Result<()> {
        let Evaluation { step, loss, tokens } = evaluation;
        self.say(&format!("step {step}: validation loss {loss:.4} over {tokens} tokens"));
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.bar.finish_and_clear();
        Ok(())
    }
}
