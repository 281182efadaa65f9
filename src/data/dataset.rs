//! What sample `i` is.

use std::sync::Arc;

use sneppx_contract::{Error, Result};

use super::prefetch::without_panic;
use super::{Collate, HostTensor};

/// One draw of a sample: which one, and in which epoch.
///
/// The epoch matters to random transforms alone: they give sample `index` another look in every
/// epoch, and the same look whoever reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Draw {
    /// How often the whole data set was gone through before.
    pub epoch: u64,
    /// The sample, in `0..dataset.len()`.
    pub index: usize,
}

/// A finite collection of samples that any thread may read at any place.
///
/// ```
/// use sneppx::data::Dataset;
/// use sneppx_contract::Result;
///
/// struct Squares;
///
/// impl Dataset for Squares {
///     type Item = u64;
///     fn len(&self) -> usize {
///         100
///     }
///     fn get(&self, index: usize) -> Result<u64> {
///         Ok((index * index) as u64)
///     }
/// }
/// assert_eq!(Squares.get(7)?, 49);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
pub trait Dataset: Send + Sync {
    /// One sample.
    type Item: Collate;

    /// How many samples there are.
    fn len(&self) -> usize;

    /// Sample `index`. Equal indices give equal samples.
    ///
    /// # Errors
    /// A sample that cannot be read; the loader adds its index.
    fn get(&self, index: usize) -> Result<Self::Item>;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample of one draw: [`get`](Dataset::get), unless a random transform is applied.
    fn draw(&self, draw: Draw) -> Result<Self::Item> {
        self.get(draw.index)
    }

    /// The batch of `draws`, in their order. Override it where a batch can be filled without a
    /// value per sample.
    ///
    /// # Errors
    /// The error of the first sample that cannot be read, with its index, or samples that do not
    /// fit together. A panic in [`draw`](Dataset::draw) becomes such an error.
    fn batch(&self, draws: &[Draw]) -> Result<<Self::Item as Collate>::Batch> {
        let one = |draw: &Draw| {
            let sample = without_panic(|| self.draw(*draw));
            sample.map_err(|error| error.at(format!("sample {}", draw.index)))
        };
        Self::Item::collate(draws.iter().map(one).collect::<Result<_>>()?)
    }
}

impl<T: Dataset + ?Sized> Dataset for Arc<T> {
    type Item = T::Item;

    fn len(&self) -> usize {
        T::len(self)
    }

    fn get(&self, index: usize) -> Result<Self::Item> {
        T::get(self, index)
    }

    fn draw(&self, draw: Draw) -> Result<Self::Item> {
        T::draw(self, draw)
    }

    fn batch(&self, draws: &[Draw]) -> Result<<Self::Item as Collate>::Batch> {
        T::batch(self, draws)
    }
}

/// Tensors of equal first dimension `N`; sample `i` is row `i` of each.
///
/// ```
/// use sneppx::data::{Dataset, HostTensor, TensorDataset};
/// use sneppx_contract::HostVec;
///
/// let features = HostTensor::new(HostVec::F32(vec![0.0; 6]), &[3, 2])?;
/// let labels = HostTensor::vector(&[0i64, 1, 0])?;
/// let dataset = TensorDataset::new(vec![features, labels])?;
/// assert_eq!((dataset.len(), dataset.get(1)?.len()), (3, 2));
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TensorDataset {
    tensors: Vec<HostTensor>,
    len: usize,
}

impl TensorDataset {
    /// A data set of the rows of `tensors`, each `[N, ...]`.
    ///
    /// # Errors
    /// No tensors, a scalar, first dimensions that differ, or `N = 0`.
    pub fn new(tensors: Vec<HostTensor>) -> Result<Self> {
        let Some(first) = tensors.first() else {
            return Err(Error::data("tensor data set", "no tensors; give at least one [N, ...]"));
        };
        let len = first.shape().first().copied().unwrap_or(0);
        for (position, tensor) in tensors.iter().enumerate() {
            let detail = match tensor.shape().first() {
                None => format!("tensor {position} is a scalar; samples are rows of [N, ...]"),
                Some(&rows) if rows != len => {
                    format!("tensor 0 has {len} rows, tensor {position} has {rows}; both need N")
                }
                Some(0) => format!("tensor {position} has no rows: the data set is empty"),
                Some(_) => continue,
            };
            return Err(Error::data("tensor data set", detail));
        }
        Ok(TensorDataset { tensors, len })
    }

    /// The tensors, whole.
    pub fn tensors(&self) -> &[HostTensor] {
        &self.tensors
    }
}

impl Dataset for TensorDataset {
    type Item = Vec<HostTensor>;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<Vec<HostTensor>> {
        self.tensors.iter().map(|tensor| tensor.row(index)).collect()
    }
}

/// Refuses what no sampler or loader can work on, before any thread is started.
pub(crate) fn not_empty(samples: usize) -> Result<()> {
    if samples == 0 {
        return Err(Error::data("data set", "the data set is empty: it has 0 samples"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sneppx_contract::HostVec;

    use super::*;

    fn rows(n: usize) -> HostTensor {
        HostTensor::new(HostVec::U32((0..2 * n as u32).collect()), &[n, 2]).unwrap()
    }

    #[test]
    fn a_sample_is_the_row_of_every_tensor() {
        let labels = HostTensor::vector(&[7i64, 8, 9]).unwrap();
        let dataset = TensorDataset::new(vec![rows(3), labels]).unwrap();
        let sample = dataset.get(2).unwrap();
        assert_eq!(sample[0].values(), &HostVec::U32(vec![4, 5]));
        assert_eq!(sample[1].values(), &HostVec::I64(vec![9]));
        assert!(dataset.get(3).is_err());
        let draws = [Draw { epoch: 0, index: 2 }, Draw { epoch: 0, index: 0 }];
        let batch = dataset.batch(&draws).unwrap();
        assert_eq!(batch[0].values(), &HostVec::U32(vec![4, 5, 0, 1]));
        assert_eq!(&batch[0].shape()[..], [2, 2]);
        assert_eq!(batch[1].values(), &HostVec::I64(vec![9, 7]));
    }

    #[test]
    fn tensors_without_common_rows_are_refused_with_both_numbers() {
        let text = TensorDataset::new(vec![rows(3), rows(4)]).unwrap_err().to_string();
        assert!(text.contains('3') && text.contains('4'), "{text}");
        let text = TensorDataset::new(vec![rows(0)]).unwrap_err().to_string();
        assert!(text.contains("empty"), "{text}");
        assert!(TensorDataset::new(vec![]).is_err());
        assert!(TensorDataset::new(vec![HostTensor::scalar(1f32)]).is_err());
    }

    #[test]
    fn an_error_in_a_batch_names_the_sample() {
        let dataset = TensorDataset::new(vec![rows(3)]).unwrap();
        let text = dataset.batch(&[Draw { epoch: 0, index: 11 }]).unwrap_err().to_string();
        assert!(text.contains("sample 11"), "{text}");
    }
}
