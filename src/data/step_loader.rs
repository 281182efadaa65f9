//! The micro-batches of one rank, optimizer step by optimizer step.

use std::sync::Arc;

use sneppx_contract::{Error, Result};

use super::distributed::rank_in_world;
use super::loader::read_batch;
use super::prefetch::Prefetch;
use super::{Collate, Dataset, Dealing, GlobalBatchSampler, LoaderState};

/// How a [`StepLoader`] shares and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLoaderOptions {
    /// This rank.
    pub rank: usize,
    /// How many ranks share a global batch.
    pub world_size: usize,
    /// Which micro-batches go to which rank.
    pub dealing: Dealing,
    /// Threads that read ahead; with 0, steps are read when they are asked for.
    pub workers: usize,
    /// How many steps may be ready or in work ahead of the one handed out last.
    pub prefetch: usize,
}

/// A world of one rank, one thread, two steps ahead.
impl Default for StepLoaderOptions {
    fn default() -> Self {
        let dealing = Dealing::Contiguous;
        StepLoaderOptions { rank: 0, world_size: 1, dealing, workers: 1, prefetch: 2 }
    }
}

/// What one rank reads for one optimizer step.
#[derive(Clone, Debug)]
pub struct Step<B> {
    /// The micro-batches of this rank, by rising number; none where there are more ranks than
    /// micro-batches.
    pub micro_batches: Vec<MicroBatch<B>>,
    /// How many micro-batches the step has over all ranks.
    pub total_micro_batches: usize,
    /// How many samples the step has over all ranks.
    pub samples: usize,
    /// Samples consumed by all steps up to and with this one.
    pub samples_consumed: u64,
}

/// What one forward and backward pass reads.
#[derive(Clone, Debug)]
pub struct MicroBatch<B> {
    /// Its number within the step, the same whoever computes it.
    pub number: usize,
    /// Where its first sample stands in the stream of epochs; the key of what is random in the
    /// pass, as dropout.
    pub first_sample: u64,
    /// How many samples it has.
    pub samples: usize,
    /// The samples.
    pub batch: B,
}

/// Reads the share of one rank of every global batch, ahead of time and in order.
///
/// ```
/// use sneppx::data::{GlobalBatchSampler, LastBatch, Order, StepLoader, StepLoaderOptions};
/// use sneppx::data::{Dataset, TokenDataset, TokenStore};
/// let store = TokenStore::in_memory("count", (0..100).collect(), 100)?;
/// let dataset = TokenDataset::new(store, 9)?;
/// let order = Order::Shuffled { seed: 1 };
/// let sampler = GlobalBatchSampler::new(dataset.len(), 4, 2, order, LastBatch::CarryOver)?;
/// let mut loader = StepLoader::new(dataset, sampler, StepLoaderOptions::default())?;
/// let step = loader.next_step()?;
/// assert_eq!(step.micro_batches.len(), 2);
/// assert_eq!(&step.micro_batches[0].batch.tokens.shape()[..], [2, 9]);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Debug)]
pub struct StepLoader<D: Dataset> {
    dataset: Arc<D>,
    sampler: GlobalBatchSampler,
    options: StepLoaderOptions,
    state: LoaderState,
    running: Option<Prefetch<u64, Step<BatchOf<D>>>>,
}

type BatchOf<D> = <<D as Dataset>::Item as Collate>::Batch;

impl<D: Dataset + 'static> StepLoader<D> {
    /// A loader before the first step.
    ///
    /// # Errors
    /// A sampler made for another number of samples, a world of 0 ranks, or a rank outside it.
    pub fn new(
        dataset: D,
        sampler: GlobalBatchSampler,
        options: StepLoaderOptions,
    ) -> Result<Self> {
        rank_in_world(options.rank, options.world_size)?;
        if sampler.samples() != dataset.len() {
            let reason = format!("the data set has {}", dataset.len());
            return Err(Error::invalid("samples of the sampler", sampler.samples(), reason));
        }
        let seed = sampler.order().seed();
        let state = LoaderState { samples_consumed: 0, samples: dataset.len(), seed };
        Ok(StepLoader { dataset: Arc::new(dataset), sampler, options, state, running: None })
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The order of samples.
    pub fn sampler(&self) -> &GlobalBatchSampler {
        &self.sampler
    }

    /// How far this run came.
    pub fn state(&self) -> LoaderState {
        self.state
    }

    /// Goes on where another run stopped, at this or another number of ranks.
    ///
    /// # Errors
    /// A state of a data set of another size, or of another seed; the loader stays as it was.
    pub fn load_state(&mut self, state: LoaderState) -> Result<()> {
        state.check_against(&self.state)?;
        self.running = None;
        self.state = state;
        Ok(())
    }

    /// The share of this rank of the next global batch. There always is a next one: epochs follow
    /// one another.
    ///
    /// # Errors
    /// A sample that cannot be read, named by its index, at the step that needs it; asking again
    /// tries that step again.
    pub fn next_step(&mut self) -> Result<Step<BatchOf<D>>> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start()?,
        };
        let Some(step) = running.next() else {
            return Err(Error::Internal("the stream of global batches ended".into()));
        };
        let step = step?;
        self.state.samples_consumed = step.samples_consumed;
        self.running = Some(running);
        Ok(step)
    }

    fn start(&self) -> Result<Prefetch<u64, Step<BatchOf<D>>>> {
        let sampler = self.sampler.clone();
        // A count that cannot be gone on from stays: its job gives the error, whenever it is run.
        let next = move |&at: &u64| Some(sampler.batch_at(at).map_or(at, |batch| batch.end()));
        let jobs = std::iter::successors(Some(self.state.samples_consumed), next);
        let (sampler, dataset, options) =
            (self.sampler.clone(), self.dataset.clone(), self.options);
        let work = move |consumed| read_step(&*dataset, &sampler, options, consumed);
        Prefetch::start(jobs, work, options.workers, options.prefetch)
    }
}

fn read_step<D: Dataset>(
    dataset: &D,
    sampler: &GlobalBatchSampler,
    options: StepLoaderOptions,
    consumed: u64,
) -> Result<Step<BatchOf<D>>> {
    let global = sampler.batch_at(consumed)?;
    let mut micro_batches = Vec::new();
    for plan in global.share(options.rank, options.world_size, options.dealing)? {
        micro_batches.push(MicroBatch {
            number: plan.number,
            first_sample: plan.first_sample,
            samples: plan.draws.len(),
            batch: read_batch(dataset, &plan.draws)?,
        });
    }
    Ok(Step {
        micro_batches,
        total_micro_batches: global.micro_batches(),
        samples: global.draws.len(),
        samples_consumed: global.end(),
    })
}
