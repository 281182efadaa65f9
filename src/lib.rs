//! Sneppx trains Transformers on one process or on many.

#![forbid(unsafe_code)]

pub mod data;
#[cfg(feature = "tokenizers")]
#[path = "data/tokenizer_json.rs"]
pub mod tokenizer_json;
#[cfg(not(feature = "tokenizers"))]
#[path = "data/tokenizer_json_absent.rs"]
pub mod tokenizer_json;
