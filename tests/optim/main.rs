//! Optimizers, clipping and schedules: values of PyTorch, and mistakes that other projects made.

#[path = "../golden/mod.rs"]
mod golden;
mod leaves;

mod golden_runs;
mod adamw;
mod sgd;
mod clip;
mod schedule;
mod courses;
mod groups;
mod norms;
mod runs;
