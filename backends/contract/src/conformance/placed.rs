//! Tensors on a device for one check: their values, how they lie, and what lies around them.

use crate::{
    DType, Device, HostSlice, HostVec, Layout, RandomKey, Result, Shape, View, ViewOf, rng,
};

/// How a tensor lies in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It fills the buffer.
    Whole,
    /// A run in the middle of the buffer.
    Offset,
    /// Rows with a gap behind each.
    Gaps,
    /// Every other element.
    Strided,
    /// Its dimensions lie in reverse order.
    Transposed,
}

impl Lie {
    /// Every way.
    pub const ALL: [Lie; 5] = [Lie::Whole, Lie::Offset, Lie::Gaps, Lie::Strided, Lie::Transposed];

    /// A layout of `shape` that lies this way.
    pub fn layout(self, shape: &[usize]) -> Result<Layout> {
        let (gap, mut step, offset) = match self {
            Lie::Whole => (0, 1, 0),
            Lie::Offset | Lie::Transposed => (0, 1, 3),
            Lie::Gaps => (2, 1, 1),
            Lie::Strided => (0, 2, 1),
        };
        let mut strides = vec![0; shape.len()];
        let mut axes: Vec<usize> = (0..shape.len()).rev().collect();
        if self == Lie::Transposed {
            axes.reverse();
        }
        for (number, axis) in axes.into_iter().enumerate() {
            strides[axis] = step;
            step *= shape[axis].max(1) + if number == 0 { gap } else { 0 };
        }
        Layout::strided(shape, &strides, offset)
    }
}

/// What the elements around a tensor hold; exact in every dtype.
const AROUND: f64 = 77.0;

/// A tensor in a buffer of a device, whose surroundings are watched.
#[derive(Debug)]
pub struct Placed<D: Device> {
    device: D,
    buffer: D::Buffer,
    layout: Layout,
}

impl<D: Device> Placed<D> {
    /// `values` in row-major order, rounded to `dtype`.
    pub fn new(
        device: &D,
        dtype: DType,
        shape: &[usize],
        lie: Lie,
        values: &[f64],
    ) -> Result<Self> {
        Self::at(device, dtype, lie.layout(shape)?, values)
    }

    /// An output of `shape`: NaN where the dtype has it, so that a kernel which reads old values
    /// it should not read is found out.
    pub fn output(device: &D, dtype: DType, shape: &[usize], lie: Lie) -> Result<Self> {
        let old = if dtype.is_float() { f64::NAN } else { 55.0 };
        Self::new(device, dtype, shape, lie, &vec![old; shape.iter().product()])
    }

    /// `values` at the places of `layout`; the last value counts where places repeat.
    pub fn at(device: &D, dtype: DType, layout: Layout, values: &[f64]) -> Result<Self> {
        assert_eq!(layout.numel(), values.len(), "as many values as elements");
        let tail = if layout == Layout::contiguous(*layout.shape()) { 0 } else { 3 };
        let end = layout.end().expect("the places of a check can be counted");
        let mut memory = vec![AROUND; end + tail];
        for (index, &value) in values.iter().enumerate() {
            memory[layout.position(index)] = value;
        }
        let buffer = device.upload(HostVec::from_f64(dtype, &memory).as_slice())?;
        Ok(Placed { device: device.clone(), buffer, layout })
    }

    /// What kernels take.
    pub fn view(&self) -> ViewOf<'_, D> {
        View::new(&self.buffer, self.layout)
    }

    /// The memory.
    pub fn buffer(&self) -> &D::Buffer {
        &self.buffer
    }

    /// The values in row-major order.
    ///
    /// # Panics
    /// An element around the tensor was written.
    #[track_caller]
    pub fn values(&self) -> Result<Vec<f64>> {
        let memory = self.device.download(&self.buffer)?.to_f64();
        let places: Vec<usize> =
            (0..self.layout.numel()).map(|index| self.layout.position(index)).collect();
        let mut inside = vec![false; memory.len()];
        places.iter().for_each(|&place| inside[place] = true);
        for (place, (&value, inside)) in memory.iter().zip(inside).enumerate() {
            assert!(
                inside || value == AROUND,
                "element {place} of the buffer lies outside of {:?} and was overwritten by {value}",
                self.layout
            );
        }
        Ok(places.into_iter().map(|place| memory[place]).collect())
    }

    /// The bytes of the whole buffer, for comparisons bit for bit.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        Ok(self.device.download(&self.buffer)?.as_slice().bytes().to_vec())
    }
}

/// `values` as `dtype` holds them.
pub fn rounded(dtype: DType, values: &[f64]) -> Vec<f64> {
    HostVec::from_f64(dtype, values).to_f64()
}

/// `count` numbers in `low..high` that `dtype` holds exactly, the same for the same `seed`.
pub fn draw(dtype: DType, seed: u64, count: usize, low: f64, high: f64) -> Vec<f64> {
    let key = RandomKey::from_seed(seed).with_text("conformance");
    let value = |index| low + (high - low) * f64::from(rng::uniform(key.word(index)));
    rounded(dtype, &(0..count as u64).map(value).collect::<Vec<_>>())
}

/// A tensor of random numbers that lies without gaps, with the numbers.
pub fn drawn<D: Device>(
    device: &D,
    dtype: DType,
    seed: u64,
    shape: &[usize],
) -> Result<(Placed<D>, Vec<f64>)> {
    let values = draw(dtype, seed, shape.iter().product(), -2.0, 2.0);
    Ok((Placed::new(device, dtype, shape, Lie::Whole, &values)?, values))
}

/// The layout of `shape` in which every index of `axis` names the same elements.
pub fn repeated(shape: &[usize], axis: usize) -> Result<Layout> {
    let single = Layout::contiguous(Shape::new(shape)?.with_dim(axis, 1));
    single.broadcast_to(&Shape::new(shape)?)
}

/// An `F32` buffer with `values`.
pub fn upload_f32<D: Device>(device: &D, values: &[f32]) -> Result<D::Buffer> {
    device.upload(HostSlice::F32(values))
}

/// Runs `body` twice and compares what it gives bit for bit.
///
/// # Panics
/// The two results differ.
#[track_caller]
pub fn assert_same_bits(what: &str, body: impl Fn() -> Result<Vec<u8>>) -> Result<()> {
    let first = body()?;
    for run in 2..4 {
        assert!(body()? == first, "{what}: run {run} gave other bits than the first");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lie_names_each_element_once() -> Result<()> {
        for lie in Lie::ALL {
            for shape in [&[][..], &[1], &[5], &[2, 3], &[3, 1, 4], &[2, 0, 3]] {
                let layout = lie.layout(shape)?;
                assert_eq!(*layout.shape(), *shape);
                let mut places: Vec<usize> =
                    (0..layout.numel()).map(|index| layout.position(index)).collect();
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len(), layout.numel(), "{lie:?} {shape:?}");
                assert!(!layout.may_overlap_itself());
            }
        }
        Ok(())
    }
}
