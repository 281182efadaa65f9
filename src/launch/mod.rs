//! How this process was started: parsed once into a value.

mod environment;

pub use environment::{Environment, Launch};
