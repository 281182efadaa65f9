//! Optimizers, schedules and clipping, over leaves and flat runs.
//!
//! The room knows neither models nor ranks: an optimizer updates the run it is given and never
//! learns whether that is a whole parameter or a slice of one.

mod adamw;
mod clip;
mod group;
mod optimizer;
mod schedule;
mod sgd;
mod state;

pub use adamw::{AdamW, AdamWOptions};
pub use clip::{ClippedNorm, NormType, clip_factor, clip_grad_norm, first_non_finite, grad_norm};
pub use group::ParamGroup;
pub use optimizer::Optimizer;
pub use schedule::Schedule;
pub use sgd::{Sgd, SgdOptions};
pub use state::OptimizerState;
