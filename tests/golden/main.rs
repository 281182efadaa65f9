//! What Sneppx computes beside what PyTorch and transformers computed: layers, losses, whole models
//! with their gradients, continuations of text, and the first steps of a training run.
//!
//! `README.md` here says what the files hold and how they were made.

mod layers;
mod losses;
mod models;
mod stored;
mod training;
mod weights;
