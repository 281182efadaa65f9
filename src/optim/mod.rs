//! Optimizers, schedules and clipping, over leaves and flat runs.
//!
//! The room knows neither models nor ranks: an optimizer updates the run it is given and never
//! learns whether that is a whole parameter or a slice of one.

mod adamw;
mod clip;
mod group;
mod non_finite;
mod optimizer;
mod run;
mod schedule;
mod sgd;
mod state;

pub use adamw::{AdamW, AdamWOptions};
pub use clip::{ClippedNorm, NormType, clip_factor, clip_grad_norm, grad_norm};
pub use group::ParamGroup;
pub use non_finite::{NonFinitePolicy, Verdict, first_non_finite};
pub use optimizer::Optimizer;
pub use run::{AdamWRun, SgdRun};
pub use schedule::{DecayForm, Schedule};
pub use sgd::{Sgd, SgdOptions};
pub use state::OptimizerState;
