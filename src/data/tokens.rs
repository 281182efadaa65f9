//! Sequences for language models: windows of a long run of tokens, and the same windows shifted by
//! one as targets.

use std::ops::Range;
use std::sync::Arc;

use sneppx_contract::{Error, HostVec, Result};

use super::token_header::check_tokens;
use super::{Collate, Dataset, Draw, HostTensor, TokenFile};

/// A run of tokens, in memory or in a mapped file; cloning it copies no token.
#[derive(Clone, Debug)]
pub struct TokenStore {
    backing: Backing,
    range: Range<usize>,
    vocab_size: usize,
}

#[derive(Clone, Debug)]
enum Backing {
    Memory { name: Arc<str>, tokens: Arc<[u32]> },
    File(Arc<TokenFile>),
}

impl TokenStore {
    /// Tokens in memory; `name` stands for them in messages.
    ///
    /// # Errors
    /// A token outside the vocabulary, with its position.
    pub fn in_memory(name: &str, tokens: Vec<u32>, vocab_size: usize) -> Result<Self> {
        check_tokens(&tokens, vocab_size, &name, 0)?;
        let range = 0..tokens.len();
        let backing = Backing::Memory { name: name.into(), tokens: tokens.into() };
        Ok(TokenStore { backing, range, vocab_size })
    }

    /// The tokens of a file.
    pub fn mapped(file: TokenFile) -> Self {
        let (range, vocab_size) = (0..file.len(), file.vocab_size());
        TokenStore { backing: Backing::File(Arc::new(file)), range, vocab_size }
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Every token is below this.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The name of the text or file, for messages.
    pub fn name(&self) -> String {
        match &self.backing {
            Backing::Memory { name, .. } => name.to_string(),
            Backing::File(file) => file.path().display().to_string(),
        }
    }

    /// Cuts off the last `fraction` of the tokens: (the rest, the cut-off part). Nothing is
    /// shuffled, so the validation text is one that training never saw. The cut falls where
    /// nanoGPT cuts: after `floor(len * (1 - fraction))` tokens.
    ///
    /// # Errors
    /// A fraction outside `0..1`.
    pub fn split(&self, fraction: f64) -> Result<(TokenStore, TokenStore)> {
        let cut = self.range.start + split_point(self.len(), fraction)?;
        let part = |range| TokenStore { range, ..self.clone() };
        Ok((part(self.range.start..cut), part(cut..self.range.end)))
    }

    /// Copies tokens `start..start + out.len()`.
    ///
    /// # Errors
    /// A range beyond the end, or, in a file, a token outside the vocabulary.
    pub fn read(&self, start: usize, out: &mut [u32]) -> Result<()> {
        if start.checked_add(out.len()).is_none_or(|end| end > self.len()) {
            let detail =
                format!("{} tokens from {start} were asked for, of {}", out.len(), self.len());
            return Err(Error::data(self.name(), detail));
        }
        let start = self.range.start + start;
        match &self.backing {
            Backing::Memory { tokens, .. } => {
                out.copy_from_slice(&tokens[start..start + out.len()]);
                Ok(())
            }
            Backing::File(file) => file.read(start, out),
        }
    }
}

/// Where the last `fraction` of `len` items begins.
pub(crate) fn split_point(len: usize, fraction: f64) -> Result<usize> {
    if !(0.0..1.0).contains(&fraction) {
        let reason = "the validation fraction is at least 0 and less than 1, as in 0.1";
        return Err(Error::invalid("fraction", fraction, reason));
    }
    Ok(((len as f64 * (1.0 - fraction)) as usize).min(len))
}

/// One window: `targets[i]` is the token after `tokens[i]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSample {
    /// `[seq_len]`.
    pub tokens: Vec<u32>,
    /// `[seq_len]`.
    pub targets: Vec<u32>,
}

/// Many windows.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBatch {
    /// `[batch, seq_len]`, `U32`.
    pub tokens: HostTensor,
    /// `[batch, seq_len]`, `U32`: the token after each.
    pub targets: HostTensor,
}

impl Collate for TokenSample {
    type Batch = TokenBatch;

    fn collate(samples: Vec<Self>) -> Result<TokenBatch> {
        let stack = |part: fn(&TokenSample) -> &Vec<u32>| {
            let rows: Result<Vec<_>> =
                samples.iter().map(|sample| HostTensor::vector(part(sample))).collect();
            HostTensor::stack(&rows?)
        };
        Ok(TokenBatch {
            tokens: stack(|sample| &sample.tokens)?,
            targets: stack(|sample| &sample.targets)?,
        })
    }
}

/// Windows of `seq_len` tokens and their targets, one every `stride` tokens.
///
/// Window `i` holds tokens `i * stride .. i * stride + seq_len + 1`. With the default stride,
/// `seq_len`, every token but the first and a tail shorter than a window is a target once per
/// epoch; with stride 1 every offset is a sample, as in nanoGPT.
///
/// ```
/// use sneppx::data::{Dataset, TokenDataset, TokenStore};
/// let store = TokenStore::in_memory("count", (0..10).collect(), 10)?;
/// let dataset = TokenDataset::new(store, 3)?;
/// assert_eq!(dataset.len(), 3);
/// let sample = dataset.get(1)?;
/// assert_eq!((sample.tokens, sample.targets), (vec![3, 4, 5], vec![4, 5, 6]));
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokenDataset {
    store: TokenStore,
    seq_len: usize,
    stride: usize,
    len: usize,
}

impl TokenDataset {
    /// Windows of `seq_len` tokens, one after the other.
    ///
    /// # Errors
    /// `seq_len` 0, or fewer tokens than one window and its last target.
    pub fn new(store: TokenStore, seq_len: usize) -> Result<Self> {
        Self::with_stride(store, seq_len, seq_len)
    }

    /// Windows of `seq_len` tokens, `stride` apart.
    ///
    /// # Errors
    /// As [`new`](TokenDataset::new), and a stride of 0.
    pub fn with_stride(store: TokenStore, seq_len: usize, stride: usize) -> Result<Self> {
        if seq_len == 0 {
            return Err(Error::invalid("seq_len", 0, "a sequence has at least one token"));
        }
        if stride == 0 {
            return Err(Error::invalid("stride", 0, "windows are at least one token apart"));
        }
        if store.len() <= seq_len {
            let detail = format!(
                "{} tokens are too few for one sequence of {seq_len} and its last target, which \
                 need {}; give more text or a smaller seq_len",
                store.len(),
                seq_len as u128 + 1
            );
            return Err(Error::data(store.name(), detail));
        }
        let len = (store.len() - seq_len - 1) / stride + 1;
        Ok(TokenDataset { store, seq_len, stride, len })
    }

    /// Tokens in one sample.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// The tokens that the windows are cut from.
    pub fn store(&self) -> &TokenStore {
        &self.store
    }

    /// The windows `indices`, one after the other: tokens and targets, each
    /// `[indices.len(), seq_len]`, row-major.
    ///
    /// # Errors
    /// An index outside the data set, or a token outside the vocabulary.
    pub fn fill_batch(&self, indices: &[usize]) -> Result<(Vec<u32>, Vec<u32>)> {
        self.fill(indices.iter().copied())
    }

    fn fill(&self, indices: impl ExactSizeIterator<Item = usize>) -> Result<(Vec<u32>, Vec<u32>)> {
        let seq_len = self.seq_len;
        let mut window = vec![0; seq_len + 1];
        let mut tokens = Vec::with_capacity(indices.len() * seq_len);
        let mut targets = Vec::with_capacity(indices.len() * seq_len);
        for index in indices {
            if index >= self.len {
                let detail = format!("sample {index} is outside 0..{}", self.len);
                return Err(Error::data(self.store.name(), detail));
            }
            self.store
                .read(index * self.stride, &mut window)
                .map_err(|error| error.at(format!("sample {index}")))?;
            tokens.extend_from_slice(&window[..seq_len]);
            targets.extend_from_slice(&window[1..]);
        }
        Ok((tokens, targets))
    }
}

impl Dataset for TokenDataset {
    type Item = TokenSample;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<TokenSample> {
        let (tokens, targets) = self.fill_batch(&[index])?;
        Ok(TokenSample { tokens, targets })
    }

    fn batch(&self, draws: &[Draw]) -> Result<TokenBatch> {
        let (tokens, targets) = self.fill(draws.iter().map(|draw| draw.index))?;
        let shape = [draws.len(), self.seq_len];
        Ok(TokenBatch {
            tokens: HostTensor::new(HostVec::U32(tokens), &shape)?,
            targets: HostTensor::new(HostVec::U32(targets), &shape)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(len: u32) -> TokenStore {
        TokenStore::in_memory("count", (0..len).collect(), len as usize).unwrap()
    }

    #[test]
    fn targets_are_the_tokens_shifted_by_one() {
        let dataset = TokenDataset::with_stride(counting(10), 4, 2).unwrap();
        assert_eq!(dataset.len(), 3);
        let (tokens, targets) = dataset.fill_batch(&[2, 0]).unwrap();
        assert_eq!(tokens, [4, 5, 6, 7, 0, 1, 2, 3]);
        assert_eq!(targets, [5, 6, 7, 8, 1, 2, 3, 4]);
        assert!(dataset.get(3).unwrap_err().to_string().contains("sample 3"));
    }

    #[test]
    fn the_direct_batch_equals_collated_samples() {
        let dataset = TokenDataset::with_stride(counting(40), 7, 3).unwrap();
        let draws: Vec<_> = [3, 0, 9].map(|index| Draw { epoch: 0, index }).into();
        let samples = draws.iter().map(|&draw| dataset.draw(draw).unwrap()).collect();
        assert_eq!(dataset.batch(&draws).unwrap(), TokenSample::collate(samples).unwrap());
    }

    #[test]
    fn a_text_shorter_than_one_sequence_is_refused_with_both_numbers() {
        assert_eq!(TokenDataset::new(counting(9), 8).unwrap().len(), 1);
        let text = TokenDataset::new(counting(8), 8).unwrap_err().to_string();
        assert!(text.contains("count: 8 tokens") && text.contains("need 9"), "{text}");
        assert!(TokenDataset::new(counting(8), 0).is_err());
        assert!(TokenDataset::with_stride(counting(8), 2, 0).is_err());
        assert!(TokenDataset::new(counting(8), usize::MAX).is_err());
    }

    #[test]
    fn the_last_tenth_is_kept_for_validation() {
        let (train, validation) = counting(101).split(0.1).unwrap();
        assert_eq!((train.len(), validation.len()), (90, 11));
        let mut first = [0];
        validation.read(0, &mut first).unwrap();
        assert_eq!(first, [90]);
        assert!(train.read(90, &mut first).is_err());
        for fraction in [1.0, -0.1, f64::NAN] {
            assert!(counting(10).split(fraction).is_err());
        }
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_refused_with_its_position() {
        let text = TokenStore::in_memory("t", vec![0, 1, 5, 7], 5).unwrap_err().to_string();
        assert!(text.contains("token 5 at position 2") && text.contains('5'), "{text}");
    }
}
