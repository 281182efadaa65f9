//! The header of a token file.
//!
//! The format, all numbers little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | `89 53 4E 50 58 54 4F 4B` (`\x89SNPXTOK`) |
//! | 8..12 | format version, 1 |
//! | 12..16 | bytes of one token, 2 or 4 |
//! | 16..24 | vocabulary size |
//! | 24..32 | number of tokens |
//! | 32..64 | SHA-256 of the tokens |
//! | 64..96 | SHA-256 of bytes 0..64 |
//! | 96.. | the tokens |

use sha2::{Digest, Sha256};
use sneppx_contract::{Error, Result};

/// Bytes of one token in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenWidth {
    /// Vocabularies of at most 65536 tokens.
    U16,
    /// Any vocabulary.
    U32,
}

impl TokenWidth {
    /// The smaller width that holds every token of the vocabulary.
    pub fn for_vocabulary(vocab_size: usize) -> Self {
        if vocab_size <= 1 << 16 { TokenWidth::U16 } else { TokenWidth::U32 }
    }

    /// Bytes of one token.
    pub fn bytes(self) -> usize {
        match self {
            TokenWidth::U16 => 2,
            TokenWidth::U32 => 4,
        }
    }
}

pub(crate) const MAGIC: [u8; 8] = *b"\x89SNPXTOK";
const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 96;

/// What a file says of itself.
pub(crate) struct Header {
    pub(crate) width: TokenWidth,
    pub(crate) vocab_size: u64,
    pub(crate) count: u64,
    pub(crate) payload_hash: [u8; 32],
}

impl Header {
    pub(crate) fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.width.bytes() as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.vocab_size.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.count.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.payload_hash);
        let hash: [u8; 32] = Sha256::digest(&bytes[..64]).into();
        bytes[64..].copy_from_slice(&hash);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.get(..8) != Some(&MAGIC) {
            return Err("not a Sneppx token file; make one with `sneppx prepare`, or ask for raw \
                        tokens"
                .into());
        }
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let number = |at: usize| Some(u64::from(word(at)?) | u64::from(word(at + 4)?) << 32);
        let truncated = || format!("truncated: {} bytes, less than a header", bytes.len());
        // The version comes first: a newer one may have another header behind it.
        let version = word(8).ok_or_else(truncated)?;
        if version != VERSION {
            return Err(format!(
                "format version {version}; this build reads version {VERSION}, so update Sneppx \
                 or write the file again"
            ));
        }
        if bytes.len() < HEADER_BYTES {
            return Err(truncated());
        }
        if Sha256::digest(&bytes[..64])[..] != bytes[64..HEADER_BYTES] {
            return Err("damaged: the header does not have its own hash".into());
        }
        let width = match word(12) {
            Some(2) => TokenWidth::U16,
            Some(4) => TokenWidth::U32,
            other => return Err(format!("tokens of {other:?} bytes; expected 2 or 4")),
        };
        let mut payload_hash = [0; 32];
        payload_hash.copy_from_slice(&bytes[32..64]);
        let (vocab_size, count) = number(16).zip(number(24)).ok_or_else(truncated)?;
        Ok(Header { width, vocab_size, count, payload_hash })
    }
}

/// Refuses the first token outside `0..vocab_size`; `start` is the position of the first.
pub(crate) fn check_tokens(
    tokens: &[u32],
    vocab_size: usize,
    source_name: &dyn std::fmt::Display,
    start: usize,
) -> Result<()> {
    // The maximum of a slice is a few vector instructions; the search runs for bad files alone.
    let largest = tokens.iter().fold(0, |largest, &token| token.max(largest));
    if (largest as usize) < vocab_size || tokens.is_empty() {
        return Ok(());
    }
    let position = tokens.iter().position(|&token| token as usize >= vocab_size).unwrap_or(0);
    let detail = format!(
        "token {} at position {} is outside the vocabulary of {vocab_size}; use the tokenizer \
         that wrote the data",
        tokens[position],
        start + position
    );
    Err(Error::data(source_name, detail))
}
