//! `sneppx prepare`: text to a token file.

use std::path::PathBuf;

use clap::Args;
use sneppx::checkpoint::replace_file;
use sneppx::data::{TokenFileWriter, load_text, tokenizer_for};
use sneppx::{Error, Result};

/// Arguments of `sneppx prepare`.
#[derive(Args, Debug)]
pub struct PrepareArguments {
    /// Text files or folders of text
    #[arg(long, num_args = 1.., required = true, value_name = "PATH")]
    data: Vec<PathBuf>,
    /// `bytes`, `chars`, or the path of a tokenizer.json
    #[arg(long, default_value = "bytes", value_name = "KIND")]
    tokenizer: String,
    /// The token file to write; its name ends in .tokens
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &PrepareArguments) -> Result<()> {
    let out = &arguments.out;
    if out.extension().is_none_or(|extension| extension != "tokens") {
        let reason = "name it NAME.tokens, which is how `train --data` knows a token file";
        return Err(Error::invalid("out", out.display(), reason));
    }
    let text = load_text(&arguments.data)?;
    let tokenizer = tokenizer_for(&arguments.tokenizer, &text)?;
    let tokens = tokenizer.encode(&text)?;
    let mut writer = TokenFileWriter::create(out, tokenizer.vocab_size())?;
    writer.append(&tokens)?;
    writer.finish()?;
    let beside = out.with_extension("tokenizer.json");
    replace_file(&beside, tokenizer.saved()?.to_json()?.as_bytes())?;
    println!(
        "{} bytes of text are {} tokens of {} in {}; the tokenizer is in {}",
        text.len(),
        tokens.len(),
        tokenizer.vocab_size(),
        out.display(),
        beside.display()
    );
    Ok(())
}
