//! Communicators inside one process.
