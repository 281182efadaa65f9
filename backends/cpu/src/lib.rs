//! The CPU device of Sneppx.
