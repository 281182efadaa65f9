//! The whole training loop by hand: text in, a model that continues it out.
//!
//! `cargo run --release --example train_text -- FILE`; without a file it reads its own source.

use sneppx::autograd::no_grad;
use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::cpu::Cpu;
use sneppx::data::{
    CharTokenizer, DataLoader, LoaderOptions, RandomSampler, TokenDataset, TokenStore, Tokenizer,
};
use sneppx::nn::{Builder, Generator, Module, Pass, Sampling, Transformer, TransformerConfig};
use sneppx::optim::{
    AdamW, AdamWOptions, NormType, Optimizer, ParamGroup, Schedule, clip_grad_norm,
};
use sneppx::{Device, Result, Tensor};

const SEQ_LEN: usize = 64;
const BATCH: usize = 16;
const STEPS: u64 = 300;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| file!().to_owned());
    let text = sneppx::data::load_text(&[path])?;
    // The only line that names a backend.
    let device = Cpu::new(Default::default())?;
    train(&device, &text)
}

fn train<D: Device>(device: &D, text: &str) -> Result<()> {
    let tokenizer = CharTokenizer::from_text(text)?;
    let tokens = tokenizer.encode(text)?;
    let store = TokenStore::in_memory("text", tokens.clone(), tokenizer.vocab_size())?;
    let dataset = TokenDataset::with_stride(store, SEQ_LEN, 1)?;
    let sampler = RandomSampler::new(sneppx::data::Dataset::len(&dataset), 1)?;
    let options = LoaderOptions { batch_size: BATCH, ..LoaderOptions::default() };
    let mut loader = DataLoader::new(dataset, sampler, options)?;

    let config = TransformerConfig::gpt2(tokenizer.vocab_size(), 96, 4, 3, 384, SEQ_LEN);
    let model = Transformer::new(config, &Builder::new(device, 1))?;
    let groups = ParamGroup::decay_matrices(model.parameters(), 0.1);
    let mut optimizer = AdamW::new(groups, AdamWOptions::default())?;
    let schedule = Schedule::cosine(2e-3, 2e-4, 30, STEPS)?;

    for step in 0..STEPS {
        let batch = match loader.next_batch()? {
            Some(batch) => batch,
            None => {
                loader.set_epoch(loader.epoch() + 1);
                continue;
            }
        };
        let inputs = Tensor::from_host(device, batch.tokens.values(), batch.tokens.shape())?;
        let targets = Tensor::from_host(device, batch.targets.values(), batch.targets.shape())?;
        let pass = Pass::training(1, step, step * BATCH as u64);
        let losses = model.losses(&inputs, &targets, CrossEntropyOptions::default(), &pass)?;
        let loss = losses.mean_all()?;

        optimizer.zero_grad();
        loss.backward()?;
        clip_grad_norm(&model.parameters(), 1.0, NormType::Two)?;
        optimizer.set_learning_rate(schedule.learning_rate(step))?;
        optimizer.step()?;
        if step % 50 == 0 || step + 1 == STEPS {
            println!("step {step}: loss {:.4}", loss.item()?);
        }
    }

    let sampling = Sampling { temperature: 0.7, seed: 1, ..Sampling::default() };
    let generator = Generator::new(&model, &tokens[..SEQ_LEN.min(tokens.len())], sampling)?;
    let continuation = no_grad(|| generator.take(200).collect::<Result<Vec<_>>>())?;
    println!("---\n{}", tokenizer.decode(&continuation)?);
    Ok(())
}
