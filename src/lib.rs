//! Sneppx trains Transformers on one process or on many.

#![forbid(unsafe_code)]
