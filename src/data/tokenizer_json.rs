//! Tokenizers of the Hugging Face convention: `tokenizer.json`.

use std::path::Path;

use sneppx_contract::{Error, Result};

use crate::data::{SavedTokenizer, Tokenizer};

/// A tokenizer read from a `tokenizer.json`.
///
/// Special tokens are not added to texts, because a training text is cut into windows anyway;
/// those that stand in a text are recognised.
#[derive(Clone, Debug)]
pub struct JsonTokenizer {
    inner: tokenizers::Tokenizer,
    vocab_size: usize,
}

impl JsonTokenizer {
    /// Opens a `tokenizer.json`.
    ///
    /// # Errors
    /// A file that is missing, unreadable or not a tokenizer.
    pub fn open(path: &Path) -> Result<Self> {
        let json = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        Self::from_json(&json).map_err(|error| error.at(path.display().to_string()))
    }

    /// Reads the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// Text that is not a tokenizer, or one without tokens.
    pub fn from_json(json: &str) -> Result<Self> {
        let inner = tokenizers::Tokenizer::from_bytes(json).map_err(|error| {
            Error::data("tokenizer.json", format!("not a Hugging Face tokenizer: {error}"))
        })?;
        // Ids can have gaps: what a model needs is one more than the largest.
        let Some(&largest) = inner.get_vocab(true).values().max() else {
            return Err(Error::data("tokenizer.json", "the vocabulary is empty"));
        };
        Ok(JsonTokenizer { inner, vocab_size: largest as usize + 1 })
    }
}

impl Tokenizer for JsonTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, false);
        Ok(encoding.map_err(|error| Error::data("text", error))?.get_ids().to_vec())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        if let Some(position) = tokens.iter().position(|&t| t as usize >= self.vocab_size) {
            return Err(crate::data::tokenizer::outside(
                tokens[position],
                position,
                self.vocab_size,
            ));
        }
        self.inner.decode(tokens, false).map_err(|error| Error::data("tokens", error))
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn saved(&self) -> Result<SavedTokenizer> {
        let json =
            self.inner.to_string(false).map_err(|error| Error::data("tokenizer.json", error))?;
        let tokenizer =
            serde_json::from_str(&json).map_err(|error| Error::data("tokenizer.json", error))?;
        Ok(SavedTokenizer::HuggingFace { tokenizer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "be": 1, "to": 4}}}"#;

    #[test]
    fn words_are_encoded_saved_and_restored() {
        let tokenizer = JsonTokenizer::from_json(WORDS).unwrap();
        assert_eq!(tokenizer.vocab_size(), 5);
        assert_eq!(tokenizer.encode("to be or").unwrap(), [4, 1, 0]);
        assert_eq!(tokenizer.decode(&[4, 1]).unwrap(), "to be");
        assert!(tokenizer.decode(&[1, 5]).unwrap_err().to_string().contains("5 at position 1"));
        let json = tokenizer.saved().unwrap().to_json().unwrap();
        let restored = SavedTokenizer::from_json(&json).unwrap().restore().unwrap();
        assert_eq!(restored.encode("to be or").unwrap(), [4, 1, 0]);
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        assert!(JsonTokenizer::open(&path).unwrap_err().to_string().contains("tokenizer.json"));
        std::fs::write(&path, "{}").unwrap();
        let text = JsonTokenizer::open(&path).unwrap_err().to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(text.contains("not a Hugging Face tokenizer"), "{text}");
    }
}
