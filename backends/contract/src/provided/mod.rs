//! The fused families composed from the required ones.

pub mod activation;
pub mod attention;
pub mod elementwise;
pub mod loss;
pub mod norm;
pub mod optim;
pub mod rotary;
pub mod softmax;
pub mod sums;
