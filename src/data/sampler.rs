//! Who reads which sample, and when: pure functions of seed, epoch and place.
//!
//! A [`Sampler`] has no state and uses no shared generator: its order in an epoch depends on
//! (seed, epoch) alone. Ranks that were given one seed therefore agree without talking, and
//! drawing random numbers elsewhere changes nothing.

use std::fmt::Debug;

use sneppx_contract::{RandomKey, Result};

use super::dataset::not_empty;

/// The order in which one rank reads a data set.
pub trait Sampler: Debug + Send + Sync {
    /// How many samples the data set has.
    fn samples(&self) -> usize;

    /// How many samples this rank reads per epoch.
    fn len(&self) -> usize;

    /// What this rank still reads of `epoch` after all ranks together have read the first
    /// `consumed` samples of it. With `consumed = 0`, exactly [`len`](Sampler::len) samples.
    ///
    /// What was read before and what is left cover the epoch, also where the number of ranks
    /// changed in between.
    fn order_from(&self, epoch: u64, consumed: usize) -> Vec<usize>;

    /// What this rank reads in `epoch`.
    fn order(&self, epoch: u64) -> Vec<usize> {
        self.order_from(epoch, 0)
    }

    /// Whether this rank reads nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many ranks share an epoch.
    fn world_size(&self) -> usize {
        1
    }

    /// The seed of the order, where there is one.
    fn seed(&self) -> Option<u64> {
        None
    }
}

/// How samples follow one another within an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they lie.
    Sequential,
    /// Along a permutation that depends on (seed, epoch) and on nothing else. The pair is hashed,
    /// not added: (3, 1) and (4, 0) give different permutations, other than in PyTorch.
    Shuffled {
        /// The user's seed.
        seed: u64,
    },
}

impl Order {
    /// The permutation of `0..samples` in `epoch`.
    pub fn permutation(self, samples: usize, epoch: u64) -> Vec<usize> {
        match self {
            Order::Sequential => (0..samples).collect(),
            Order::Shuffled { seed } => RandomKey::from_seed(seed)
                .with_text("sample order")
                .with_number(epoch)
                .permutation(samples),
        }
    }

    /// The seed, where there is one.
    pub fn seed(self) -> Option<u64> {
        match self {
            Order::Sequential => None,
            Order::Shuffled { seed } => Some(seed),
        }
    }
}

/// Every sample as it lies, on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequentialSampler {
    samples: usize,
}

impl SequentialSampler {
    /// `0..samples` in every epoch.
    ///
    /// # Errors
    /// An empty data set.
    pub fn new(samples: usize) -> Result<Self> {
        not_empty(samples)?;
        Ok(SequentialSampler { samples })
    }
}

impl Sampler for SequentialSampler {
    fn samples(&self) -> usize {
        self.samples
    }

    fn len(&self) -> usize {
        self.samples
    }

    fn order_from(&self, _epoch: u64, consumed: usize) -> Vec<usize> {
        (consumed.min(self.samples)..self.samples).collect()
    }
}

/// Every sample once per epoch, in another order in each, on one rank.
///
/// ```
/// use sneppx::data::{RandomSampler, Sampler};
/// let sampler = RandomSampler::new(1000, 42)?;
/// assert_eq!(sampler.order(3), sampler.order(3));
/// assert_ne!(sampler.order(3), sampler.order(4));
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomSampler {
    samples: usize,
    seed: u64,
}

impl RandomSampler {
    /// Permutations of `0..samples`.
    ///
    /// # Errors
    /// An empty data set.
    pub fn new(samples: usize, seed: u64) -> Result<Self> {
        not_empty(samples)?;
        Ok(RandomSampler { samples, seed })
    }
}

impl Sampler for RandomSampler {
    fn samples(&self) -> usize {
        self.samples
    }

    fn len(&self) -> usize {
        self.samples
    }

    fn order_from(&self, epoch: u64, consumed: usize) -> Vec<usize> {
        let mut order = Order::Shuffled { seed: self.seed }.permutation(self.samples, epoch);
        order.drain(..consumed.min(self.samples));
        order
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samp_06_seed_and_epoch_do_not_alias() {
        let order = |seed, epoch| RandomSampler::new(12, seed).unwrap().order(epoch);
        let (a, b, c) = (order(3, 1), order(4, 0), order(2, 2));
        assert!(a != b && b != c && a != c, "{a:?} {b:?} {c:?}");
    }

    #[test]
    fn samp_04_an_order_depends_on_seed_and_epoch_alone() {
        let sampler = RandomSampler::new(22, 7).unwrap();
        let epochs: Vec<_> = (0..3).map(|epoch| sampler.order(epoch)).collect();
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2] && epochs[0] != epochs[2]);
        assert_eq!(sampler.order(1), epochs[1]);
        for mut order in epochs {
            order.sort_unstable();
            assert!(order.into_iter().eq(0..22));
        }
    }

    #[test]
    fn an_empty_data_set_is_refused() {
        for error in [SequentialSampler::new(0).unwrap_err(), RandomSampler::new(0, 1).unwrap_err()]
        {
            assert!(error.to_string().contains("empty"), "{error}");
        }
    }
}
