//! Random transforms whose numbers depend on the sample and the epoch, and on nothing else.

use sneppx_contract::{RandomKey, Result};

use super::{Collate, Dataset, Draw};

/// A data set whose samples pass through a function that may use random numbers.
///
/// The function gets a stream keyed by (seed, epoch, sample). Neither the number of workers nor
/// of ranks, nor the order of reading, changes what a sample looks like in an epoch.
///
/// ```
/// use sneppx::data::{Dataset, Draw, HostTensor, Mapped, TensorDataset};
///
/// let numbers = TensorDataset::new(vec![HostTensor::vector(&[1f32, 2.0, 3.0])?])?;
/// let noisy = Mapped::new(numbers, 42, |_sample, stream| Ok(stream.number(0)));
/// let draw = |epoch, index| noisy.draw(Draw { epoch, index });
/// assert_eq!(draw(1, 2)?, draw(1, 2)?);
/// assert_ne!(draw(1, 2)?, draw(0, 2)?);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mapped<D, F> {
    dataset: D,
    transform: F,
    key: RandomKey,
}

impl<D, F, T> Mapped<D, F>
where
    D: Dataset,
    F: Fn(D::Item, RandomKey) -> Result<T> + Send + Sync,
    T: Collate,
{
    /// `dataset`, seen through `transform`.
    pub fn new(dataset: D, seed: u64, transform: F) -> Self {
        let key = RandomKey::from_seed(seed).with_text("data transform");
        Mapped { dataset, transform, key }
    }

    /// The data set behind the transform.
    pub fn inner(&self) -> &D {
        &self.dataset
    }
}

impl<D, F, T> Dataset for Mapped<D, F>
where
    D: Dataset,
    F: Fn(D::Item, RandomKey) -> Result<T> + Send + Sync,
    T: Collate,
{
    type Item = T;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    /// The sample as it looks in epoch 0.
    fn get(&self, index: usize) -> Result<T> {
        self.draw(Draw { epoch: 0, index })
    }

    fn draw(&self, draw: Draw) -> Result<T> {
        let stream = self.key.with_number(draw.epoch).with_number(draw.index as u64);
        (self.transform)(self.dataset.draw(draw)?, stream)
    }
}
