//! One order for any number of ranks.
//!
//! The permutations of epoch 0, 1, 2, ... are laid end to end; global batch `s` is the next run
//! of this stream, cut into micro-batches of one size that are numbered from 0. Nothing is padded
//! and no rank appears in it: ranks only choose which micro-batches they compute. How far a run
//! came is one number, the samples consumed, and any number of ranks can go on from it.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use sneppx_contract::{Error, Result};

use super::dataset::not_empty;
use super::distributed::rank_in_world;
use super::{Draw, Order};

/// What happens at the end of an epoch that the global batch does not divide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastBatch {
    /// The batch is filled up from the next epoch. Every batch is full and every sample is read
    /// once per epoch.
    #[default]
    CarryOver,
    /// The left-over samples are not read in this epoch; in the next, others are left over.
    Drop,
    /// The batch is shorter, and so may be its last micro-batch. For evaluation, where every
    /// sample counts once.
    Short,
}

/// Which micro-batches a rank computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dealing {
    /// A contiguous run; the first ranks have one more where the ranks do not divide them.
    Contiguous,
    /// Micro-batch `i` goes to rank `i mod W`.
    RoundRobin,
}

impl Dealing {
    /// The numbers of the micro-batches that `rank` of `world_size` computes of `count`, rising.
    /// With more ranks than micro-batches some compute none.
    ///
    /// # Errors
    /// A world of 0 ranks, or a rank outside it.
    pub fn share(self, count: usize, rank: usize, world_size: usize) -> Result<Vec<usize>> {
        rank_in_world(rank, world_size)?;
        Ok(match self {
            Dealing::RoundRobin => (rank..count).step_by(world_size).collect(),
            Dealing::Contiguous => {
                let (each, more) = (count / world_size, count % world_size);
                let start = rank * each + rank.min(more);
                (start..start + each + usize::from(rank < more)).collect()
            }
        })
    }
}

/// The samples of one optimizer step, over all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalBatch {
    /// Where its first sample stands in the stream of epochs.
    pub position: u64,
    /// The samples, in order.
    pub draws: Vec<Draw>,
    micro_batch: usize,
}

/// The samples of one forward and backward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatchPlan {
    /// Its number within the global batch, the same whoever computes it.
    pub number: usize,
    /// Where its first sample stands in the stream of epochs; the key of what is random in the
    /// pass, as dropout.
    pub first_sample: u64,
    /// The samples, in order.
    pub draws: Vec<Draw>,
}

impl GlobalBatch {
    /// How many micro-batches there are.
    pub fn micro_batches(&self) -> usize {
        self.draws.len().div_ceil(self.micro_batch)
    }

    /// Where the next global batch begins: the samples consumed after this one.
    pub fn end(&self) -> u64 {
        self.position + self.draws.len() as u64
    }

    /// The micro-batches that `rank` computes.
    ///
    /// # Errors
    /// A world of 0 ranks, or a rank outside it.
    pub fn share(
        &self,
        rank: usize,
        world_size: usize,
        dealing: Dealing,
    ) -> Result<Vec<MicroBatchPlan>> {
        let plan = |number: usize| {
            let start = number * self.micro_batch;
            let end = (start + self.micro_batch).min(self.draws.len());
            MicroBatchPlan {
                number,
                first_sample: self.position + start as u64,
                draws: self.draws[start..end].to_vec(),
            }
        };
        let numbers = dealing.share(self.micro_batches(), rank, world_size)?;
        Ok(numbers.into_iter().map(plan).collect())
    }
}

/// The order of samples over all ranks and epochs.
///
/// ```
/// use sneppx::data::{Dealing, GlobalBatchSampler, LastBatch, Order};
/// let order = Order::Shuffled { seed: 1 };
/// let sampler = GlobalBatchSampler::new(1000, 32, 8, order, LastBatch::CarryOver)?;
/// let first = sampler.batch_at(0)?;
/// assert_eq!((first.micro_batches(), first.end()), (4, 32));
/// let second_half = first.share(1, 2, Dealing::Contiguous)?;
/// assert_eq!(second_half[0].number, 2);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GlobalBatchSampler {
    samples: usize,
    global_batch: usize,
    micro_batch: usize,
    order: Order,
    last: LastBatch,
    /// The permutation that was asked for last: the next batch almost always needs it again.
    latest: Arc<Mutex<Option<(u64, Permutation)>>>,
}

type Permutation = Arc<[usize]>;

impl GlobalBatchSampler {
    /// Global batches of `global_batch` samples in micro-batches of `micro_batch`.
    ///
    /// # Errors
    /// An empty data set, a size of 0, a micro-batch that does not divide the global batch, or a
    /// global batch larger than the data set (unless short batches are allowed).
    pub fn new(
        samples: usize,
        global_batch: usize,
        micro_batch: usize,
        order: Order,
        last: LastBatch,
    ) -> Result<Self> {
        not_empty(samples)?;
        for (name, value) in [("global_batch", global_batch), ("micro_batch", micro_batch)] {
            if value == 0 {
                return Err(Error::invalid(name, 0, "a batch has at least one sample"));
            }
        }
        if !global_batch.is_multiple_of(micro_batch) {
            let reason = format!("micro-batches are of one size and must divide {global_batch}");
            return Err(Error::invalid("micro_batch", micro_batch, reason));
        }
        if global_batch > samples && last != LastBatch::Short {
            let reason = format!("larger than the data set, which has {samples} samples");
            return Err(Error::invalid("global_batch", global_batch, reason));
        }
        let latest = Arc::default();
        Ok(Self { samples, global_batch, micro_batch, order, last, latest })
    }

    /// How many samples the data set has.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Samples in one global batch.
    pub fn global_batch(&self) -> usize {
        self.global_batch
    }

    /// Samples in one micro-batch.
    pub fn micro_batch(&self) -> usize {
        self.micro_batch
    }

    /// The order within epochs.
    pub fn order(&self) -> Order {
        self.order
    }

    /// How many global batches begin in an epoch that is entered at its first sample.
    pub fn batches_per_epoch(&self) -> usize {
        match self.last {
            LastBatch::Drop => self.samples / self.global_batch,
            LastBatch::CarryOver | LastBatch::Short => self.samples.div_ceil(self.global_batch),
        }
    }

    /// The global batch that comes after `consumed` samples.
    ///
    /// Pure: equal numbers give equal batches. Samples that [`LastBatch::Drop`] leaves out count
    /// as consumed, so `consumed / samples` is always the epoch.
    ///
    /// # Errors
    /// A count beyond what 64 bits can go on counting from.
    pub fn batch_at(&self, consumed: u64) -> Result<GlobalBatch> {
        let samples = self.samples as u64;
        let (mut epoch, mut at) = (consumed / samples, (consumed % samples) as usize);
        let mut left = self.samples - at;
        if self.last == LastBatch::Drop && left < self.global_batch {
            (epoch, at, left) = (epoch + 1, 0, self.samples);
        }
        let wanted = match self.last {
            LastBatch::Short => self.global_batch.min(left),
            LastBatch::CarryOver | LastBatch::Drop => self.global_batch,
        };
        let position = epoch.checked_mul(samples).and_then(|start| start.checked_add(at as u64));
        let Some(position) = position.filter(|p| p.checked_add(wanted as u64).is_some()) else {
            let reason = "more samples than 64 bits can count; the saved state is damaged";
            return Err(Error::invalid("samples_consumed", consumed, reason));
        };
        let here = wanted.min(left);
        let mut draws = Vec::with_capacity(wanted);
        self.append(&mut draws, epoch, at..at + here);
        if here < wanted {
            self.append(&mut draws, epoch + 1, 0..wanted - here);
        }
        Ok(GlobalBatch { position, draws, micro_batch: self.micro_batch })
    }

    fn append(&self, draws: &mut Vec<Draw>, epoch: u64, range: Range<usize>) {
        match self.order {
            // Needs no list, however many samples there are.
            Order::Sequential => draws.extend(range.map(|index| Draw { epoch, index })),
            Order::Shuffled { .. } => {
                let order = self.permutation(epoch);
                draws.extend(order[range].iter().map(|&index| Draw { epoch, index }));
            }
        }
    }

    fn permutation(&self, epoch: u64) -> Permutation {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, order)) = &*latest
            && *known == epoch
        {
            return order.clone();
        }
        let order: Permutation = self.order.permutation(self.samples, epoch).into();
        *latest = Some((epoch, order.clone()));
        order
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SHUFFLED: Order = Order::Shuffled { seed: 1 };
    fn sampler(samples: usize, global: usize, micro: usize, last: LastBatch) -> GlobalBatchSampler {
        GlobalBatchSampler::new(samples, global, micro, SHUFFLED, last).unwrap()
    }

    /// What all ranks read between two counts, and the count that was reached.
    fn read(sampler: &GlobalBatchSampler, from: u64, to: u64, world: usize) -> (Vec<Draw>, u64) {
        let (mut draws, mut at) = (Vec::new(), from);
        while at < to {
            let batch = sampler.batch_at(at).unwrap();
            for rank in 0..world {
                for plan in batch.share(rank, world, Dealing::RoundRobin).unwrap() {
                    draws.extend(plan.draws);
                }
            }
            at = batch.end();
        }
        (draws, at)
    }

    #[test]
    fn samp_07_a_run_resumes_in_the_middle_of_an_epoch_at_any_world_size() {
        let sampler = sampler(24, 4, 1, LastBatch::CarryOver);
        for (stop, after) in [(12, 2), (12, 3), (12, 1), (16, 2), (16, 3), (16, 1)] {
            let (mut seen, at) = read(&sampler, 0, stop, 2);
            assert_eq!(at, stop);
            seen.extend(read(&sampler, at, 24, after).0);
            seen.sort_unstable();
            assert!(seen.into_iter().map(|draw| draw.index).eq(0..24), "stop {stop}, {after}");
        }
    }

    #[test]
    fn seed_01_the_order_is_a_function_of_seed_and_count() {
        let sampler = sampler(50, 8, 2, LastBatch::CarryOver);
        let third = sampler.batch_at(16).unwrap();
        sampler.batch_at(400).unwrap();
        assert_eq!(sampler.batch_at(16).unwrap(), third, "reading elsewhere changed the order");
        let new = |seed| {
            let order = Order::Shuffled { seed };
            GlobalBatchSampler::new(50, 8, 2, order, LastBatch::CarryOver).unwrap()
        };
        assert_eq!(new(1).batch_at(16).unwrap(), third);
        assert_ne!(new(2).batch_at(16).unwrap(), third);
    }

    #[test]
    fn the_three_ways_to_end_an_epoch() {
        let lengths = |last, steps| {
            let sampler = sampler(10, 4, 2, last);
            let mut at = 0;
            let step = |_| {
                let batch = sampler.batch_at(at).unwrap();
                at = batch.end();
                let epochs: Vec<u64> = batch.draws.iter().map(|draw| draw.epoch).collect();
                (batch.position, epochs)
            };
            (0..steps).map(step).collect::<Vec<_>>()
        };
        let carried = lengths(LastBatch::CarryOver, 3);
        assert_eq!(carried[2], (8, vec![0, 0, 1, 1]));
        let dropped = lengths(LastBatch::Drop, 3);
        assert_eq!(dropped[2], (10, vec![1; 4]));
        let short = lengths(LastBatch::Short, 4);
        assert_eq!((&short[2], &short[3]), (&(8, vec![0; 2]), &(10, vec![1; 4])));
        assert_eq!(sampler(10, 4, 2, LastBatch::Drop).batches_per_epoch(), 2);
        assert_eq!(sampler(10, 4, 2, LastBatch::Short).batches_per_epoch(), 3);
    }

    #[test]
    fn load_02_a_batch_larger_than_the_data_set_is_refused_with_both_numbers() {
        let error = GlobalBatchSampler::new(3, 8, 1, SHUFFLED, LastBatch::CarryOver).unwrap_err();
        assert!(error.to_string().contains('8') && error.to_string().contains('3'), "{error}");
        assert_eq!(sampler(3, 8, 1, LastBatch::Short).batch_at(0).unwrap().draws.len(), 3);
        let new = |samples, global, micro| {
            let last = LastBatch::CarryOver;
            GlobalBatchSampler::new(samples, global, micro, SHUFFLED, last).unwrap_err().to_string()
        };
        assert!(new(0, 1, 1).contains("empty"));
        assert!(new(9, 0, 1).contains("global_batch = 0"));
        assert!(new(9, 4, 0).contains("micro_batch = 0"));
        let text = new(9, 8, 3);
        assert!(text.contains("micro_batch = 3") && text.contains('8'), "{text}");
    }

    #[test]
    fn size_01_more_than_two_to_the_31_samples_are_planned_without_memory() {
        let samples = (1usize << 31) + 5;
        let last = LastBatch::CarryOver;
        let sampler = GlobalBatchSampler::new(samples, 8, 4, Order::Sequential, last).unwrap();
        let batch = sampler.batch_at((1 << 31) + 1).unwrap();
        let got = batch.draws.iter().map(|draw| (draw.epoch, draw.index));
        let end = (samples - 4..samples).map(|index| (0, index));
        assert!(got.eq(end.chain((0..4).map(|index| (1, index)))));
        assert!(sampler.batch_at(u64::MAX).unwrap_err().to_string().contains("samples_consumed"));
    }

    proptest! {
        #[test]
        fn micro_batches_are_dealt_to_ranks_exactly_once(count in 0usize..60, world in 1usize..9) {
            for dealing in [Dealing::Contiguous, Dealing::RoundRobin] {
                let shares: Vec<_> =
                    (0..world).map(|rank| dealing.share(count, rank, world).unwrap()).collect();
                let longest = shares.iter().map(Vec::len).max().unwrap_or(0);
                prop_assert!(shares.iter().all(|share| share.len() + 1 >= longest));
                let mut all = shares.concat();
                if dealing == Dealing::RoundRobin {
                    all.sort_unstable();
                }
                prop_assert!(all.into_iter().eq(0..count));
                prop_assert!(dealing.share(count, world, world).is_err());
            }
        }

        #[test]
        fn samp_07_every_sample_is_read_once_per_epoch_at_any_world_size(
            samples in 1usize..120, micro in 1usize..5, per_batch in 1usize..5,
            before in 1usize..6, after in 1usize..6, stop in 0u64..200,
        ) {
            let global = micro * per_batch;
            prop_assume!(global <= samples);
            let sampler = sampler(samples, global, micro, LastBatch::CarryOver);
            let epochs = 3 * samples as u64;
            let (mut draws, at) = read(&sampler, 0, stop, before);
            draws.extend(read(&sampler, at, epochs, after).0);
            let mut counts = BTreeMap::new();
            for draw in draws {
                *counts.entry(draw).or_insert(0) += 1;
            }
            prop_assert!(counts.values().all(|&count| count == 1));
            for epoch in 0..3 {
                let seen = counts.keys().filter(|draw| draw.epoch == epoch).count();
                prop_assert_eq!(seen, samples);
            }
        }
    }
}
