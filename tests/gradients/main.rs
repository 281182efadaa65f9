//! The derivative of every operation against central differences, in `f64`.
//!
//! `differences` is the checker. The other files follow `src/autograd/rules/`: each check names the
//! rule it is for and fails if the operation records another. `tests/tidy.rs` asks for a check of
//! every rule.

mod activation;
mod attention;
mod combine;
mod differences;
mod elementwise;
mod index;
mod loss;
mod norm;
mod product;
mod reduce;
mod view;
