//! Stands where `tokenizer.json` files are read, in a build that cannot: every door says how to
//! get one that can.

use std::path::Path;

use sneppx_contract::{Error, Result};

use crate::data::{SavedTokenizer, Tokenizer};

/// A tokenizer read from a `tokenizer.json`; in this build there can be none.
#[derive(Clone, Debug)]
pub enum JsonTokenizer {}

impl JsonTokenizer {
    /// Refuses.
    ///
    /// # Errors
    /// Always: this build cannot read `tokenizer.json`.
    pub fn open(path: &Path) -> Result<Self> {
        Err(Error::file(path, ABSENT))
    }

    /// Refuses.
    ///
    /// # Errors
    /// Always: this build cannot read `tokenizer.json`.
    pub fn from_json(_json: &str) -> Result<Self> {
        Err(Error::data("tokenizer.json", ABSENT))
    }
}

impl Tokenizer for JsonTokenizer {
    fn encode(&self, _text: &str) -> Result<Vec<u32>> {
        match *self {}
    }

    fn decode(&self, _tokens: &[u32]) -> Result<String> {
        match *self {}
    }

    fn vocab_size(&self) -> usize {
        match *self {}
    }

    fn saved(&self) -> Result<SavedTokenizer> {
        match *self {}
    }
}

const ABSENT: &str = "this build cannot read a Hugging Face tokenizer; build with `cargo build \
                      --release --features tokenizers`, or use bytes or chars";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_says_what_to_build() {
        let error = SavedTokenizer::open_hugging_face("gpt2/tokenizer.json").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("gpt2/tokenizer.json"), "{text}");
        assert!(text.contains("--features tokenizers"), "{text}");
    }
}
