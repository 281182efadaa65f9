//! Text to tokens and back.
//!
//! A tokenizer is saved beside the weights ([`SavedTokenizer`]) so that a model can be talked to
//! later in the tokens it was trained on.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sneppx_contract::{Error, Result};

use crate::tokenizer_json::JsonTokenizer;

/// Turns text into token ids and back.
pub trait Tokenizer: Debug + Send + Sync {
    /// The tokens of `text`, each below [`vocab_size`](Tokenizer::vocab_size).
    ///
    /// # Errors
    /// A piece of text that no token stands for, with its place.
    fn encode(&self, text: &str) -> Result<Vec<u32>>;

    /// The text of `tokens`. Bytes that are not UTF-8, as after half a character, show as U+FFFD.
    ///
    /// # Errors
    /// A token outside the vocabulary, with its position.
    fn decode(&self, tokens: &[u32]) -> Result<String>;

    /// How many tokens there are.
    fn vocab_size(&self) -> usize;

    /// What [`SavedTokenizer::restore`] makes this tokenizer from.
    ///
    /// # Errors
    /// A tokenizer that cannot be written as JSON.
    fn saved(&self) -> Result<SavedTokenizer>;
}

/// A tokenizer as JSON, for a file beside the weights.
///
/// ```
/// use sneppx::data::{CharTokenizer, SavedTokenizer, Tokenizer};
/// let tokenizer = CharTokenizer::from_text("hello")?;
/// let json = tokenizer.saved()?.to_json()?;
/// let restored = SavedTokenizer::from_json(&json)?.restore()?;
/// assert_eq!(restored.encode("hole")?, tokenizer.encode("hole")?);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum SavedTokenizer {
    /// [`ByteTokenizer`].
    Bytes,
    /// [`CharTokenizer`]: its characters, in token order.
    Chars {
        /// One character per token.
        characters: String,
    },
    /// A Hugging Face `tokenizer.json`.
    HuggingFace {
        /// The content of the file.
        tokenizer: serde_json::Value,
    },
}

impl SavedTokenizer {
    /// The tokenizer.
    ///
    /// # Errors
    /// Characters that are not distinct, or a `tokenizer.json` that cannot be used (or a build
    /// without the feature `tokenizers`).
    pub fn restore(&self) -> Result<Box<dyn Tokenizer>> {
        Ok(match self {
            SavedTokenizer::Bytes => Box::new(ByteTokenizer),
            SavedTokenizer::Chars { characters } => {
                Box::new(CharTokenizer::new(characters.chars().collect())?)
            }
            SavedTokenizer::HuggingFace { tokenizer } => {
                Box::new(JsonTokenizer::from_json(&tokenizer.to_string())?)
            }
        })
    }

    /// The JSON text.
    ///
    /// # Errors
    /// A tokenizer that JSON cannot hold.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|error| Error::data("tokenizer", error))
    }

    /// Reads what [`to_json`](SavedTokenizer::to_json) gave.
    ///
    /// # Errors
    /// Text that is not such JSON.
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| Error::data("tokenizer", error))
    }

    /// Opens a `tokenizer.json` of the Hugging Face convention.
    ///
    /// # Errors
    /// A file that is missing, unreadable or not a tokenizer, or a build without the feature
    /// `tokenizers`.
    pub fn open_hugging_face(path: impl AsRef<Path>) -> Result<Box<dyn Tokenizer>> {
        Ok(Box::new(JsonTokenizer::open(path.as_ref())?))
    }
}

/// The tokenizer that `kind` names: `bytes`, `chars` (those of `text`), or the path of a
/// `tokenizer.json`.
///
/// # Errors
/// A text without characters; a file as in [`SavedTokenizer::open_hugging_face`].
pub fn tokenizer_for(kind: &str, text: &str) -> Result<Box<dyn Tokenizer>> {
    Ok(match kind {
        "bytes" => Box::new(ByteTokenizer),
        "chars" => Box::new(CharTokenizer::from_text(text)?),
        path => SavedTokenizer::open_hugging_face(path)?,
    })
}

/// The 256 bytes of UTF-8: every text can be encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteTokenizer;

impl Tokenizer for ByteTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let byte = |(position, &token)| {
            u8::try_from(token).map_err(|_| outside(token, position, self.vocab_size()))
        };
        let bytes: Vec<u8> = tokens.iter().enumerate().map(byte).collect::<Result<_>>()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn vocab_size(&self) -> usize {
        256
    }

    fn saved(&self) -> Result<SavedTokenizer> {
        Ok(SavedTokenizer::Bytes)
    }
}

/// One token per character, numbered in the given order.
#[derive(Clone, PartialEq, Eq)]
pub struct CharTokenizer {
    characters: Vec<char>,
    /// Token of each character below [`DIRECT`]; `u32::MAX` where there is none.
    direct: Vec<u32>,
    /// The others, sorted by character.
    others: Vec<(char, u32)>,
}

impl CharTokenizer {
    /// Token `i` stands for `characters[i]`.
    ///
    /// # Errors
    /// No characters, or one that comes twice.
    pub fn new(characters: Vec<char>) -> Result<Self> {
        if characters.is_empty() {
            return Err(Error::data("character vocabulary", "no characters: the text is empty"));
        }
        let mut direct = vec![u32::MAX; DIRECT];
        let mut others = Vec::new();
        let mut seen = BTreeSet::new();
        for (token, &character) in characters.iter().enumerate() {
            if !seen.insert(character) {
                let detail = format!("the character {character:?} comes twice");
                return Err(Error::data("character vocabulary", detail));
            }
            match direct.get_mut(character as usize) {
                Some(slot) => *slot = token as u32,
                None => others.push((character, token as u32)),
            }
        }
        others.sort_unstable();
        Ok(CharTokenizer { characters, direct, others })
    }

    /// The characters of `text`, sorted by code point: the same for every order of the text.
    ///
    /// # Errors
    /// An empty text.
    pub fn from_text(text: &str) -> Result<Self> {
        let mut direct = [false; DIRECT];
        let mut others = BTreeSet::new();
        for character in text.chars() {
            match direct.get_mut(character as usize) {
                Some(slot) => *slot = true,
                None => {
                    others.insert(character);
                }
            }
        }
        let low = (0..DIRECT as u32).filter(|&code| direct[code as usize]);
        Self::new(low.filter_map(char::from_u32).chain(others).collect())
    }

    /// The characters, in token order.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    fn token(&self, character: char) -> Option<u32> {
        if let Some(&token) = self.direct.get(character as usize) {
            return (token != u32::MAX).then_some(token);
        }
        let place = self.others.binary_search_by_key(&character, |&(other, _)| other).ok()?;
        Some(self.others[place].1)
    }
}

impl Debug for CharTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CharTokenizer({:?})", self.characters.iter().collect::<String>())
    }
}

impl Tokenizer for CharTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut tokens = Vec::with_capacity(text.len());
        for (offset, character) in text.char_indices() {
            let Some(token) = self.token(character) else {
                let detail = format!(
                    "the character {character:?} (U+{:04X}) at byte {offset} is not among the {} \
                     characters of the vocabulary; build it from this text too, or use bytes",
                    character as u32,
                    self.characters.len()
                );
                return Err(Error::data("text", detail));
            };
            tokens.push(token);
        }
        Ok(tokens)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let character = |(position, &token)| {
            let found = self.characters.get(token as usize).copied();
            found.ok_or_else(|| outside(token, position, self.characters.len()))
        };
        tokens.iter().enumerate().map(character).collect()
    }

    fn vocab_size(&self) -> usize {
        self.characters.len()
    }

    fn saved(&self) -> Result<SavedTokenizer> {
        Ok(SavedTokenizer::Chars { characters: self.characters.iter().collect() })
    }
}

/// A token that no text belongs to.
pub(crate) fn outside(token: u32, position: usize, vocab_size: usize) -> Error {
    Error::IndexOutOfRange {
        operation: "decode",
        index: i64::from(token),
        position,
        bound: vocab_size,
    }
}

/// Characters below this are looked up in a table: all of Latin, Greek and Cyrillic.
const DIRECT: usize = 0x800;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_survives_bytes_and_its_own_characters() {
        for text in ["To be, or not\n", "\0", "żółć – 日本語 🦀"] {
            let chars = CharTokenizer::from_text(text).unwrap();
            for tokenizer in [&ByteTokenizer as &dyn Tokenizer, &chars] {
                let tokens = tokenizer.encode(text).unwrap();
                assert!(tokens.iter().all(|&t| (t as usize) < tokenizer.vocab_size()));
                assert_eq!(tokenizer.decode(&tokens).unwrap(), text);
                let json = tokenizer.saved().unwrap().to_json().unwrap();
                let restored = SavedTokenizer::from_json(&json).unwrap().restore().unwrap();
                assert_eq!(restored.encode(text).unwrap(), tokens);
            }
        }
    }

    #[test]
    fn characters_are_numbered_in_sorted_order_whatever_the_text() {
        let first = CharTokenizer::from_text("b日a本ż").unwrap();
        assert_eq!(first, CharTokenizer::from_text("żżab本日").unwrap());
        assert_eq!(first.characters(), ['a', 'b', 'ż', '日', '本']);
        assert_eq!(first.encode("本ab").unwrap(), [4, 0, 1]);
    }

    #[test]
    fn an_unknown_character_is_named_with_its_place() {
        let tokenizer = CharTokenizer::from_text("abc").unwrap();
        for (text, place) in [("abxc", "'x' (U+0078) at byte 2"), ("日", "'日' (U+65E5) at byte 0")]
        {
            let message = tokenizer.encode(text).unwrap_err().to_string();
            assert!(message.contains(place), "{message}");
        }
    }

    #[test]
    fn unknown_tokens_and_broken_vocabularies_are_refused() {
        let tokenizer = CharTokenizer::from_text("abc").unwrap();
        assert!(tokenizer.decode(&[0, 3]).unwrap_err().to_string().contains("3 at position 1"));
        assert!(ByteTokenizer.decode(&[256]).is_err());
        assert_eq!(ByteTokenizer.decode(&[0xC3]).unwrap(), "\u{FFFD}");
        assert!(CharTokenizer::from_text("").is_err());
        assert!(CharTokenizer::new(vec!['a', 'b', 'a']).unwrap_err().to_string().contains("'a'"));
        for json in [r#"{"kind":"words"}"#, r#"{"kind":"chars"}"#, "", r#"{"kind":"chars","x":1}"#]
        {
            assert!(SavedTokenizer::from_json(json).is_err(), "{json}");
        }
    }
}
