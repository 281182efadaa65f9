//! Values with a shape, and how samples become a batch.

use sneppx_contract::{DType, Element, Error, HostVec, Result, Shape};

/// Row-major values in host memory together with their shape.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    values: HostVec,
    shape: Shape,
}

impl HostTensor {
    /// `values` seen as `shape`.
    ///
    /// # Errors
    /// A shape that holds another number of elements than there are values.
    pub fn new(values: HostVec, shape: &[usize]) -> Result<Self> {
        let shape = Shape::new(shape)?;
        if shape.numel() != values.len() {
            let detail = format!(
                "{} values do not fill {shape:?}, which has {} elements",
                values.len(),
                shape.numel()
            );
            return Err(Error::shape("host tensor", detail));
        }
        Ok(HostTensor { values, shape })
    }

    /// A vector of shape `[values.len()]`.
    pub fn vector<T: Element>(values: &[T]) -> Result<Self> {
        Self::new(owned(values), &[values.len()])
    }

    /// A tensor without dimensions.
    pub fn scalar<T: Element>(value: T) -> Self {
        HostTensor { values: owned(&[value]), shape: Shape::SCALAR }
    }

    /// The values, row-major.
    pub fn values(&self) -> &HostVec {
        &self.values
    }

    /// The values, row-major, given away.
    pub fn into_values(self) -> HostVec {
        self.values
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The dtype of the values.
    pub fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// Row `index` along the first dimension: `[N, ...]` gives `[...]`.
    ///
    /// # Errors
    /// A scalar, or an index outside the first dimension.
    pub fn row(&self, index: usize) -> Result<HostTensor> {
        let Some((&rows, rest)) = self.shape.split_first() else {
            return Err(Error::shape("host tensor row", "a scalar has no rows"));
        };
        if index >= rows {
            return Err(Error::IndexOutOfRange {
                operation: "host tensor row",
                index: index as i64,
                position: 0,
                bound: rows,
            });
        }
        let row_len: usize = rest.iter().product();
        let mut values = HostVec::zeros(self.dtype(), row_len);
        let row_bytes = row_len * self.dtype().size();
        let source = self.values.as_slice();
        let start = index * row_bytes;
        values.bytes_mut().copy_from_slice(&source.bytes()[start..start + row_bytes]);
        HostTensor::new(values, rest)
    }

    /// Tensors of one shape, stacked: `B` of `[...]` give `[B, ...]`.
    ///
    /// # Errors
    /// No tensors, or tensors that differ in shape or dtype; the message gives the place of the
    /// odd one.
    pub fn stack(tensors: &[HostTensor]) -> Result<HostTensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::shape("stack", "no samples; a batch needs at least one"));
        };
        let (dtype, item_bytes) = (first.dtype(), first.values.len() * first.dtype().size());
        let mut values = HostVec::zeros(dtype, first.values.len() * tensors.len());
        let bytes = values.bytes_mut();
        for (position, tensor) in tensors.iter().enumerate() {
            if tensor.shape != first.shape || tensor.dtype() != dtype {
                let detail = format!(
                    "sample 0 of the batch is {dtype} {:?}, sample {position} is {} {:?}; \
                     pad or crop samples to one shape",
                    first.shape,
                    tensor.dtype(),
                    tensor.shape
                );
                return Err(Error::shape("stack", detail));
            }
            let start = position * item_bytes;
            let source = tensor.values.as_slice();
            bytes[start..start + item_bytes].copy_from_slice(source.bytes());
        }
        let mut shape = vec![tensors.len()];
        shape.extend_from_slice(&first.shape);
        HostTensor::new(values, &shape)
    }
}

/// A sample that can be put together with others of its kind.
pub trait Collate: Send + Sized + 'static {
    /// Many samples in one value.
    type Batch: Send + 'static;

    /// Puts `samples`, at least one, into one batch, in order.
    ///
    /// # Errors
    /// Samples that do not fit together.
    fn collate(samples: Vec<Self>) -> Result<Self::Batch>;
}

/// Stacks: `B` of `[...]` give `[B, ...]`.
impl Collate for HostTensor {
    type Batch = HostTensor;

    fn collate(samples: Vec<Self>) -> Result<HostTensor> {
        HostTensor::stack(&samples)
    }
}

/// Collates place by place: samples of `k` parts give `k` batches.
impl<T: Collate> Collate for Vec<T> {
    type Batch = Vec<T::Batch>;

    fn collate(samples: Vec<Self>) -> Result<Self::Batch> {
        let parts = samples.first().map_or(0, Vec::len);
        let mut columns: Vec<Vec<T>> = (0..parts).map(|_| Vec::new()).collect();
        for (position, sample) in samples.into_iter().enumerate() {
            if sample.len() != parts {
                let detail = format!(
                    "sample 0 of the batch has {parts} parts, sample {position} has {}",
                    sample.len()
                );
                return Err(Error::shape("collate", detail));
            }
            for (column, part) in columns.iter_mut().zip(sample) {
                column.push(part);
            }
        }
        columns.into_iter().map(T::collate).collect()
    }
}

/// Collates both sides, as for an input and its label.
impl<A: Collate, B: Collate> Collate for (A, B) {
    type Batch = (A::Batch, B::Batch);

    fn collate(samples: Vec<Self>) -> Result<Self::Batch> {
        let (left, right) = samples.into_iter().unzip();
        Ok((A::collate(left)?, B::collate(right)?))
    }
}

macro_rules! collate_into_vector {
    ($($ty:ty)*) => {$(
        /// Numbers and texts stay as they are, one after the other.
        impl Collate for $ty {
            type Batch = Vec<$ty>;

            fn collate(samples: Vec<Self>) -> Result<Vec<$ty>> {
                Ok(samples)
            }
        }
    )*};
}

collate_into_vector!(f32 f64 i64 u8 u32 u64 usize String);

/// The slice as an owned run of values of its dtype.
fn owned<T: Element>(values: &[T]) -> HostVec {
    let mut host = HostVec::zeros(T::DTYPE, values.len());
    host.bytes_mut().copy_from_slice(bytemuck::cast_slice(values));
    host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_stacked_back_into_the_same_tensor() {
        let values = HostVec::F32((0..12).map(|v| v as f32).collect());
        let tensor = HostTensor::new(values, &[3, 2, 2]).unwrap();
        let rows: Vec<_> = (0..3).map(|i| tensor.row(i).unwrap()).collect();
        assert_eq!(rows[1].values(), &HostVec::F32(vec![4.0, 5.0, 6.0, 7.0]));
        assert_eq!(HostTensor::stack(&rows).unwrap(), tensor);
    }

    #[test]
    fn samples_of_two_shapes_are_refused_with_place_and_both_shapes() {
        let a = HostTensor::vector(&[1u32, 2]).unwrap();
        let b = HostTensor::vector(&[1u32, 2, 3]).unwrap();
        let text = HostTensor::stack(&[a.clone(), a.clone(), b]).unwrap_err().to_string();
        assert!(
            text.contains("sample 2") && text.contains("[2]") && text.contains("[3]"),
            "{text}"
        );
        let c = HostTensor::vector(&[1i64, 2]).unwrap();
        let text = HostTensor::stack(&[a, c]).unwrap_err().to_string();
        assert!(text.contains("u32") && text.contains("i64"), "{text}");
    }

    #[test]
    fn a_shape_that_does_not_hold_the_values_is_refused() {
        let text = HostTensor::new(HostVec::U8(vec![0; 5]), &[2, 3]).unwrap_err().to_string();
        assert!(text.contains('5') && text.contains("[2, 3]") && text.contains('6'), "{text}");
        assert!(HostTensor::scalar(1f32).row(0).is_err());
        assert!(HostTensor::vector(&[1f32]).unwrap().row(1).is_err());
    }

    #[test]
    fn pairs_and_lists_are_collated_place_by_place() {
        let sample = |v: f32| (HostTensor::scalar(v), v as u64);
        let (values, labels) = Collate::collate(vec![sample(1.0), sample(2.0)]).unwrap();
        assert_eq!(values, HostTensor::vector(&[1f32, 2.0]).unwrap());
        assert_eq!(labels, [1, 2]);
        let uneven = vec![vec![1u64], vec![1, 2]];
        assert!(Collate::collate(uneven).unwrap_err().to_string().contains("sample 1 has 2"));
    }
}
