//! The contract between Sneppx and its backends.
//!
//! A backend author needs this crate and no other. It holds what a device, a communicator and the
//! framework above them must agree on, and nothing that one of them could own alone.
//!
//! Read in this order: [`dtype`] and [`layout`] (the words), [`device`] (memory and order of
//! work), [`kernels`] (arithmetic), [`comm`] and [`pending`] (ranks), [`rng`] (randomness).

#![forbid(unsafe_code)]

pub mod dtype;
pub mod error;
pub mod layout;
pub mod rng;

pub use dtype::{DType, Element, HostSlice, HostVec};
pub use error::{Blame, Error, Result};
pub use layout::{Layout, MAX_NDIM, Shape};
pub use rng::RandomKey;
