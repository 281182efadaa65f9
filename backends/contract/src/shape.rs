//! The sizes of a tensor and the rule by which two of them broadcast.
//!
//! Sizes are in elements and kept in `usize`: a shape that could not be counted cannot be made.

use std::fmt;
use std::ops::Deref;

use crate::{Error, Result};

/// The largest number of dimensions a tensor can have.
pub const MAX_NDIM: usize = 8;

/// The sizes of a tensor, outermost first; at most [`MAX_NDIM`] of them.
///
/// ```
/// use sneppx_contract::Shape;
/// let shape = Shape::new(&[2, 3])?;
/// assert_eq!(shape.numel(), 6);
/// # Ok::<(), sneppx_contract::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    pub(crate) dims: [usize; MAX_NDIM],
    pub(crate) ndim: usize,
}

impl Shape {
    /// The shape of a scalar: no dimensions, one element.
    pub const SCALAR: Shape = Shape { dims: [0; MAX_NDIM], ndim: 0 };

    /// A shape with these sizes.
    ///
    /// # Errors
    /// More than [`MAX_NDIM`] dimensions, or more elements than `usize` can count.
    pub fn new(dims: &[usize]) -> Result<Self> {
        if dims.len() > MAX_NDIM {
            let detail = format!("{} dimensions, at most {MAX_NDIM} are supported", dims.len());
            return Err(Error::shape("shape", detail));
        }
        let mut counted = dims.iter().filter(|&&dim| dim != 0);
        if counted.try_fold(1usize, |n, &dim| n.checked_mul(dim)).is_none() {
            return Err(Error::shape("shape", format!("{dims:?} has too many elements")));
        }
        let mut shape = Shape { dims: [0; MAX_NDIM], ndim: dims.len() };
        shape.dims[..dims.len()].copy_from_slice(dims);
        Ok(shape)
    }

    /// How many elements a tensor of this shape has.
    pub fn numel(&self) -> usize {
        self.iter().product()
    }

    /// How many dimensions there are.
    pub fn ndim(&self) -> usize {
        self.ndim
    }

    /// Row-major strides of a tensor that fills its memory without gaps.
    pub fn contiguous_strides(&self) -> Shape {
        let mut strides = *self;
        let mut step = 1;
        for axis in (0..self.ndim).rev() {
            strides.dims[axis] = step;
            step *= self.dims[axis].max(1);
        }
        strides
    }

    /// The shape both operands are stretched to, by the usual rule: sizes are aligned at the right
    /// and must be equal or 1.
    ///
    /// # Errors
    /// Two sizes that are neither equal nor 1, or a result with more elements than `usize` counts.
    pub fn broadcast(operation: &'static str, left: &Shape, right: &Shape) -> Result<Shape> {
        let ndim = left.ndim.max(right.ndim);
        let mut out = Shape { dims: [0; MAX_NDIM], ndim };
        for back in 1..=ndim {
            let size = |shape: &Shape| {
                if back <= shape.ndim { shape.dims[shape.ndim - back] } else { 1 }
            };
            out.dims[ndim - back] = match (size(left), size(right)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                (a, b) => {
                    let detail =
                        format!("{left:?} and {right:?} do not broadcast: sizes {a} and {b}");
                    return Err(Error::shape(operation, detail));
                }
            };
        }
        Shape::new(&out)
    }

    /// This shape with dimension `dim` set to `size`.
    pub fn with_dim(mut self, dim: usize, size: usize) -> Shape {
        assert!(dim < self.ndim, "dimension {dim} of {self:?}");
        self.dims[dim] = size;
        self
    }

    /// This shape without dimension `dim`.
    pub fn without_dim(mut self, dim: usize) -> Shape {
        assert!(dim < self.ndim, "dimension {dim} of {self:?}");
        self.dims.copy_within(dim + 1..self.ndim, dim);
        self.ndim -= 1;
        self.dims[self.ndim] = 0;
        self
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.dims[..self.ndim]
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq<[usize]> for Shape {
    fn eq(&self, other: &[usize]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        **self == other[..]
    }
}
