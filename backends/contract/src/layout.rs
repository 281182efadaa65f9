//! How a tensor lies in its buffer: shape, strides and offset, and the arithmetic on them.
//!
//! Everything here is pure. Sizes are in elements and kept in `usize`, so a plan for more than
//! 2^31 elements is as exact as one for three.

use std::fmt;

use crate::{Error, MAX_NDIM, Result, Shape};

/// Where each element of a tensor lies in its buffer: element `(i, j, …)` is at
/// `offset + i * strides[0] + j * strides[1] + …`, counted in elements.
///
/// A stride of 0 repeats: that is what broadcasting is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: Shape,
    offset: usize,
}

impl Layout {
    /// Row-major, without gaps, from the start of the buffer.
    pub fn contiguous(shape: Shape) -> Self {
        Layout { shape, strides: shape.contiguous_strides(), offset: 0 }
    }

    /// A run of `len` elements starting at `offset`.
    pub fn flat(offset: usize, len: usize) -> Self {
        let mut dims = [0; MAX_NDIM];
        dims[0] = len;
        let shape = Shape { dims, ndim: 1 };
        Layout { shape, strides: shape.contiguous_strides(), offset }
    }

    /// Any shape, strides and offset; [`Layout::check`] tells whether a buffer is long enough.
    ///
    /// # Errors
    /// A different number of sizes and strides.
    pub fn strided(shape: &[usize], strides: &[usize], offset: usize) -> Result<Self> {
        if shape.len() != strides.len() {
            let detail = format!("{} sizes and {} strides", shape.len(), strides.len());
            return Err(Error::shape("layout", detail));
        }
        let shape = Shape::new(shape)?;
        let mut steps = Shape { dims: [0; MAX_NDIM], ndim: strides.len() };
        steps.dims[..strides.len()].copy_from_slice(strides);
        Ok(Layout { shape, strides: steps, offset })
    }

    /// The sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The distance between neighbours along each dimension, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Where the first element lies.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many dimensions there are.
    pub fn ndim(&self) -> usize {
        self.shape.ndim
    }

    /// How many elements there are; repeated ones count each time.
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// This layout moved to another offset.
    pub fn with_offset(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// Whether the elements follow one another in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        if self.numel() == 0 {
            return true;
        }
        let mut step = 1;
        for axis in (0..self.ndim()).rev() {
            if self.shape[axis] != 1 && self.strides[axis] != step {
                return false;
            }
            step *= self.shape[axis];
        }
        true
    }

    /// The contiguous run of buffer elements this layout covers, if it is one.
    pub fn contiguous_range(&self) -> Option<std::ops::Range<usize>> {
        self.is_contiguous().then(|| self.offset..self.offset + self.numel())
    }

    /// One past the highest buffer index that an element lies at; the offset if there is none.
    pub fn end(&self) -> Option<usize> {
        if self.numel() == 0 {
            return Some(self.offset);
        }
        let mut last = self.offset;
        for axis in 0..self.ndim() {
            last = last.checked_add((self.shape[axis] - 1).checked_mul(self.strides[axis])?)?;
        }
        last.checked_add(1)
    }

    /// Whether a buffer of `len` elements holds every element. A layout of no elements fits any
    /// buffer, wherever it starts: slicing an empty tensor moves its offset.
    ///
    /// # Errors
    /// [`Error::Shape`] with both numbers.
    pub fn check(&self, operation: &'static str, len: usize) -> Result<()> {
        match self.end() {
            _ if self.numel() == 0 => Ok(()),
            Some(end) if end <= len => Ok(()),
            _ => {
                let detail = format!("{self:?} does not fit into a buffer of {len} elements");
                Err(Error::shape(operation, detail))
            }
        }
    }

    /// Whether two different indices can name one element (a stride of 0, or overlapping rows).
    /// Conservative: `true` may be answered for exotic layouts that do not overlap.
    pub fn may_overlap_itself(&self) -> bool {
        if self.numel() == 0 {
            return false;
        }
        let mut axes: Vec<(usize, usize)> = self
            .strides
            .iter()
            .zip(self.shape.iter())
            .filter(|&(_, &size)| size > 1)
            .map(|(&stride, &size)| (stride, size))
            .collect();
        axes.sort_unstable();
        let mut reach = 0;
        for (stride, size) in axes {
            if stride <= reach {
                return true;
            }
            reach += stride * (size - 1);
        }
        false
    }

    /// Dimensions `first` and `second` exchanged.
    ///
    /// # Errors
    /// A dimension that does not exist.
    pub fn transpose(&self, first: usize, second: usize) -> Result<Self> {
        self.expect_dim("transpose", first)?;
        self.expect_dim("transpose", second)?;
        let mut out = *self;
        out.shape.dims.swap(first, second);
        out.strides.dims.swap(first, second);
        Ok(out)
    }

    /// Dimensions in another order: dimension `i` of the result is dimension `order[i]` of this.
    ///
    /// # Errors
    /// `order` is not a permutation of `0..ndim`.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        let mut seen = [false; MAX_NDIM];
        let valid = order.len() == self.ndim()
            && order
                .iter()
                .all(|&dim| dim < self.ndim() && !std::mem::replace(&mut seen[dim], true));
        if !valid {
            let detail = format!("{order:?} is not a permutation of 0..{}", self.ndim());
            return Err(Error::shape("permute", detail));
        }
        let mut out = *self;
        for (to, &from) in order.iter().enumerate() {
            out.shape.dims[to] = self.shape[from];
            out.strides.dims[to] = self.strides[from];
        }
        Ok(out)
    }

    /// Elements `start..start + len` along `dim`.
    ///
    /// # Errors
    /// A range outside the dimension.
    pub fn narrow(&self, dim: usize, start: usize, len: usize) -> Result<Self> {
        self.expect_dim("slice", dim)?;
        if start.checked_add(len).is_none_or(|end| end > self.shape[dim]) {
            let detail = format!(
                "{start}..{} of dimension {dim} of {:?}",
                start.saturating_add(len),
                self.shape
            );
            return Err(Error::shape("slice", detail));
        }
        let mut out = *self;
        out.shape.dims[dim] = len;
        if self.shape[dim] > 0 {
            let moved = start.checked_mul(self.strides[dim]);
            out.offset = moved.and_then(|by| self.offset.checked_add(by)).ok_or_else(|| {
                Error::shape(
                    "slice",
                    format!("{start} along {dim} of {self:?} is too far to count"),
                )
            })?;
        }
        Ok(out)
    }

    /// A new dimension of size 1 before dimension `dim`.
    ///
    /// # Errors
    /// `dim` beyond the number of dimensions, or no room for one more.
    pub fn unsqueeze(&self, dim: usize) -> Result<Self> {
        if dim > self.ndim() || self.ndim() == MAX_NDIM {
            let detail = format!("no dimension can be added at {dim} of {:?}", self.shape);
            return Err(Error::shape("unsqueeze", detail));
        }
        let mut out = *self;
        out.shape.ndim += 1;
        out.strides.ndim += 1;
        out.shape.dims.copy_within(dim..self.ndim(), dim + 1);
        out.strides.dims.copy_within(dim..self.ndim(), dim + 1);
        out.shape.dims[dim] = 1;
        out.strides.dims[dim] = 0;
        Ok(out)
    }

    /// Without dimension `dim`, which must have size 1.
    ///
    /// # Errors
    /// A dimension that does not exist or has another size.
    pub fn squeeze(&self, dim: usize) -> Result<Self> {
        self.expect_dim("squeeze", dim)?;
        if self.shape[dim] != 1 {
            let detail = format!("dimension {dim} of {:?} is not 1", self.shape);
            return Err(Error::shape("squeeze", detail));
        }
        Ok(self.drop_dim(dim))
    }

    /// The layout of index `index` along `dim`, with that dimension gone.
    ///
    /// # Errors
    /// An index outside the dimension.
    pub fn select(&self, dim: usize, index: usize) -> Result<Self> {
        Ok(self.narrow(dim, index, 1)?.drop_dim(dim))
    }

    /// Stretched to `shape` by repeating dimensions of size 1 and adding ones at the left.
    ///
    /// # Errors
    /// A size that is neither equal nor 1.
    pub fn broadcast_to(&self, shape: &Shape) -> Result<Self> {
        let refuse = || {
            let detail = format!("{:?} cannot be stretched to {shape:?}", self.shape);
            Error::shape("broadcast", detail)
        };
        if shape.ndim < self.ndim() {
            return Err(refuse());
        }
        let lead = shape.ndim - self.ndim();
        let mut out = Layout {
            shape: *shape,
            strides: Shape { dims: [0; MAX_NDIM], ndim: shape.ndim },
            offset: self.offset,
        };
        for axis in 0..self.ndim() {
            out.strides.dims[lead + axis] = match (self.shape[axis], shape[lead + axis]) {
                (have, want) if have == want => self.strides[axis],
                (1, _) => 0,
                _ => return Err(refuse()),
            };
        }
        Ok(out)
    }

    /// The same elements in the same row-major order under another shape, if that needs no copy.
    ///
    /// # Errors
    /// The numbers of elements differ.
    pub fn reshape(&self, shape: &Shape) -> Result<Option<Self>> {
        let (have, want) = (self.numel(), shape.numel());
        if have != want {
            let detail = format!("{:?} has {have} elements, {shape:?} has {want}", self.shape);
            return Err(Error::shape("reshape", detail));
        }
        if have == 0 {
            return Ok(Some(Layout::contiguous(*shape).with_offset(self.offset)));
        }
        // Runs of old dimensions that lie without gaps can be re-cut freely; each new dimension
        // must fall into one run.
        let mut out =
            Layout { shape: *shape, strides: shape.contiguous_strides(), offset: self.offset };
        let (mut new_axis, mut old_axis) = (shape.ndim, self.ndim());
        while old_axis > 0 {
            let stride = self.strides[old_axis - 1];
            let mut run = self.shape[old_axis - 1];
            old_axis -= 1;
            while old_axis > 0
                && (self.shape[old_axis - 1] == 1
                    || stride.checked_mul(run) == Some(self.strides[old_axis - 1]))
            {
                run *= self.shape[old_axis - 1];
                old_axis -= 1;
            }
            if run == 1 {
                continue;
            }
            let mut step = stride;
            let mut left = run;
            while left > 1 {
                let Some(axis) = new_axis.checked_sub(1) else { return Ok(None) };
                new_axis = axis;
                let size = shape[axis];
                if !left.is_multiple_of(size) {
                    return Ok(None);
                }
                out.strides.dims[axis] = step;
                // The step beyond the outermost dimension is not used, so it may be cut off.
                step = step.saturating_mul(size);
                left /= size;
            }
        }
        Ok(Some(out))
    }

    /// An equal layout with the fewest dimensions: size-1 dimensions dropped, neighbours that lie
    /// without a gap merged. Element order is kept.
    pub fn coalesce(&self) -> Self {
        let mut out = Layout { shape: Shape::SCALAR, strides: Shape::SCALAR, offset: self.offset };
        for axis in 0..self.ndim() {
            let (size, stride) = (self.shape[axis], self.strides[axis]);
            if size == 1 {
                continue;
            }
            let last = out.shape.ndim;
            if last > 0 && stride.checked_mul(size) == Some(out.strides.dims[last - 1]) {
                out.shape.dims[last - 1] *= size;
                out.strides.dims[last - 1] = stride;
            } else {
                out.shape.dims[last] = size;
                out.strides.dims[last] = stride;
                out.shape.ndim += 1;
                out.strides.ndim += 1;
            }
        }
        out
    }

    /// Buffer index of the element with row-major number `index`.
    pub fn position(&self, mut index: usize) -> usize {
        let mut at = self.offset;
        for axis in (0..self.ndim()).rev() {
            let size = self.shape[axis];
            at += (index % size) * self.strides[axis];
            index /= size;
        }
        at
    }

    fn drop_dim(&self, dim: usize) -> Self {
        Layout {
            shape: self.shape.without_dim(dim),
            strides: self.strides.without_dim(dim),
            offset: self.offset,
        }
    }

    fn expect_dim(&self, operation: &'static str, dim: usize) -> Result<()> {
        if dim < self.ndim() {
            return Ok(());
        }
        Err(Error::shape(operation, format!("dimension {dim} of {:?} does not exist", self.shape)))
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shape)?;
        if !self.is_contiguous() {
            write!(f, " strides {:?}", self.strides())?;
        }
        if self.offset != 0 {
            write!(f, " at {}", self.offset)?;
        }
        Ok(())
    }
}
