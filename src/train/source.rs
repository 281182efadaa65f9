//! Where the tokens of a run come from.

use std::path::Path;

use sneppx_contract::{Error, RandomKey, Result};

use super::Settings;
use crate::data::{
    Corpus, SavedTokenizer, TokenDataset, TokenFile, TokenStore, Tokenizer, load_text,
    tokenizer_for,
};

/// The data of a run.
#[derive(Debug)]
pub struct Source {
    /// What is trained on.
    pub training: TokenDataset,
    /// What is evaluated on, if any was kept.
    pub validation: Option<TokenDataset>,
    /// Text to tokens and back, where tokens are text.
    pub tokenizer: Option<Box<dyn Tokenizer>>,
    /// Number of tokens there are.
    pub vocab_size: usize,
    /// The entropy of a token in nats, where it is known: no model's loss stays below it.
    pub loss_floor: Option<f64>,
}

/// Opens the data that `settings` name.
///
/// # Errors
/// Files that are missing, unreadable, empty or too short; text the tokenizer cannot encode.
pub fn open_source(settings: &Settings) -> Result<Source> {
    match settings.source.as_str() {
        _ if !settings.data.is_empty() => from_files(settings),
        "corpus" => from_corpus(settings),
        "random" => from_random(settings),
        _ => Err(Error::invalid(
            "data",
            "nothing",
            format!("preset {} needs text; give --data FILE", settings.preset),
        )),
    }
}

/// Fewest tokens from which windows are cut without gaps; below it every offset is a sample.
const DENSE_TOKENS: usize = 1 << 24;

fn windows(store: TokenStore, settings: &Settings) -> Result<TokenDataset> {
    let stride = if store.len() < DENSE_TOKENS { 1 } else { settings.seq_len };
    TokenDataset::with_stride(store, settings.seq_len, stride)
}

/// The last part of `store` for validation, unless none is wanted.
fn split(store: TokenStore, settings: &Settings) -> Result<(TokenDataset, Option<TokenDataset>)> {
    if settings.validation_fraction == 0.0 {
        return Ok((windows(store, settings)?, None));
    }
    let (training, validation) = store.split(settings.validation_fraction)?;
    // Evaluation counts every token once.
    let validation = TokenDataset::new(validation, settings.seq_len).map_err(|error| {
        error.at(format!("validation-fraction = {}", settings.validation_fraction))
    })?;
    Ok((windows(training, settings)?, Some(validation)))
}

fn from_files(settings: &Settings) -> Result<Source> {
    let [first, rest @ ..] = &settings.data[..] else {
        return Err(Error::invalid("data", "nothing", "give at least one path"));
    };
    if first.extension().is_some_and(|extension| extension == "tokens") {
        if !rest.is_empty() {
            let reason = "one token file at a time; join the text and prepare it again";
            return Err(Error::invalid("data", rest[0].display(), reason));
        }
        return from_token_file(first, settings);
    }
    let text = load_text(&settings.data)?;
    let tokenizer = tokenizer_for(&settings.tokenizer, &text)?;
    let tokens = tokenizer.encode(&text)?;
    let vocab_size = tokenizer.vocab_size();
    let name = first.display().to_string();
    let store = TokenStore::in_memory(&name, tokens, vocab_size)?;
    let (training, validation) = split(store, settings)?;
    Ok(Source { training, validation, tokenizer: Some(tokenizer), vocab_size, loss_floor: None })
}

fn from_token_file(path: &Path, settings: &Settings) -> Result<Source> {
    let file = TokenFile::open(path)?;
    let vocab_size = file.vocab_size();
    // `sneppx prepare` leaves the tokenizer beside the tokens.
    let beside = path.with_extension("tokenizer.json");
    let tokenizer = if beside.exists() {
        let json = std::fs::read_to_string(&beside).map_err(|error| Error::file(&beside, error))?;
        Some(SavedTokenizer::from_json(&json)?.restore()?)
    } else {
        None
    };
    let (training, validation) = split(TokenStore::mapped(file), settings)?;
    Ok(Source { training, validation, tokenizer, vocab_size, loss_floor: None })
}

fn from_corpus(settings: &Settings) -> Result<Source> {
    let corpus = Corpus::new(settings.seed);
    let wanted = settings.steps as usize * settings.global_batch * settings.seq_len;
    // Enough that little is seen twice, within what is quick to make and small to hold.
    let len = wanted.clamp(1 << 16, 1 << 23);
    let held_out = settings.eval_batches * settings.global_batch * settings.seq_len + 1;
    let store = |name: &str, text: u64, len: usize| {
        TokenStore::in_memory(name, corpus.generate(text, len), Corpus::VOCAB_SIZE)
    };
    let training = windows(store("built-in corpus", 0, len)?, settings)?;
    let validation = store("built-in corpus, validation", 1, held_out)?;
    Ok(Source {
        training,
        validation: Some(TokenDataset::new(validation, settings.seq_len)?),
        tokenizer: Some(Box::new(Corpus::tokenizer())),
        vocab_size: Corpus::VOCAB_SIZE,
        loss_floor: Some(corpus.entropy_per_token()),
    })
}

fn from_random(settings: &Settings) -> Result<Source> {
    let vocab_size = settings.vocab_size;
    let key = RandomKey::from_seed(settings.seed).with_text("random tokens");
    // 256 sequences for the tutorial's batch of 32: eight steps an epoch.
    let len = 8 * settings.global_batch * settings.seq_len + 1;
    let tokens = (0..len as u64).map(|i| key.below(i, vocab_size as u64) as u32).collect();
    let store = TokenStore::in_memory("random tokens", tokens, vocab_size)?;
    let training = TokenDataset::new(store, settings.seq_len)?;
    Ok(Source { training, validation: None, tokenizer: None, vocab_size, loss_floor: None })
}
