//! The course of the learning rate: pure functions of the step.

use sneppx_contract::{Error, Result};

/// A learning rate for every step, counted from 0.
///
/// All courses but the constant one rise over `warmup` steps and end at `total`; from there on they
/// stay. The rise is `peak * (step + 1) / (warmup + 1)`, as in nanoGPT: the first update is not
/// wasted at rate 0, and the peak is reached once, at step `warmup`.
/// [`Schedule::with_rise_from_zero`] has the other convention, `peak * step / warmup`.
///
/// ```
/// use sneppx::optim::Schedule;
/// let schedule = Schedule::cosine(1.0, 0.1, 4, 10)?;
/// assert!((schedule.learning_rate(0) - 0.2).abs() < 1e-12);
/// assert!((schedule.learning_rate(4) - 1.0).abs() < 1e-12);
/// assert!((schedule.learning_rate(10) - 0.1).abs() < 1e-12);
/// # Ok::<(), sneppx::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    peak: f64,
    min: f64,
    warmup: u64,
    total: u64,
    rise: Rise,
    fall: Fall,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rise {
    AboveZero,
    FromZero,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fall {
    None,
    Linear,
    Cosine,
    /// Stays at the peak, then falls in a straight line over the last steps.
    Late(u64),
}

impl Schedule {
    /// Rises, then stays at `peak`.
    ///
    /// # Errors
    /// A rate that is negative or not finite.
    pub fn constant(peak: f64, warmup: u64) -> Result<Self> {
        Schedule::new(peak, peak, warmup, u64::MAX, Fall::None)
    }

    /// Rises to `peak`, then falls in a straight line to `min` at step `total`.
    ///
    /// # Errors
    /// Rates that are negative, not finite or the wrong way round; a rise longer than the whole.
    pub fn linear(peak: f64, min: f64, warmup: u64, total: u64) -> Result<Self> {
        Schedule::new(peak, min, warmup, total, Fall::Linear)
    }

    /// Rises to `peak`, then falls along half a cosine to `min` at step `total` (Loshchilov and
    /// Hutter, 2017): `min + (peak - min) * (1 + cos(π * (step - warmup) / (total - warmup))) / 2`.
    ///
    /// # Errors
    /// As [`Schedule::linear`].
    pub fn cosine(peak: f64, min: f64, warmup: u64, total: u64) -> Result<Self> {
        Schedule::new(peak, min, warmup, total, Fall::Cosine)
    }

    /// Warm-up, stable, decay (Hu et al., 2024): rises to `peak`, stays, and falls in a straight
    /// line to `min` over the last `decay` steps.
    ///
    /// # Errors
    /// As [`Schedule::linear`]; rise and decay together longer than the whole.
    pub fn wsd(peak: f64, min: f64, warmup: u64, total: u64, decay: u64) -> Result<Self> {
        if decay > total.saturating_sub(warmup) {
            let reason = format!("warm-up {warmup} and decay do not fit into {total} steps");
            return Err(Error::invalid("decay", decay, reason));
        }
        Schedule::new(peak, min, warmup, total, Fall::Late(decay))
    }

    /// The same with a rise of `peak * step / warmup`: rate 0 at step 0.
    #[must_use]
    pub fn with_rise_from_zero(self) -> Self {
        Schedule { rise: Rise::FromZero, ..self }
    }

    /// The rate of step `step`.
    pub fn learning_rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            let (done, all) = match self.rise {
                Rise::AboveZero => (step + 1, self.warmup + 1),
                Rise::FromZero => (step, self.warmup),
            };
            return self.peak * done as f64 / all as f64;
        }
        let start = match self.fall {
            Fall::None => return self.peak,
            Fall::Late(decay) => self.total - decay,
            Fall::Linear | Fall::Cosine => self.warmup,
        };
        if step >= self.total {
            return self.min;
        }
        if step < start {
            return self.peak;
        }
        let done = (step - start) as f64 / (self.total - start) as f64;
        let left = match self.fall {
            Fall::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
            _ => 1.0 - done,
        };
        self.min + left * (self.peak - self.min)
    }

    fn new(peak: f64, min: f64, warmup: u64, total: u64, fall: Fall) -> Result<Self> {
        for (name, rate) in [("learning rate", peak), ("smallest learning rate", min)] {
            if !(rate >= 0.0 && rate.is_finite()) {
                return Err(Error::invalid(name, rate, "must be 0 or positive, and finite"));
            }
        }
        if min > peak {
            let reason = format!("is above the peak {peak}");
            return Err(Error::invalid("smallest learning rate", min, reason));
        }
        if warmup > total {
            let reason = format!("is longer than the whole run of {total} steps");
            return Err(Error::invalid("warmup", warmup, reason));
        }
        Ok(Schedule { peak, min, warmup, total, rise: Rise::AboveZero, fall })
    }
}
