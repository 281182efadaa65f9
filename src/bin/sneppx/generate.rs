//! `sneppx generate`: continues a text with a trained model.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use sneppx::checkpoint::load_weights;
use sneppx::contract::Memory;
use sneppx::data::{SavedTokenizer, Tokenizer};
use sneppx::launch::{Environment, Launch};
use sneppx::nn::{Builder, Generator, Sampling, Transformer, TransformerConfig};
use sneppx::train::Settings;
use sneppx::{Error, Result, backend};

/// Arguments of `sneppx generate`.
#[derive(Args, Debug)]
pub struct GenerateArguments {
    /// Output folder of a training run
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// The text to continue
    #[arg(long, default_value = "\n", value_name = "TEXT")]
    prompt: String,
    /// How many tokens to add
    #[arg(long, default_value_t = 500)]
    tokens: usize,
    /// Divides the logits: below 1 is safer, above 1 is wilder, 0 always takes the likeliest
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    /// Choose among the K likeliest tokens; 0 is all
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Choose among the likeliest tokens that together have this probability
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Where random numbers come from
    #[arg(long, default_value_t = 1337)]
    seed: u64,
    /// Threads; 0 is all cores this process may use
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// Runs the command.
pub fn run(arguments: &GenerateArguments) -> Result<()> {
    let folder = &arguments.checkpoint;
    let settings = Settings::read(&folder.join("run.toml"))?;
    let config: TransformerConfig = read_json(&folder.join("model.json"))?;
    let tokenizer = open_tokenizer(&folder.join("tokenizer.json"))?;
    let sampling = Sampling {
        temperature: arguments.temperature,
        top_k: (arguments.top_k > 0).then_some(arguments.top_k),
        top_p: arguments.top_p,
        seed: arguments.seed,
    };
    let launch = Launch::detect(arguments.threads, &Environment::of_process())?;
    let device = backend::open(&launch)?;
    device.clone().enter(|| {
        let builder = Builder::new(&device, 0).with_dtype(settings.precision.dtype())?;
        let model = Transformer::new(config, &builder)?;
        load_weights(&model, &device, &folder.join("model.safetensors"))?;
        let prompt = tokenizer.encode(&arguments.prompt)?;
        print(&arguments.prompt)?;
        let mut all = prompt.clone();
        let mut shown = tokenizer.decode(&all)?;
        for token in Generator::new(&model, &prompt, sampling)?.take(arguments.tokens) {
            all.push(token?);
            // A token can be half a character: what is shown is what whole characters added.
            let text = tokenizer.decode(&all)?;
            if let Some(new) = text.strip_prefix(&shown)
                && !new.ends_with('\u{FFFD}')
            {
                print(new)?;
                shown = text;
            }
        }
        print("\n")
    })
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Error::file("standard output", error))
}

fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        let hint = "is this the output folder of `sneppx train`?";
        Error::file(path, format!("{error}; {hint}"))
    })
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    serde_json::from_str(&read_text(path)?).map_err(|error| Error::file(path, error))
}

fn open_tokenizer(path: &Path) -> Result<Box<dyn Tokenizer>> {
    SavedTokenizer::from_json(&read_text(path)?)
        .and_then(|saved| saved.restore())
        .map_err(|error| error.at(path.display().to_string()))
}
