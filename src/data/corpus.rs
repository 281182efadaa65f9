//! The built-in corpus: verses in an invented language whose entropy is known.
//!
//! A line is a capital vowel and four words of an onset, a vowel, a coda, a rhyme vowel and a
//! separator, 21 tokens in all:
//!
//! ```text
//! Abelo-dinu kasu-vero
//! ```
//!
//! | token | what it depends on | how far back |
//! |---|---|---|
//! | capital | nothing | |
//! | onset | which word of the line it begins | up to 20 |
//! | vowel | the onset | 1 |
//! | coda | the onset and the vowel | 2 |
//! | rhyme | the capital of the line | 4, 9, 14, 19 |
//! | separator: `-`, space, `-`, line feed | which word of the line it ends | up to 20 |
//!
//! Each dependence is a table drawn from the seed. The token is what the table says with the
//! probability [`KEEP`] of its kind, otherwise any other of its kind, all equally likely; noise is
//! drawn afresh for each token.
//!
//! # The entropy
//!
//! Given all earlier tokens, a token of a kind with `m` members is its table's entry with
//! probability `k` and each other member with `(1 - k) / (m - 1)`, whatever the entry is. Its
//! conditional entropy is therefore the same in every context:
//!
//! `h(k, m) = -k ln k - (1 - k) ln((1 - k) / (m - 1))` nats.
//!
//! The capital is uniform, `ln 6`, and the separator is certain, 0. The entropy per token is the
//! mean over the 21 places of a line,
//!
//! `(ln 6 + 4 (h_onset + h_vowel + h_coda + h_rhyme)) / 21`, about 0.99 nats,
//!
//! and no model can have a lower expected loss. A model that sees windows cut anywhere must also
//! find out where in a line it is: [`Corpus::entropy_in_window`] gives its floor, also exactly.

use sneppx_contract::{Error, RandomKey, Result};

use super::CharTokenizer;

/// Probability that a token is what its table says: onset, vowel, coda, rhyme.
pub const KEEP: [f64; 4] = [0.6, 0.7, 0.7, 0.8];

/// Tokens in a line.
pub const LINE: usize = 21;

/// The language of one seed: its tables.
///
/// ```
/// use sneppx::data::{Corpus, Tokenizer};
/// let corpus = Corpus::new(42);
/// let train = corpus.generate(0, 10_000);
/// let validation = corpus.generate(1, 1_000);
/// assert_ne!(train[..1_000], validation[..]);
/// println!("{}", Corpus::tokenizer().decode(&train[..63])?);
/// assert!(corpus.entropy_per_token() < 1.0);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Corpus {
    key: RandomKey,
    onset_of_word: [usize; WORDS],
    vowel_of_onset: [usize; ONSET.size],
    coda_of_onset_and_vowel: [[usize; VOWEL.size]; ONSET.size],
    rhyme_of_capital: [usize; CAPITAL.size],
}

impl Corpus {
    /// How many tokens the language has.
    pub const VOCAB_SIZE: usize = 35;

    /// The language of `seed`.
    pub fn new(seed: u64) -> Self {
        let key = RandomKey::from_seed(seed).with_text("corpus");
        let tables = key.with_text("tables");
        let draw = |table: u64, index: usize, bound: usize| {
            tables.with_number(table).below(index as u64, bound as u64) as usize
        };
        let onsets = tables.with_number(0).permutation(ONSET.size);
        let rhymes = tables.with_number(3).permutation(VOWEL.size);
        Corpus {
            key,
            // Distinct onsets for the words and distinct rhymes for the capitals, so that every
            // table entry carries information.
            onset_of_word: std::array::from_fn(|word| onsets[word]),
            vowel_of_onset: std::array::from_fn(|onset| draw(1, onset, VOWEL.size)),
            coda_of_onset_and_vowel: std::array::from_fn(|onset| {
                std::array::from_fn(|vowel| draw(2, onset * VOWEL.size + vowel, CODA.size))
            }),
            rhyme_of_capital: std::array::from_fn(|capital| rhymes[capital]),
        }
    }

    /// One character per token.
    pub fn tokenizer() -> CharTokenizer {
        CharTokenizer::new(CHARACTERS.chars().collect()).expect("the characters are distinct")
    }

    /// The first `len` tokens of text number `text`. Texts of different numbers share the
    /// language and nothing else, as for training and validation.
    pub fn generate(&self, text: u64, len: usize) -> Vec<u32> {
        self.stream(text).take(len).collect()
    }

    /// Text number `text`, without end.
    pub fn stream(&self, text: u64) -> CorpusStream<'_> {
        let noise = self.key.with_text("noise").with_number(text);
        CorpusStream { corpus: self, noise, position: 0, seen: Seen::default() }
    }

    /// The entropy of a token given all before it, in nats: the floor of every loss.
    pub fn entropy_per_token(&self) -> f64 {
        let word: f64 = (0..4).map(noise_entropy).sum();
        ((CAPITAL.size as f64).ln() + WORDS as f64 * word) / LINE as f64
    }

    /// The lowest expected loss, in nats per target, of a model that sees windows of `seq_len`
    /// tokens cut at any place, and predicts the token after each; never below
    /// [`entropy_per_token`](Corpus::entropy_per_token), and near it for long windows.
    ///
    /// By the chain rule the targets' entropy is that of all `seq_len + 1` tokens less that of the
    /// first. The place in the line, uniform, is certain once a capital was seen, so the entropy
    /// of the tokens is `ln 21` plus their mean entropy given the place of the first.
    ///
    /// # Errors
    /// A window of less than 20 tokens, with which some windows never show a capital.
    pub fn entropy_in_window(&self, seq_len: usize) -> Result<f64> {
        if seq_len + 1 < LINE {
            let reason = format!("the floor is known for windows of at least {}", LINE - 1);
            return Err(Error::invalid("seq_len", seq_len, reason));
        }
        let given_place: f64 =
            (0..LINE).map(|place| self.entropy_given_place(place, seq_len + 1)).sum();
        let tokens = (LINE as f64).ln() + given_place / LINE as f64;
        Ok((tokens - entropy(&self.marginal())) / seq_len as f64)
    }

    /// The true distribution of the token after `context`: `VOCAB_SIZE` probabilities.
    ///
    /// # Errors
    /// A context that cannot be a piece of a text of this language, or that does not reach back
    /// to the capital of its line (20 tokens always do).
    pub fn conditional(&self, context: &[u32]) -> Result<Vec<f64>> {
        let mut probabilities = vec![0.0; Self::VOCAB_SIZE];
        let recent = &context[context.len().saturating_sub(LINE - 1)..];
        let capital = recent.iter().rposition(|&token| CAPITAL.value(token).is_some());
        let (place, seen) = match capital {
            Some(start) => Seen::of_line(&recent[start..])?,
            None if recent.last() == Some(&SEPARATOR.token(2)) => (0, Seen::default()),
            None => {
                let detail = format!("no capital among the last {} tokens", recent.len());
                return Err(Error::data("corpus context", detail));
            }
        };
        match self.next(place, seen) {
            Next::Uniform(kind) => probabilities[kind.range()].fill(1.0 / kind.size as f64),
            Next::Certain(token) => probabilities[token as usize] = 1.0,
            Next::Noisy { kind, expected, keep } => {
                probabilities[kind.range()].copy_from_slice(&noisy(expected, keep, kind.size));
            }
        }
        Ok(probabilities)
    }

    fn next(&self, place: usize, seen: Seen) -> Next {
        let Some(in_words) = place.checked_sub(1) else { return Next::Uniform(CAPITAL) };
        let word = in_words / 5;
        match in_words % 5 {
            0 => Next::noisy(ONSET, self.onset_of_word[word], 0),
            1 => Next::noisy(VOWEL, self.vowel_of_onset[seen.onset], 1),
            2 => Next::noisy(CODA, self.coda_of_onset_and_vowel[seen.onset][seen.vowel], 2),
            3 => Next::noisy(VOWEL, self.rhyme_of_capital[seen.capital], 3),
            _ => Next::Certain(SEPARATOR.token([0, 1, 0, 2][word])),
        }
    }

    /// The entropy of `tokens` tokens when the first stands at `start` of its line.
    fn entropy_given_place(&self, start: usize, tokens: usize) -> f64 {
        let (mut total, mut blind_rhymes) = (0.0, 0);
        for at in 0..tokens {
            let Some(in_words) = ((start + at) % LINE).checked_sub(1) else {
                total += (CAPITAL.size as f64).ln();
                continue;
            };
            let word = in_words / 5;
            total += match (in_words % 5, at) {
                // What is left of a cut word has lost its onset, or its onset and vowel.
                (1, 0) => entropy(&self.vowels(word)),
                (2, 0) => entropy(&column_sums(&self.vowels_and_codas(word))),
                (2, 1) => {
                    entropy(self.vowels_and_codas(word).as_flattened())
                        - entropy(&self.vowels(word))
                }
                // The rhymes of a line whose capital was cut off tell of one another.
                (3, _) if start > 0 && start + at < LINE => {
                    blind_rhymes += 1;
                    0.0
                }
                (4, _) => 0.0,
                (kind, _) => noise_entropy(kind),
            };
        }
        total + self.entropy_of_rhymes(blind_rhymes)
    }

    /// The joint entropy of `count` rhymes of one line without its capital.
    fn entropy_of_rhymes(&self, count: usize) -> f64 {
        let mut joint = vec![[1.0 / CAPITAL.size as f64; CAPITAL.size]];
        for _ in 0..count {
            let longer = joint.iter().flat_map(|given: &[f64; CAPITAL.size]| {
                (0..VOWEL.size).map(|rhyme| {
                    std::array::from_fn(|capital| {
                        let expected = self.rhyme_of_capital[capital];
                        given[capital] * noisy(expected, KEEP[3], VOWEL.size)[rhyme]
                    })
                })
            });
            joint = longer.collect();
        }
        entropy(&joint.iter().map(|given| given.iter().sum()).collect::<Vec<f64>>())
    }

    /// P(vowel) in word `word`, its onset unknown.
    fn vowels(&self, word: usize) -> Vec<f64> {
        self.vowels_and_codas(word).iter().map(|codas| codas.iter().sum()).collect()
    }

    /// P(vowel, coda) in word `word`, its onset unknown.
    fn vowels_and_codas(&self, word: usize) -> [[f64; CODA.size]; VOWEL.size] {
        let mut joint = [[0.0; CODA.size]; VOWEL.size];
        let onsets = noisy(self.onset_of_word[word], KEEP[0], ONSET.size);
        for (onset, p_onset) in onsets.into_iter().enumerate() {
            let vowels = noisy(self.vowel_of_onset[onset], KEEP[1], VOWEL.size);
            for (vowel, p_vowel) in vowels.into_iter().enumerate() {
                let expected = self.coda_of_onset_and_vowel[onset][vowel];
                let codas = noisy(expected, KEEP[2], CODA.size);
                for (total, p_coda) in joint[vowel].iter_mut().zip(codas) {
                    *total += p_onset * p_vowel * p_coda;
                }
            }
        }
        joint
    }

    /// P(token) at a place nothing is known of.
    fn marginal(&self) -> Vec<f64> {
        let mut marginal = vec![0.0; Self::VOCAB_SIZE];
        let mut add = |kind: Kind, probabilities: &[f64]| {
            for (total, p) in marginal[kind.range()].iter_mut().zip(probabilities) {
                *total += p / LINE as f64;
            }
        };
        add(CAPITAL, &[1.0 / CAPITAL.size as f64; CAPITAL.size]);
        add(SEPARATOR, &[2.0, 1.0, 1.0]);
        for word in 0..WORDS {
            add(ONSET, &noisy(self.onset_of_word[word], KEEP[0], ONSET.size));
            add(VOWEL, &self.vowels(word));
            add(CODA, &column_sums(&self.vowels_and_codas(word)));
            // Every vowel is the rhyme of one capital.
            add(VOWEL, &[1.0 / VOWEL.size as f64; VOWEL.size]);
        }
        marginal
    }
}

/// The tokens of one text, one after the other.
#[derive(Clone, Debug)]
pub struct CorpusStream<'a> {
    corpus: &'a Corpus,
    noise: RandomKey,
    position: u64,
    seen: Seen,
}

impl Iterator for CorpusStream<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let place = (self.position % LINE as u64) as usize;
        let random = self.noise.number(self.position);
        // Two independent numbers below 1: whether the table is kept to, and what comes instead.
        let unit = |word: u32| f64::from(word) / 4_294_967_296.0;
        let (decision, choice) = (unit(random as u32), unit((random >> 32) as u32));
        let token = match self.corpus.next(place, self.seen) {
            Next::Certain(token) => token,
            Next::Uniform(kind) => kind.token((choice * kind.size as f64) as usize),
            Next::Noisy { kind, expected, keep } if decision < keep => kind.token(expected),
            Next::Noisy { kind, expected, .. } => {
                let other = 1 + (choice * (kind.size - 1) as f64) as usize;
                kind.token((expected + other) % kind.size)
            }
        };
        self.seen.remember(place, token);
        self.position += 1;
        Some(token)
    }
}

/// What later tokens of a line depend on.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    capital: usize,
    onset: usize,
    vowel: usize,
}

impl Seen {
    /// Reads a line from its capital on: the place of the next token, and what it depends on.
    fn of_line(line: &[u32]) -> Result<(usize, Self)> {
        let mut seen = Seen::default();
        for (place, &token) in line.iter().enumerate() {
            if kind_at(place).value(token).is_none() {
                let detail = format!("token {token} cannot stand {place} after a capital");
                return Err(Error::data("corpus context", detail));
            }
            seen.remember(place, token);
        }
        Ok((line.len() % LINE, seen))
    }

    fn remember(&mut self, place: usize, token: u32) {
        let slot = match place.checked_sub(1).map(|in_words| in_words % 5) {
            None => &mut self.capital,
            Some(0) => &mut self.onset,
            Some(1) => &mut self.vowel,
            Some(_) => return,
        };
        *slot = kind_at(place).value(token).unwrap_or(0);
    }
}

enum Next {
    Uniform(Kind),
    Certain(u32),
    Noisy { kind: Kind, expected: usize, keep: f64 },
}

impl Next {
    fn noisy(kind: Kind, expected: usize, dependence: usize) -> Self {
        Next::Noisy { kind, expected, keep: KEEP[dependence] }
    }
}

/// Tokens that stand at the same places: a run of the vocabulary.
#[derive(Clone, Copy)]
struct Kind {
    first: usize,
    size: usize,
}

impl Kind {
    fn token(self, value: usize) -> u32 {
        (self.first + value) as u32
    }

    fn value(self, token: u32) -> Option<usize> {
        (token as usize).checked_sub(self.first).filter(|&value| value < self.size)
    }

    fn range(self) -> std::ops::Range<usize> {
        self.first..self.first + self.size
    }
}

const CHARACTERS: &str = "AEIOUYbdfgjkmpvzaeiouychlnqrstwx- \n";
const CAPITAL: Kind = Kind { first: 0, size: 6 };
const ONSET: Kind = Kind { first: 6, size: 10 };
const VOWEL: Kind = Kind { first: 16, size: 6 };
const CODA: Kind = Kind { first: 22, size: 10 };
const SEPARATOR: Kind = Kind { first: 32, size: 3 };
const WORDS: usize = 4;

fn kind_at(place: usize) -> Kind {
    let kinds = [ONSET, VOWEL, CODA, VOWEL, SEPARATOR];
    place.checked_sub(1).map_or(CAPITAL, |in_words| kinds[in_words % 5])
}

/// `expected` with probability `keep`, each other value of `0..size` equally likely.
fn noisy(expected: usize, keep: f64, size: usize) -> Vec<f64> {
    let mut probabilities = vec![(1.0 - keep) / (size - 1) as f64; size];
    probabilities[expected] = keep;
    probabilities
}

/// `h(k, m)` of onset, vowel, coda and rhyme.
fn noise_entropy(dependence: usize) -> f64 {
    let size = [ONSET, VOWEL, CODA, VOWEL][dependence].size;
    entropy(&noisy(0, KEEP[dependence], size))
}

/// In nats.
fn entropy(probabilities: &[f64]) -> f64 {
    probabilities.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum()
}

fn column_sums(rows: &[[f64; CODA.size]]) -> Vec<f64> {
    (0..CODA.size).map(|column| rows.iter().map(|row| row[column]).sum()).collect()
}
