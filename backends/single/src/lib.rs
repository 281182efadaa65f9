//! Communicators inside one process.
//!
//! [`Solo`] is the world of one rank, over any device.

#![forbid(unsafe_code)]

mod solo;

pub use solo::Solo;
