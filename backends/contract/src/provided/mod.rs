//! The fused families composed from the required ones.
//!
//! Each function here is the provided method of [`Kernels`](crate::Kernels) of the same name and
//! says in required calls what the family means; a device that overrides a family is measured
//! against it. All of them follow one pattern: check the operands, widen them to the accumulator
//! dtype, compute there into memory of their own, round once into the outputs at the end. An
//! output may therefore be the view of any input.

mod scratch;

pub mod activation;
pub mod attention;
pub mod elementwise;
pub mod loss;
pub mod norm;
pub mod optim;
pub mod rotary;
pub mod softmax;
pub mod sums;
