//! The contract as tests: one generic function per promise, named as a sentence.
//!
//! A backend keeps the contract if every function returns `Ok`; a broken promise panics with what
//! was computed and what was wanted.

pub mod communicator;
