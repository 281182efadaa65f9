//! The loop around the step.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use sneppx_contract::{Device, Error, Result};

use super::{
    Evaluation, MetricsFile, Observer, Settings, Source, Start, StepReport, StepSettings, Summary,
    evaluate, measure_product_rate, open_source, resident_peak_bytes, step,
};
use crate::autograd::rules::CrossEntropyOptions;
use crate::checkpoint::{Fingerprint, replace_file, save_weights};
use crate::data::{
    Dataset, GlobalBatchSampler, LastBatch, Order, StepLoader, StepLoaderOptions, TokenDataset,
    Tokenizer,
};
use crate::nn::{Builder, Module, Transformer};
use crate::optim::{AdamW, AdamWOptions, Optimizer, ParamGroup, Schedule};
use crate::tensor::Leaf;

/// A run from settings to summary, with its results in the folder the settings name.
///
/// # Errors
/// Settings, data or a folder that cannot be used; a loss or gradient that is not finite, with the
/// weights before it saved.
pub fn train<D: Device>(
    device: &D,
    settings: &Settings,
    threads: usize,
    started: Instant,
    observers: &mut [&mut dyn Observer],
) -> Result<Summary> {
    settings.validate()?;
    let source = open_source(settings)?;
    let trainer = Trainer::new(device, settings.clone(), source, threads, started)?;
    trainer.prepare_folder()?;
    let mut metrics = MetricsFile::create(&settings.out.join("metrics.jsonl"))?;
    let mut all: Vec<&mut dyn Observer> = vec![&mut metrics];
    all.extend(observers.iter_mut().map(|observer| &mut **observer as &mut dyn Observer));
    trainer.run(&mut all)
}

/// A model, its optimizer and its data.
#[derive(Debug)]
pub struct Trainer<D: Device> {
    settings: Settings,
    device: D,
    model: Transformer<D>,
    leaves: Vec<Arc<Leaf<D>>>,
    optimizer: AdamW<D>,
    learning_rates: Schedule,
    loader: StepLoader<TokenDataset>,
    validation: Option<TokenDataset>,
    loss_floor: Option<f64>,
    vocab_size: usize,
    tokenizer: Option<Box<dyn Tokenizer>>,
    threads: usize,
    started: Instant,
}

impl<D: Device> Trainer<D> {
    /// Everything ready for the first step.
    ///
    /// # Errors
    /// Settings that do not go together with the data; out of memory.
    pub fn new(
        device: &D,
        settings: Settings,
        source: Source,
        threads: usize,
        started: Instant,
    ) -> Result<Self> {
        let builder = Builder::new(device, settings.seed).with_dtype(settings.precision.dtype())?;
        let model = Transformer::new(settings.model(source.vocab_size), &builder)?;
        model.set_recompute(settings.recompute);
        let leaves = model.parameters();
        let options = AdamWOptions {
            learning_rate: settings.lr,
            beta1: settings.beta1,
            beta2: settings.beta2,
            epsilon: settings.epsilon,
            weight_decay: settings.weight_decay,
        };
        let groups = ParamGroup::decay_matrices(leaves.clone(), settings.weight_decay);
        let order = Order::Shuffled { seed: settings.seed };
        let sampler = GlobalBatchSampler::new(
            source.training.len(),
            settings.global_batch,
            settings.micro_batch,
            order,
            LastBatch::CarryOver,
        )?;
        let loader = StepLoader::new(source.training, sampler, StepLoaderOptions::default())?;
        Ok(Trainer {
            learning_rates: settings.learning_rates()?,
            optimizer: AdamW::new(groups, options)?,
            device: device.clone(),
            model,
            leaves,
            loader,
            validation: source.validation,
            loss_floor: source.loss_floor,
            vocab_size: source.vocab_size,
            tokenizer: source.tokenizer,
            settings,
            threads,
            started,
        })
    }

    /// The model as it is.
    pub fn model(&self) -> &Transformer<D> {
        &self.model
    }

    /// Trains to the last step, reporting to `observers` on the way.
    ///
    /// # Errors
    /// As [`train`].
    pub fn run(mut self, observers: &mut [&mut dyn Observer]) -> Result<Summary> {
        let rate = self.product_rate()?;
        let start = Start {
            settings: &self.settings,
            device: self.device.name(),
            parameters: self.model.parameter_count(),
            vocab_size: self.vocab_size,
            samples: self.loader.dataset().len(),
            loss_floor: self.loss_floor,
            product_rate: rate,
            first_step: 0,
        };
        observers.iter_mut().try_for_each(|observer| observer.start(&start))?;
        self.device.reset_peak();
        let mut log = Log::default();
        for number in 0..self.settings.steps {
            let report = match self.one_step(number, rate) {
                Ok(report) => report,
                Err(error) => {
                    // The parameters are those before the failed step.
                    self.save()?;
                    return Err(error);
                }
            };
            if number == 0 {
                log.first_step_s = self.started.elapsed().as_secs_f64();
            }
            log.steps.push(report);
            observers.iter_mut().try_for_each(|observer| observer.step(&report))?;
            if self.is_evaluated_after(number + 1) {
                let evaluation = self.evaluate(number + 1)?;
                if let Some(evaluation) = evaluation {
                    log.val_loss = Some(evaluation.loss);
                    observers
                        .iter_mut()
                        .try_for_each(|observer| observer.evaluation(&evaluation))?;
                }
                self.save()?;
            }
        }
        let summary = self.summary(&log, rate)?;
        observers.iter_mut().try_for_each(|observer| observer.finish(&summary))?;
        Ok(summary)
    }

    /// Makes the folder and puts in what makes a run repeatable and its weights usable.
    fn prepare_folder(&self) -> Result<()> {
        let out: &Path = &self.settings.out;
        fs::create_dir_all(out)
            .map_err(|error| Error::file(out, format!("cannot be made a folder: {error}")))?;
        replace_file(&out.join("run.toml"), self.settings.to_toml()?.as_bytes())?;
        let config = serde_json::to_string_pretty(self.model.config())
            .map_err(|error| Error::Internal(format!("model configuration: {error}")))?;
        replace_file(&out.join("model.json"), config.as_bytes())?;
        if let Some(tokenizer) = &self.tokenizer {
            let json = tokenizer.saved()?.to_json()?;
            replace_file(&out.join("tokenizer.json"), json.as_bytes())?;
        }
        Ok(())
    }

    fn one_step(&mut self, number: u64, rate: f64) -> Result<StepReport> {
        let before = Instant::now();
        let batch = self.loader.next_step()?;
        let learning_rate = self.learning_rates.learning_rate(number);
        let settings = StepSettings {
            number,
            seed: self.settings.seed,
            learning_rate,
            clip: (self.settings.clip > 0.0).then_some(self.settings.clip),
            loss: CrossEntropyOptions::default(),
        };
        let (model, leaves) = (&self.model, &self.leaves);
        let sums = step(model, leaves, &batch.micro_batches, &mut self.optimizer, &settings)?;
        self.device.synchronize()?;
        let seconds = before.elapsed().as_secs_f64();
        let memory = self.device.memory();
        Ok(StepReport {
            step: number + 1,
            loss: sums.loss,
            learning_rate,
            grad_norm: sums.grad_norm,
            tokens: sums.tokens,
            seconds,
            product_share: self.flops(sums.tokens) / rate / seconds,
            live_bytes: memory.live_bytes,
            peak_bytes: memory.peak_bytes,
        })
    }

    fn is_evaluated_after(&self, steps: u64) -> bool {
        let every = self.settings.eval_every;
        steps == self.settings.steps || (every > 0 && steps.is_multiple_of(every))
    }

    fn evaluate(&self, step: u64) -> Result<Option<Evaluation>> {
        let Some(data) = &self.validation else { return Ok(None) };
        let Settings { global_batch, eval_batches, .. } = self.settings;
        let (loss, tokens) = evaluate(&self.model, data, global_batch, eval_batches)?;
        Ok(Some(Evaluation { step, loss, tokens }))
    }

    fn save(&self) -> Result<()> {
        save_weights(&self.model, &self.settings.out.join("model.safetensors"))
    }

    /// Operations of the matrix products for `tokens` tokens.
    fn flops(&self, tokens: u64) -> f64 {
        tokens as f64 * self.model.config().flops_per_token(self.settings.seq_len)
    }

    fn product_rate(&self) -> Result<f64> {
        let rows = (self.settings.micro_batch * self.settings.seq_len).min(2048);
        let shape = [rows, self.settings.dim, self.settings.ffn_dim];
        measure_product_rate(&self.device, self.settings.precision.dtype(), shape)
    }

    fn summary(&self, log: &Log, rate: f64) -> Result<Summary> {
        let tokens: u64 = log.steps.iter().map(|report| report.tokens).sum();
        let seconds: f64 = log.steps.iter().map(|report| report.seconds).sum();
        let median = log.median_seconds();
        let per_step = self.flops(tokens) / log.steps.len().max(1) as f64;
        let mut fingerprint = Fingerprint::default();
        fingerprint.add_leaves(&self.leaves)?;
        // In path order like the parameters, which the order of the groups is not.
        let states = self.optimizer.state();
        let state_of = |leaf: &Arc<Leaf<D>>| states.iter().find(|state| state.name == leaf.name());
        for state in self.leaves.iter().filter_map(state_of) {
            state.tensors.iter().try_for_each(|(_, tensor)| fingerprint.add(tensor))?;
        }
        Ok(Summary {
            preset: self.settings.preset.clone(),
            device: self.device.name(),
            communicator: "solo".into(),
            world_size: 1,
            strategy: "none".into(),
            precision: self.settings.precision.dtype().name().into(),
            threads: self.threads,
            params: self.model.parameter_count(),
            steps: self.settings.steps,
            tokens,
            train_loss: log.recent_loss(),
            val_loss: log.val_loss,
            loss_floor: self.loss_floor,
            step_ms_median: median * 1e3,
            tokens_per_second: tokens as f64 / seconds,
            gflops: per_step / median / 1e9,
            product_share: per_step / rate / median,
            peak_bytes: self.device.memory().peak_bytes,
            resident_peak_bytes: resident_peak_bytes(),
            start_to_first_step_s: log.first_step_s,
            state_sha256: fingerprint.hex(),
        })
    }
}

/// What a run remembers of its steps.
#[derive(Debug, Default)]
struct Log {
    steps: Vec<StepReport>,
    val_loss: Option<f64>,
    first_step_s: f64,
}

impl Log {
    fn median_seconds(&self) -> f64 {
        let mut seconds: Vec<f64> = self.steps.iter().map(|report| report.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn recent_loss(&self) -> Option<f64> {
        let recent = &self.steps[self.steps.len().saturating_sub(20)..];
        let sum: f64 = recent.iter().map(|report| report.loss).sum();
        (!recent.is_empty()).then(|| sum / recent.len() as f64)
    }
}
