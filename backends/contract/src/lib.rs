//! The contract between Sneppx and its backends.
//!
//! A backend author needs this crate and no other. It holds what a device, a communicator and the
//! framework above them must agree on, and nothing that one of them could own alone.
//!
//! Read in this order: [`dtype`], [`shape`] and [`layout`] (the words), [`device`] (memory and the
//! order of work), [`operations`] and [`kernels`] (arithmetic) with [`check`] (its preconditions)
//! and [`provided`] (its compositions), [`comm`] and [`pending`] (ranks), [`rng`] (randomness).
//! With the feature `conformance`, a module of that name holds the contract as tests for any
//! backend.

#![forbid(unsafe_code)]

pub mod dtype;
pub mod shape;
pub mod layout;
pub mod error;
pub mod device;
pub mod operations;
pub mod kernels;
pub mod check;
pub mod provided;
pub mod comm;
pub mod pending;
pub mod rng;
#[cfg(feature = "conformance")]
pub mod conformance;

pub use comm::{BufferOf, Communicator, ReduceOp};
pub use device::{Buffer, Device, Memory, MemoryStats, View, ViewOf};
pub use dtype::{DType, Element, HostSlice, HostVec};
pub use error::{Blame, Error, Result};
pub use kernels::Kernels;
pub use layout::Layout;
pub use operations::{
    Activation, AdamWStep, Attention, BinaryOp, CompareOp, CrossEntropy, Distribution, Norm,
    NormKind, NormOperands, ReduceKind, Rotation, SUM_BLOCK, SgdStep, Store, UnaryOp, Visibility,
};
pub use pending::Work;
pub use rng::RandomKey;
pub use shape::{MAX_NDIM, Shape};
