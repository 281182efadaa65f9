//! The course of the learning rate: pure functions of the step.

use serde::{Deserialize, Serialize};
use sneppx_contract::{Error, Result};

use super::group::check_not_negative;

/// A learning rate for every step, counted from 0.
///
/// All courses rise over `warmup` steps to a peak; all but the constant one end at step `total` and
/// stay where they are from there on. The rise is `peak * (step + 1) / (warmup + 1)`, as in
/// nanoGPT: the first update is not wasted at rate 0, and the peak itself is reached at step
/// `warmup`. [`Schedule::with_rise_from_zero`] has the other convention, `peak * step / warmup`.
///
/// A schedule keeps no count of its own: the step is the optimizer step, so nothing has to be saved
/// to resume, and micro-batches and ranks do not move it. Serialised forms are checked like the
/// constructors' arguments when they are read.
///
/// ```
/// use sneppx::optim::Schedule;
/// let schedule = Schedule::cosine(1.0, 0.1, 4, 10)?;
/// assert!((schedule.learning_rate(0) - 0.2).abs() < 1e-12);
/// assert!((schedule.learning_rate(4) - 1.0).abs() < 1e-12);
/// assert!((schedule.learning_rate(10) - 0.1).abs() < 1e-12);
/// # Ok::<(), sneppx::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Schedule {
    parts: Parts,
}

/// How [`Schedule::wsd`] falls at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecayForm {
    /// In a straight line.
    #[default]
    Linear,
    /// As `1 - sqrt(share of the decay that is done)` (Hägele et al., 2024).
    OneMinusSqrt,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Parts {
    peak: f64,
    min: f64,
    warmup: u64,
    rise: Rise,
    fall: Fall,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rise {
    AboveZero,
    FromZero,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "course", deny_unknown_fields)]
enum Fall {
    Constant,
    Linear { total: u64 },
    Cosine { total: u64 },
    Wsd { total: u64, decay: u64, form: DecayForm },
}

impl Schedule {
    /// Rises, then stays at `peak`.
    ///
    /// # Errors
    /// A rate that is negative or not finite.
    pub fn constant(peak: f64, warmup: u64) -> Result<Self> {
        Schedule::new(peak, peak, warmup, Fall::Constant)
    }

    /// Rises to `peak`, then falls in a straight line to `min` at step `total`.
    ///
    /// # Errors
    /// Rates that are negative, not finite or the wrong way round; a rise longer than the whole.
    pub fn linear(peak: f64, min: f64, warmup: u64, total: u64) -> Result<Self> {
        Schedule::new(peak, min, warmup, Fall::Linear { total })
    }

    /// Rises to `peak`, then falls along half a cosine to `min` at step `total` (Loshchilov and
    /// Hutter, 2017): `min + (peak - min) * (1 + cos(π * (step - warmup) / (total - warmup))) / 2`.
    ///
    /// # Errors
    /// As [`Schedule::linear`].
    pub fn cosine(peak: f64, min: f64, warmup: u64, total: u64) -> Result<Self> {
        Schedule::new(peak, min, warmup, Fall::Cosine { total })
    }

    /// Warm-up, stable, decay (Hu et al., 2024): rises to `peak`, stays, and falls in a straight
    /// line to `min` over the last `decay` steps.
    ///
    /// # Errors
    /// As [`Schedule::linear`]; rise and decay together longer than the whole.
    pub fn wsd(peak: f64, min: f64, warmup: u64, total: u64, decay: u64) -> Result<Self> {
        Schedule::new(peak, min, warmup, Fall::Wsd { total, decay, form: DecayForm::Linear })
    }

    /// The same with another form of the last fall of [`Schedule::wsd`].
    ///
    /// # Errors
    /// A schedule of another kind, which has no such fall.
    pub fn with_decay_form(self, form: DecayForm) -> Result<Self> {
        let Fall::Wsd { total, decay, .. } = self.parts.fall else {
            let reason = "only a schedule made by Schedule::wsd has a form of decay";
            return Err(Error::invalid("decay form", format!("{form:?}"), reason));
        };
        let fall = Fall::Wsd { total, decay, form };
        Ok(Schedule { parts: Parts { fall, ..self.parts } })
    }

    /// The same with a rise of `peak * step / warmup`: rate 0 at step 0.
    #[must_use]
    pub fn with_rise_from_zero(self) -> Self {
        Schedule { parts: Parts { rise: Rise::FromZero, ..self.parts } }
    }

    /// The rate of step `step`.
    pub fn learning_rate(&self, step: u64) -> f64 {
        let Parts { peak, min, warmup, rise, fall } = self.parts;
        if step < warmup {
            let (step, warmup) = (step as f64, warmup as f64);
            return match rise {
                Rise::AboveZero => peak * (step + 1.0) / (warmup + 1.0),
                Rise::FromZero => peak * step / warmup,
            };
        }
        let (total, start) = match fall {
            Fall::Constant => return peak,
            Fall::Linear { total } | Fall::Cosine { total } => (total, warmup),
            Fall::Wsd { total, decay, .. } => (total, total - decay),
        };
        if step >= total {
            return min;
        }
        if step < start {
            return peak;
        }
        let done = (step - start) as f64 / (total - start) as f64;
        let left = match fall {
            Fall::Cosine { .. } => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
            Fall::Wsd { form: DecayForm::OneMinusSqrt, .. } => 1.0 - done.sqrt(),
            _ => 1.0 - done,
        };
        min + left * (peak - min)
    }

    fn new(peak: f64, min: f64, warmup: u64, fall: Fall) -> Result<Self> {
        Parts { peak, min, warmup, rise: Rise::AboveZero, fall }.try_into()
    }
}

impl TryFrom<Parts> for Schedule {
    type Error = Error;

    fn try_from(parts: Parts) -> Result<Self> {
        let Parts { peak, min, warmup, fall, .. } = parts;
        check_not_negative("learning rate", peak)?;
        check_not_negative("smallest learning rate", min)?;
        if min > peak {
            let reason = format!("is above the peak {peak}");
            return Err(Error::invalid("smallest learning rate", min, reason));
        }
        let (total, decay) = match fall {
            Fall::Constant => return Ok(Schedule { parts }),
            Fall::Linear { total } | Fall::Cosine { total } => (total, 0),
            Fall::Wsd { total, decay, .. } => (total, decay),
        };
        if warmup > total {
            let reason = format!("is longer than the whole run of {total} steps");
            return Err(Error::invalid("warmup", warmup, reason));
        }
        if decay > total - warmup {
            let reason = format!("does not fit into {total} steps after a warm-up of {warmup}");
            return Err(Error::invalid("decay", decay, reason));
        }
        Ok(Schedule { parts })
    }
}

impl From<Schedule> for Parts {
    fn from(schedule: Schedule) -> Self {
        schedule.parts
    }
}
