//! Batches of one rank, epoch by epoch.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sneppx_contract::{Error, Result};

use super::prefetch::{Prefetch, without_panic};
use super::{Collate, Dataset, Draw, Sampler};

/// How a [`DataLoader`] makes batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples in one batch of this rank.
    pub batch_size: usize,
    /// Whether the last, incomplete batch of an epoch is left out.
    pub drop_last: bool,
    /// Threads that read ahead; with 0, batches are read when they are asked for.
    pub workers: usize,
    /// How many batches may be ready or in work ahead of the one handed out last.
    pub prefetch: usize,
}

/// One thread, four batches ahead, nothing dropped, one sample per batch.
impl Default for LoaderOptions {
    fn default() -> Self {
        LoaderOptions { batch_size: 1, drop_last: false, workers: 1, prefetch: 4 }
    }
}

/// How far a run came: what a checkpoint keeps of its data.
///
/// It knows no ranks: it can be loaded at any world size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// Samples that all ranks together have consumed, over all epochs: `samples` per whole epoch.
    pub samples_consumed: u64,
    /// Samples in the data set.
    pub samples: usize,
    /// The seed of the order, where there is one.
    pub seed: Option<u64>,
}

impl LoaderState {
    /// The epoch that is being read.
    pub fn epoch(&self) -> u64 {
        self.samples_consumed / self.samples.max(1) as u64
    }

    /// Samples consumed of that epoch.
    pub fn consumed_in_epoch(&self) -> usize {
        (self.samples_consumed % self.samples.max(1) as u64) as usize
    }

    /// Refuses a state of another data set or order; both values are named.
    pub(crate) fn check_against(&self, own: &LoaderState) -> Result<()> {
        if self.samples != own.samples {
            let reason =
                format!("the data set has {} samples; resume on the same data", own.samples);
            return Err(Error::invalid("samples in the saved state", self.samples, reason));
        }
        if self.seed != own.seed {
            let reason = format!("this run has seed {:?}; resume with the same seed", own.seed);
            return Err(Error::invalid(
                "seed in the saved state",
                format!("{:?}", self.seed),
                reason,
            ));
        }
        Ok(())
    }
}

/// Hands out the batches of one rank in the order of its sampler, reading ahead on threads.
///
/// [`next_batch`](DataLoader::next_batch) gives the batches of an epoch, then `None` once, then
/// those of the next. What was handed out counts as consumed; what was only read ahead does not,
/// so a run that is resumed from [`state`](DataLoader::state) goes on with the next batch.
///
/// ```
/// use sneppx::data::{DataLoader, HostTensor, LoaderOptions, RandomSampler, TensorDataset};
/// let dataset = TensorDataset::new(vec![HostTensor::vector(&[0f32; 10])?])?;
/// let options = LoaderOptions { batch_size: 4, ..LoaderOptions::default() };
/// let mut loader = DataLoader::new(dataset, RandomSampler::new(10, 42)?, options)?;
/// for batch in loader.epoch_batches() {
///     let [features] = &batch?[..] else { unreachable!("one tensor per sample") };
///     assert!(features.shape()[0] <= 4);
/// }
/// assert_eq!((loader.len(), loader.epoch()), (3, 1));
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Debug)]
pub struct DataLoader<D: Dataset, S> {
    dataset: Arc<D>,
    sampler: S,
    options: LoaderOptions,
    state: LoaderState,
    /// The epoch that is being read, and its reader.
    running: Option<(u64, Running<D>)>,
}

type BatchOf<D> = <<D as Dataset>::Item as Collate>::Batch;
type Running<D> = Prefetch<Vec<Draw>, (usize, BatchOf<D>)>;

impl<D: Dataset + 'static, S: Sampler> DataLoader<D, S> {
    /// A loader at the beginning of epoch 0.
    ///
    /// # Errors
    /// An empty data set, a batch size of 0, or a sampler made for another number of samples.
    pub fn new(dataset: D, sampler: S, options: LoaderOptions) -> Result<Self> {
        super::dataset::not_empty(dataset.len())?;
        if options.batch_size == 0 {
            return Err(Error::invalid("batch_size", 0, "a batch has at least one sample"));
        }
        if sampler.samples() != dataset.len() {
            let reason = format!("the data set has {}", dataset.len());
            return Err(Error::invalid("samples of the sampler", sampler.samples(), reason));
        }
        let (samples, seed) = (dataset.len(), sampler.seed());
        let state = LoaderState { samples_consumed: 0, samples, seed };
        Ok(DataLoader { dataset: Arc::new(dataset), sampler, options, state, running: None })
    }

    /// Batches in a whole epoch of this rank.
    pub fn len(&self) -> usize {
        batches(self.sampler.len(), &self.options)
    }

    /// Whether an epoch has no batch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The epoch that is being read.
    pub fn epoch(&self) -> u64 {
        self.running.as_ref().map_or(self.state.epoch(), |(epoch, _)| *epoch)
    }

    /// Starts `epoch` at its first batch, whatever was read before.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.running = None;
        self.state.samples_consumed = epoch.saturating_mul(self.state.samples as u64);
    }

    /// How far this run came. After the last batch of an epoch this is the beginning of the next.
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

    /// The next batch of the epoch; `None` at its end, after which the next epoch begins.
    ///
    /// # Errors
    /// A sample that cannot be read, named by its index, where its batch would have come; asking
    /// again tries that batch again. Or an epoch without a single batch, which would be an endless
    /// loop for whoever counts steps.
    pub fn next_batch(&mut self) -> Result<Option<BatchOf<D>>> {
        if self.is_empty() {
            let reason = format!(
                "this rank has {} of {} samples and incomplete batches are dropped, so an epoch \
                 has no batch; take a smaller batch or keep the last",
                self.sampler.len(),
                self.state.samples
            );
            return Err(Error::invalid("batch_size", self.options.batch_size, reason));
        }
        let (epoch, mut running) = match self.running.take() {
            Some(running) => running,
            None => (self.state.epoch(), self.start()?),
        };
        let epoch_end = epoch.saturating_add(1).saturating_mul(self.state.samples as u64);
        match running.next() {
            Some(result) => {
                let (read, batch) = result?;
                // Every other rank reads as many at this moment; padding does not count.
                let all_ranks = (read * self.sampler.world_size()) as u64;
                let consumed = self.state.samples_consumed.saturating_add(all_ranks);
                self.state.samples_consumed = consumed.min(epoch_end);
                self.running = Some((epoch, running));
                Ok(Some(batch))
            }
            None => {
                self.state.samples_consumed = epoch_end;
                Ok(None)
            }
        }
    }

    /// The batches that are left of the epoch. A second call, after the end, gives the next epoch.
    pub fn epoch_batches(&mut self) -> Batches<'_, D, S> {
        Batches { loader: self, ended: false }
    }

    fn start(&self) -> Result<Running<D>> {
        let epoch = self.state.epoch();
        let order = self.sampler.order_from(epoch, self.state.consumed_in_epoch());
        let (count, size) = (batches(order.len(), &self.options), self.options.batch_size);
        let jobs = (0..count).map(move |batch| {
            let end = ((batch + 1) * size).min(order.len());
            order[batch * size..end].iter().map(|&index| Draw { epoch, index }).collect()
        });
        let dataset = self.dataset.clone();
        let work = move |draws: Vec<Draw>| Ok((draws.len(), read_batch(&*dataset, &draws)?));
        Prefetch::start(jobs, work, self.options.workers, self.options.prefetch)
    }
}

/// The batches of one epoch; ends after an error.
#[derive(Debug)]
pub struct Batches<'a, D: Dataset, S> {
    loader: &'a mut DataLoader<D, S>,
    ended: bool,
}

impl<D: Dataset + 'static, S: Sampler> Batches<'_, D, S> {
    /// How far the run came.
    pub fn state(&self) -> LoaderState {
        self.loader.state()
    }
}

impl<D: Dataset + 'static, S: Sampler> Iterator for Batches<'_, D, S> {
    type Item = Result<BatchOf<D>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.loader.next_batch().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Reads one batch; a panic in the data set becomes an error that names the samples.
pub(crate) fn read_batch<D: Dataset + ?Sized>(dataset: &D, draws: &[Draw]) -> Result<BatchOf<D>> {
    without_panic(|| dataset.batch(draws)).map_err(|error| {
        let indices: Vec<String> = draws.iter().map(|draw| draw.index.to_string()).collect();
        error.at(format!("batch of samples [{}]", indices.join(", ")))
    })
}

fn batches(samples: usize, options: &LoaderOptions) -> usize {
    match options.drop_last {
        true => samples / options.batch_size,
        false => samples.div_ceil(options.batch_size),
    }
}
