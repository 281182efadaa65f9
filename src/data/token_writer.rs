//! Writing token files, so that a file with the asked-for name is always whole.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use sneppx_contract::{Error, Result};

use super::token_header::{HEADER_BYTES, Header, TokenWidth, check_tokens};

/// Writes a token file piece by piece, under a temporary name until it is whole.
///
/// ```
/// use sneppx::data::{TokenFile, TokenFileWriter};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("corpus.tokens");
/// let mut writer = TokenFileWriter::create(&path, 300)?;
/// writer.append(&[1, 2, 299])?;
/// writer.append(&[4])?;
/// writer.finish()?;
/// assert_eq!(TokenFile::open(&path)?.len(), 4);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Debug)]
pub struct TokenFileWriter {
    path: PathBuf,
    partial: PathBuf,
    out: BufWriter<File>,
    width: TokenWidth,
    vocab_size: usize,
    count: usize,
    hash: Sha256,
    finished: bool,
}

impl TokenFileWriter {
    /// Starts a file for tokens below `vocab_size`, in the smaller width that holds them.
    ///
    /// # Errors
    /// A vocabulary of 0 tokens or more than 2^32, or a file that cannot be written.
    pub fn create(path: impl AsRef<Path>, vocab_size: usize) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        if vocab_size == 0 || vocab_size as u64 > 1 << 32 {
            let reason = "a vocabulary has at least one token and ids below 2^32";
            return Err(Error::invalid("vocab_size", vocab_size, reason));
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".partial-{}", std::process::id()));
        let partial = path.with_file_name(name);
        let file = File::create(&partial).map_err(|error| Error::file(&partial, error))?;
        let mut writer = TokenFileWriter {
            path,
            partial,
            out: BufWriter::with_capacity(1 << 20, file),
            width: TokenWidth::for_vocabulary(vocab_size),
            vocab_size,
            count: 0,
            hash: Sha256::new(),
            finished: false,
        };
        writer.write(&[0; HEADER_BYTES])?;
        Ok(writer)
    }

    /// Adds tokens at the end.
    ///
    /// # Errors
    /// A token outside the vocabulary, with its position, or a full disk.
    pub fn append(&mut self, tokens: &[u32]) -> Result<()> {
        check_tokens(tokens, self.vocab_size, &self.path.display(), self.count)?;
        let bytes: Vec<u8> = match self.width {
            TokenWidth::U16 => {
                tokens.iter().flat_map(|&token| (token as u16).to_le_bytes()).collect()
            }
            TokenWidth::U32 => tokens.iter().flat_map(|token| token.to_le_bytes()).collect(),
        };
        self.hash.update(&bytes);
        self.count += tokens.len();
        self.write(&bytes)
    }

    /// Writes the header, waits for the disk and gives the file its name.
    ///
    /// # Errors
    /// A full disk or a name that cannot be given; the temporary file is removed.
    pub fn finish(mut self) -> Result<()> {
        let header = Header {
            width: self.width,
            vocab_size: self.vocab_size as u64,
            count: self.count as u64,
            payload_hash: self.hash.finalize_reset().into(),
        };
        let written = self
            .out
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.out.write_all(&header.bytes()))
            .and_then(|()| self.out.flush())
            .and_then(|()| self.out.get_ref().sync_all())
            .and_then(|()| std::fs::rename(&self.partial, &self.path));
        written.map_err(|error| Error::file(&self.path, error))?;
        self.finished = true;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error| Error::file(&self.partial, error))
    }
}

impl Drop for TokenFileWriter {
    fn drop(&mut self) {
        if !self.finished {
            // What is left of an unfinished file helps nobody; if it cannot be removed either,
            // its name says what it is.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}
