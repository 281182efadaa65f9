//! PyTorch's way to share an epoch among ranks: interleaved, with one length for all.
//!
//! With `W` ranks, rank `r` reads places `r, r + W, r + 2 W, ...` of the epoch's order. Where `W`
//! does not divide the number of samples, the order is lengthened from its own beginning
//! ([`Tail::Pad`]), as often as needed, or cut ([`Tail::Drop`]).

use sneppx_contract::{Error, Result};

use super::dataset::not_empty;
use super::{Order, Sampler};

/// What happens to the samples that are left when the ranks do not divide the data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The first samples of the epoch's order are read once more, so that every sample is read.
    Pad,
    /// They are not read in this epoch.
    Drop,
}

/// The samples of one rank, by the rule of PyTorch's sampler of the same name; only the
/// permutation is another one, because seed and epoch do not alias here (see [`Order`]).
///
/// ```
/// use sneppx::data::{DistributedSampler, Order, Sampler, Tail};
/// let sampler = DistributedSampler::new(10, 3, 4, Order::Sequential, Tail::Pad)?;
/// assert_eq!(sampler.order(0), [3, 7, 1]);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributedSampler {
    samples: usize,
    rank: usize,
    world_size: usize,
    order: Order,
    tail: Tail,
    epoch: u64,
}

impl DistributedSampler {
    /// The share of `rank` among `world_size` ranks.
    ///
    /// # Errors
    /// An empty data set, a world of 0 ranks, or a rank outside it.
    pub fn new(
        samples: usize,
        rank: usize,
        world_size: usize,
        order: Order,
        tail: Tail,
    ) -> Result<Self> {
        not_empty(samples)?;
        rank_in_world(rank, world_size)?;
        Ok(DistributedSampler { samples, rank, world_size, order, tail, epoch: 0 })
    }

    /// Chooses the epoch for [`indices`](DistributedSampler::indices). A
    /// [`DataLoader`](super::DataLoader) counts epochs itself and needs no such call.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// What this rank reads in the epoch that was set last, 0 at first: the same list until
    /// another epoch is set.
    pub fn indices(&self) -> Vec<usize> {
        self.order(self.epoch)
    }

    /// The seed that all ranks were given.
    ///
    /// # Errors
    /// No ranks, or two that were given different seeds: both are named. Such ranks would read
    /// some samples twice and others never.
    pub fn common_seed(seeds_by_rank: &[u64]) -> Result<u64> {
        let Some(&first) = seeds_by_rank.first() else {
            return Err(Error::invalid("world_size", 0, "there is at least one rank"));
        };
        match seeds_by_rank.iter().position(|&seed| seed != first) {
            None => Ok(first),
            Some(odd) => Err(Error::invalid(
                "seed",
                format!("{first} on rank 0 and {} on rank {odd}", seeds_by_rank[odd]),
                "ranks that share an epoch need one seed; give all the same",
            )),
        }
    }
}

impl Sampler for DistributedSampler {
    fn samples(&self) -> usize {
        self.samples
    }

    fn len(&self) -> usize {
        match self.tail {
            Tail::Pad => self.samples.div_ceil(self.world_size),
            Tail::Drop => self.samples / self.world_size,
        }
    }

    fn order_from(&self, epoch: u64, consumed: usize) -> Vec<usize> {
        let left = self.samples.saturating_sub(consumed);
        let share = match self.tail {
            Tail::Pad => left.div_ceil(self.world_size),
            Tail::Drop => left / self.world_size,
        };
        let order = self.order.permutation(self.samples, epoch);
        let place = |turn| (consumed + turn * self.world_size + self.rank) % self.samples;
        (0..share).map(|turn| order[place(turn)]).collect()
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn seed(&self) -> Option<u64> {
        self.order.seed()
    }
}

/// Refuses ranks that cannot exist.
pub(crate) fn rank_in_world(rank: usize, world_size: usize) -> Result<()> {
    if world_size == 0 {
        return Err(Error::invalid("world_size", 0, "there is at least one rank"));
    }
    if rank >= world_size {
        let reason = format!("ranks of a world of {world_size} are 0..{world_size}");
        return Err(Error::invalid("rank", rank, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ranks(samples: usize, world_size: usize, order: Order, tail: Tail) -> Vec<Vec<usize>> {
        let rank = |rank| {
            let sampler = DistributedSampler::new(samples, rank, world_size, order, tail).unwrap();
            let list = sampler.order(0);
            assert_eq!(list.len(), sampler.len());
            list
        };
        (0..world_size).map(rank).collect()
    }

    #[test]
    fn samp_01_padding_and_drop_last_follow_the_interleaved_layout() {
        let pad = |samples| ranks(samples, 4, Order::Sequential, Tail::Pad);
        let drop = |samples| ranks(samples, 4, Order::Sequential, Tail::Drop);
        assert_eq!(pad(10), [vec![0, 4, 8], vec![1, 5, 9], vec![2, 6, 0], vec![3, 7, 1]]);
        assert_eq!(drop(10), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(pad(13), [[0, 4, 8, 12], [1, 5, 9, 0], [2, 6, 10, 1], [3, 7, 11, 2]]);
        assert_eq!(drop(11), drop(10));
    }

    #[test]
    fn samp_03_fewer_samples_than_ranks() {
        let three = ranks(3, 8, Order::Sequential, Tail::Pad);
        assert_eq!(three, (0..8).map(|rank| vec![rank % 3]).collect::<Vec<_>>());
        assert_eq!(ranks(1, 5, Order::Sequential, Tail::Pad), vec![vec![0]; 5]);
        assert_eq!(ranks(3, 8, Order::Sequential, Tail::Drop), vec![Vec::<usize>::new(); 8]);
        let error = DistributedSampler::new(0, 0, 2, Order::Sequential, Tail::Pad).unwrap_err();
        assert!(error.to_string().contains("empty"), "{error}");
    }

    #[test]
    fn samp_04_the_epoch_changes_the_order_and_is_stable_until_set_again() {
        let shuffled = Order::Shuffled { seed: 7 };
        let mut one = DistributedSampler::new(22, 0, 1, shuffled, Tail::Pad).unwrap();
        let first = one.indices();
        assert_eq!(one.indices(), first, "two passes without set_epoch are equal");
        one.set_epoch(1);
        let second = one.indices();
        assert_ne!(first, second);
        one.set_epoch(2);
        assert!(one.indices() != first && one.indices() != second);
        one.set_epoch(1);
        assert_eq!(one.indices(), second);
        for (epoch, want) in [(0, first), (1, second)] {
            let half = |rank| {
                let mut two = DistributedSampler::new(22, rank, 2, shuffled, Tail::Pad).unwrap();
                two.set_epoch(epoch);
                two.indices()
            };
            let woven: Vec<_> =
                half(0).into_iter().zip(half(1)).flat_map(|(a, b)| [a, b]).collect();
            assert_eq!(woven, want);
        }
    }

    #[test]
    fn samp_05_ranks_share_one_permutation_and_foreign_seeds_are_named() {
        // There is no global generator to seed differently; the lists depend on the given seed.
        let lists = ranks(12, 4, Order::Shuffled { seed: 5 }, Tail::Pad);
        let seen: BTreeSet<_> = lists.concat().into_iter().collect();
        assert_eq!(seen.len(), 12, "{lists:?}");
        assert_eq!(DistributedSampler::common_seed(&[9, 9, 9]).unwrap(), 9);
        let error = DistributedSampler::common_seed(&[100, 101, 102, 103]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("100") && text.contains("101 on rank 1"), "{text}");
    }

    #[test]
    fn ranks_outside_the_world_are_refused() {
        let new = |rank, world| {
            DistributedSampler::new(5, rank, world, Order::Sequential, Tail::Pad).map(|_| ())
        };
        assert!(new(0, 0).unwrap_err().to_string().contains("world_size = 0"));
        let text = new(4, 4).unwrap_err().to_string();
        assert!(text.contains("rank = 4") && text.contains("0..4"), "{text}");
    }

    proptest! {
        #[test]
        fn samp_01_all_ranks_are_equally_long_and_cover_the_data(
            samples in 1usize..200, world_size in 1usize..12, seed: u64,
        ) {
            let order = Order::Shuffled { seed };
            let padded = ranks(samples, world_size, order, Tail::Pad);
            let share = samples.div_ceil(world_size);
            prop_assert!(padded.iter().all(|list| list.len() == share));
            let seen: BTreeSet<_> = padded.concat().into_iter().collect();
            prop_assert!(seen.into_iter().eq(0..samples));
            let dropped = ranks(samples, world_size, order, Tail::Drop);
            prop_assert!(dropped.iter().all(|list| list.len() == samples / world_size));
            let seen: BTreeSet<_> = dropped.concat().into_iter().collect();
            prop_assert_eq!(seen.len(), samples - samples % world_size);
        }

        #[test]
        fn samp_07_any_world_size_reads_the_rest_of_an_epoch_exactly_once(
            rounds in 0usize..20, before in 1usize..8, after in 1usize..8, more in 1usize..40,
            seed: u64,
        ) {
            let consumed = rounds * before;
            let samples = consumed + more;
            let read = |world_size: usize, consumed: usize, turns: usize| -> Vec<usize> {
                let rank = |rank| {
                    let order = Order::Shuffled { seed };
                    DistributedSampler::new(samples, rank, world_size, order, Tail::Pad)
                        .unwrap()
                        .order_from(3, consumed)
                };
                (0..world_size).flat_map(|r| rank(r).into_iter().take(turns)).collect()
            };
            let mut seen = read(before, 0, rounds);
            seen.extend(read(after, consumed, usize::MAX));
            let padding = (after - more % after) % after;
            prop_assert_eq!(seen.len(), consumed + more + padding);
            let distinct: BTreeSet<_> = seen.into_iter().collect();
            prop_assert_eq!(distinct.len(), samples);
        }

        #[test]
        fn samp_07_resuming_at_the_same_world_size_changes_nothing(
            samples in 1usize..100, world_size in 1usize..8, turns in 0usize..10, seed: u64,
        ) {
            let order = Order::Shuffled { seed };
            for rank in 0..world_size {
                let sampler =
                    DistributedSampler::new(samples, rank, world_size, order, Tail::Pad).unwrap();
                let whole = sampler.order(1);
                let turns = turns.min(whole.len());
                prop_assert_eq!(&sampler.order_from(1, turns * world_size), &whole[turns..]);
            }
        }
    }
}
