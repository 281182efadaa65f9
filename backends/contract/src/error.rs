//! What can go wrong, by kind and by blame.
//!
//! Every message carries the numbers: what was asked, what was found, where, and what to do next.

use crate::{DType, Shape};

/// The result of everything that can fail in Sneppx.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who has to act on an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller gave a value that cannot be used.
    Caller,
    /// Another rank died, disagreed or did not arrive.
    Peer,
    /// The device, a library or the operating system refused.
    Environment,
    /// Sneppx broke one of its own invariants; please report it.
    Bug,
}

/// An error of a device, a communicator or the framework above them.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shapes that an operation cannot combine.
    #[error("{operation}: {detail}")]
    Shape {
        /// The operation that was asked for, as in `matmul`.
        operation: &'static str,
        /// Both shapes and what disagrees.
        detail: String,
    },
    /// A dtype that an operation does not accept, or two that should be equal.
    #[error("{operation}: expected {expected}, got {got}; convert with `cast` first")]
    DType {
        /// The operation that was asked for.
        operation: &'static str,
        /// What is accepted.
        expected: String,
        /// What was given.
        got: DType,
    },
    /// An index, label or token outside its range.
    #[error("{operation}: index {index} at position {position} is outside 0..{bound}")]
    IndexOutOfRange {
        /// The operation that was asked for.
        operation: &'static str,
        /// The offending value.
        index: i64,
        /// Where it stands in the flattened indices.
        position: usize,
        /// The exclusive upper bound.
        bound: usize,
    },
    /// A value that is not allowed, named together with the setting it belongs to.
    #[error("{name} = {value}: {reason}")]
    InvalidArgument {
        /// The setting or argument.
        name: &'static str,
        /// The value, as text.
        value: String,
        /// Why it cannot be used and what can.
        reason: String,
    },
    /// A buffer is being written while another call reads it, or the reverse.
    #[error("{operation}: a buffer of {bytes} bytes is in use by another call; wait for it first")]
    BufferInUse {
        /// The operation that was refused.
        operation: &'static str,
        /// The size of the buffer.
        bytes: usize,
    },
    /// The device has no memory left for an allocation.
    #[error("out of memory on {device}: {requested} bytes requested, {live} bytes live")]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// What was asked for.
        requested: usize,
        /// What is in use.
        live: usize,
    },
    /// A device, library or driver refused.
    #[error("{device}: {detail}")]
    Device {
        /// The device's name.
        device: String,
        /// What it said, and what to install or change.
        detail: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {detail}")]
    File {
        /// The path, as the user gave it.
        path: String,
        /// The cause and the fix.
        detail: String,
    },
    /// Data that cannot be trained on.
    #[error("{source_name}: {detail}")]
    Data {
        /// The file, data set or sample.
        source_name: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A loss, gradient or parameter is NaN or infinite.
    #[error("{what} is {value} at {place}")]
    NonFinite {
        /// The quantity.
        what: String,
        /// NaN, inf or -inf.
        value: f64,
        /// Step, parameter or rank.
        place: String,
    },
    /// Another rank disagreed, died or did not arrive in time.
    #[error("rank {rank}: {operation}: {detail}")]
    Peer {
        /// The odd rank.
        rank: usize,
        /// The collective in which it showed.
        operation: &'static str,
        /// What was expected and what was seen.
        detail: String,
    },
    /// An operation was asked for a gradient that it does not have.
    #[error("{operation} has no derivative, but an input requires a gradient; use `detach`")]
    NotDifferentiable {
        /// The operation that was called.
        operation: &'static str,
    },
    /// A broken invariant of Sneppx itself.
    #[error("internal error: {0}; please report it")]
    Internal(String),
    /// An error with the place where it came up, outermost first.
    #[error("{context}: {source}")]
    Context {
        /// Where: a path, a step, a layer.
        context: String,
        /// What happened there.
        source: Box<Error>,
    },
}

impl Error {
    /// Shapes that `operation` cannot combine; `detail` names them.
    pub fn shape(operation: &'static str, detail: impl Into<String>) -> Self {
        Error::Shape { operation, detail: detail.into() }
    }

    /// `operation` needed one of `expected`.
    pub fn dtype(operation: &'static str, expected: impl Into<String>, got: DType) -> Self {
        Error::DType { operation, expected: expected.into(), got }
    }

    /// Two shapes that should have been equal.
    pub fn shapes_differ(
        operation: &'static str,
        left_name: &str,
        left: &Shape,
        right_name: &str,
        right: &Shape,
    ) -> Self {
        Error::shape(operation, format!("{left_name} {left:?} and {right_name} {right:?} differ"))
    }

    /// A setting with a value that cannot be used.
    pub fn invalid(
        name: &'static str,
        value: impl std::fmt::Display,
        reason: impl Into<String>,
    ) -> Self {
        Error::InvalidArgument { name, value: value.to_string(), reason: reason.into() }
    }

    /// A file operation that failed.
    pub fn file(path: impl AsRef<std::path::Path>, detail: impl std::fmt::Display) -> Self {
        Error::File { path: path.as_ref().display().to_string(), detail: detail.to_string() }
    }

    /// Data that cannot be used, with the place it came from.
    pub fn data(source_name: impl std::fmt::Display, detail: impl std::fmt::Display) -> Self {
        Error::Data { source_name: source_name.to_string(), detail: detail.to_string() }
    }

    /// Adds the place where the error came up.
    pub fn at(self, context: impl Into<String>) -> Self {
        Error::Context { context: context.into(), source: Box::new(self) }
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Error::Peer { .. } => Blame::Peer,
            Error::OutOfMemory { .. } | Error::Device { .. } | Error::File { .. } => {
                Blame::Environment
            }
            Error::Internal(_) => Blame::Bug,
            Error::Context { source, .. } => source.blame(),
            _ => Blame::Caller,
        }
    }
}
