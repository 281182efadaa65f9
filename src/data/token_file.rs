//! Tokens in a file that is mapped into memory, so that a corpus larger than memory costs none.
//!
//! Opening checks everything but the tokens themselves, whose hash would cost reading the file;
//! [`TokenFile::verify`] does that. A file that shrinks while it is mapped ends the process with
//! SIGBUS, as with every mapping: write new files under new names, as
//! [`TokenFileWriter`](super::TokenFileWriter) does.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use mmap_io::MemoryMappedFile;
use sha2::{Digest, Sha256};
use sneppx_contract::{Error, Result};

use super::token_header::{HEADER_BYTES, Header, MAGIC, TokenWidth, check_tokens};

/// Says that a file is to be read as bare little-endian tokens, without header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawTokens {
    /// Bytes of one token; nanoGPT's `.bin` files have [`TokenWidth::U16`].
    pub width: TokenWidth,
    /// The vocabulary size, which such a file does not know.
    pub vocab_size: usize,
}

/// An open token file.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    map: MemoryMappedFile,
    width: TokenWidth,
    vocab_size: usize,
    len: usize,
    start: usize,
    payload_hash: Option<[u8; 32]>,
}

impl TokenFile {
    /// Maps a file written by [`TokenFileWriter`](super::TokenFileWriter).
    ///
    /// # Errors
    /// A file that is missing, unreadable, foreign, of a newer version, damaged in its header, or
    /// shorter or longer than its header says.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut header = [0u8; HEADER_BYTES];
        let bytes = file_size(path)?;
        let mut file = File::open(path).map_err(|error| Error::file(path, error))?;
        let known = bytes.min(HEADER_BYTES as u64) as usize;
        file.read_exact(&mut header[..known]).map_err(|error| Error::file(path, error))?;
        let header = Header::parse(&header[..known]).map_err(|why| Error::file(path, why))?;
        let expected = (header.count as u128) * header.width.bytes() as u128 + HEADER_BYTES as u128;
        if expected != u128::from(bytes) {
            let state = if u128::from(bytes) < expected { "truncated" } else { "too long" };
            let detail = format!(
                "{state}: {} tokens of {} bytes need {expected} bytes, the file has {bytes}; \
                 write it again with `sneppx prepare`",
                header.count,
                header.width.bytes()
            );
            return Err(Error::file(path, detail));
        }
        Ok(TokenFile {
            path: path.to_path_buf(),
            map: mapped(path)?,
            width: header.width,
            vocab_size: header.vocab_size as usize,
            len: header.count as usize,
            start: HEADER_BYTES,
            payload_hash: Some(header.payload_hash),
        })
    }

    /// Maps a file of bare tokens, as nanoGPT's `train.bin`.
    ///
    /// # Errors
    /// A file that is missing, unreadable, empty, or not a whole number of tokens long; a file
    /// that has a Sneppx header; a vocabulary of 0 tokens.
    pub fn open_raw(path: impl AsRef<Path>, format: RawTokens) -> Result<Self> {
        let path = path.as_ref();
        let bytes = file_size(path)?;
        if format.vocab_size == 0 {
            return Err(Error::invalid("vocab_size", 0, "a vocabulary has at least one token"));
        }
        let width = format.width.bytes() as u64;
        if bytes == 0 || !bytes.is_multiple_of(width) {
            let detail = format!("{bytes} bytes are not one or more tokens of {width} bytes");
            return Err(Error::file(path, detail));
        }
        let map = mapped(path)?;
        let head = map.as_slice_bytes(0, bytes.min(MAGIC.len() as u64));
        if head.is_ok_and(|head| head == MAGIC) {
            let detail = "has a Sneppx token header; open it as a token file, not as raw tokens";
            return Err(Error::file(path, detail));
        }
        Ok(TokenFile {
            path: path.to_path_buf(),
            map,
            width: format.width,
            vocab_size: format.vocab_size,
            len: (bytes / width) as usize,
            start: 0,
            payload_hash: None,
        })
    }

    /// The path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every token is below this.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Bytes of one token.
    pub fn width(&self) -> TokenWidth {
        self.width
    }

    /// Copies tokens `start..start + out.len()`.
    ///
    /// # Errors
    /// A range beyond the end, or a token outside the vocabulary: both with the file's name.
    pub fn read(&self, start: usize, out: &mut [u32]) -> Result<()> {
        let end = start.checked_add(out.len()).filter(|&end| end <= self.len);
        if end.is_none() {
            let detail = format!("{} tokens from {start}, of {}", out.len(), self.len);
            return Err(Error::file(&self.path, format!("read beyond the end: {detail}")));
        }
        let bytes = self.bytes(start, out.len())?;
        match self.width {
            TokenWidth::U16 => {
                for (token, pair) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *token = u32::from(u16::from_le_bytes(*pair));
                }
            }
            TokenWidth::U32 => {
                for (token, quad) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *token = u32::from_le_bytes(*quad);
                }
            }
        }
        check_tokens(out, self.vocab_size, &self.path.display(), start)
    }

    /// Reads the whole file: its hash, where it has one, and every token.
    ///
    /// # Errors
    /// Tokens that are not the ones that were written, or that are outside the vocabulary.
    pub fn verify(&self) -> Result<()> {
        if let Some(expected) = self.payload_hash {
            let found: [u8; 32] = Sha256::digest(self.bytes(0, self.len)?).into();
            if found != expected {
                let detail = "damaged: the tokens do not have the hash in the header";
                return Err(Error::file(&self.path, detail));
            }
        }
        let mut buffer = vec![0; 1 << 16];
        for start in (0..self.len).step_by(buffer.len()) {
            let len = buffer.len().min(self.len - start);
            self.read(start, &mut buffer[..len])?;
        }
        Ok(())
    }

    fn bytes(&self, start: usize, len: usize) -> Result<&[u8]> {
        let width = self.width.bytes();
        self.map
            .as_slice_bytes((self.start + start * width) as u64, (len * width) as u64)
            .map_err(|error| Error::file(&self.path, error))
    }
}

fn file_size(path: &Path) -> Result<u64> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::file(path, error))?;
    if !metadata.is_file() {
        return Err(Error::file(path, "not a regular file; give the path of a token file"));
    }
    Ok(metadata.len())
}

fn mapped(path: &Path) -> Result<MemoryMappedFile> {
    MemoryMappedFile::open_ro(path).map_err(|error| Error::file(path, error))
}
