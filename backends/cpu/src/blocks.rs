//! Views cut into blocks of consecutive elements, so that every loop is over plain slices.
//!
//! Elements are numbered in row-major order. A block that lies in one piece is lent out as it is;
//! any other is gathered into scratch memory that stays in the first cache: strided and repeated
//! elements, elements of 16 bits, and inputs that are about to be overwritten in place. A kernel
//! thus has one loop, over slices that do not overlap.

use sneppx_contract::{Element, Layout, Result};

use crate::element::Stored;
use crate::operands::{Input, Output};

/// Elements of one block: 4 KiB of `f32`, so that an output, its inputs and scratch for each fit
/// into the first cache.
pub(crate) const BLOCK: usize = 1024;

/// Scratch memory for one block.
pub(crate) type Scratch<T> = [T; BLOCK];

/// Zeroed scratch memory.
pub(crate) fn scratch<T: Element>() -> Scratch<T> {
    [T::zeroed(); BLOCK]
}

/// An input, read in blocks.
pub(crate) struct Source<'a, T> {
    input: Input<'a, T>,
    shape: Strides,
}

/// An output, written in blocks.
pub(crate) struct Target<'a, T> {
    output: Output<'a, T>,
    shape: Strides,
}

impl<'a, T: Element> Source<'a, T> {
    /// The input with its dimensions in the order of `order`.
    pub(crate) fn new(input: Input<'a, T>, order: &Order) -> Result<Self> {
        Ok(Source { shape: Strides::new(input.layout(), order)?, input })
    }

    /// Elements `start..start + len`, at most a block of them, copied into `scratch` if they do not
    /// lie in one run or are about to be overwritten.
    ///
    /// # Safety
    /// No other thread writes these elements.
    pub(crate) unsafe fn block<'b>(
        &'b self,
        start: usize,
        len: usize,
        scratch: &'b mut [T],
    ) -> &'b [T] {
        if !self.input.in_place()
            && let Some(at) = self.shape.run(start, len)
        {
            // SAFETY: `at` and `len` are a run of the view, which is not an output.
            return unsafe { self.input.run(at, len) };
        }
        let scratch = &mut scratch[..len];
        // SAFETY: the caller's promise.
        unsafe { self.gather(start, scratch) };
        scratch
    }

    /// Like [`Source::block`], widened to the type of arithmetic.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn wide_block<'b>(
        &'b self,
        start: usize,
        len: usize,
        scratch: &'b mut Scratch<T>,
        wide: &'b mut Scratch<T::Acc>,
    ) -> &'b [T::Acc]
    where
        T: Stored,
    {
        // SAFETY: the caller's promise.
        let block = unsafe { self.block(start, len, scratch) };
        match T::native(block) {
            Some(block) => block,
            None => {
                T::load(block, &mut wide[..len]);
                &wide[..len]
            }
        }
    }

    /// Copies the elements from `start` on into `to`.
    ///
    /// # Safety
    /// No other thread writes these elements.
    pub(crate) unsafe fn gather(&self, start: usize, to: &mut [T]) {
        let from = self.input.pointer();
        let mut filled = 0;
        self.shape.for_each_run(start, to.len(), |at, len, stride| {
            let to = &mut to[filled..filled + len];
            filled += len;
            // SAFETY: every place of the walk belongs to the view. The copy is made through
            // pointers because the view may also be an output, of which no slice exists now.
            unsafe {
                match stride {
                    0 => to.fill(from.add(at).read()),
                    1 => to.as_mut_ptr().copy_from_nonoverlapping(from.add(at), len),
                    _ => {
                        for (index, to) in to.iter_mut().enumerate() {
                            *to = from.add(at + index * stride).read();
                        }
                    }
                }
            }
        });
    }
}

impl<'a, T: Element> Target<'a, T> {
    /// The output with its dimensions in the order of `order`.
    pub(crate) fn new(output: Output<'a, T>, order: &Order) -> Result<Self> {
        Ok(Target { shape: Strides::new(output.layout(), order)?, output })
    }

    /// Lets `write` fill elements `start..start + len`, at most a block of them. `write` must set
    /// every element: what it is given is either the memory itself or scratch.
    ///
    /// # Safety
    /// No other thread touches these elements, and no slice of them exists.
    pub(crate) unsafe fn block(
        &self,
        start: usize,
        len: usize,
        scratch: &mut [T],
        write: impl FnOnce(&mut [T]),
    ) {
        if let Some(at) = self.shape.run(start, len) {
            // SAFETY: `at` and `len` are a run of the view; the rest is the caller's promise.
            return write(unsafe { self.output.run(at, len) });
        }
        let scratch = &mut scratch[..len];
        write(scratch);
        // SAFETY: the caller's promise.
        unsafe { self.scatter(start, scratch) };
    }

    /// Like [`Target::block`], rounded from the type of arithmetic.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn wide_block(
        &self,
        start: usize,
        len: usize,
        scratch: &mut Scratch<T>,
        wide: &mut Scratch<T::Acc>,
        write: impl FnOnce(&mut [T::Acc]),
    ) where
        T: Stored,
    {
        let through = |block: &mut [T]| {
            if let Some(block) = T::native_mut(block) {
                return write(block);
            }
            write(&mut wide[..len]);
            T::store(&wide[..len], block);
        };
        // SAFETY: the caller's promise.
        unsafe { self.block(start, len, scratch, through) };
    }

    /// Copies `from` to the elements from `start` on.
    ///
    /// # Safety
    /// No other thread touches these elements, and no slice of them exists.
    pub(crate) unsafe fn scatter(&self, start: usize, from: &[T]) {
        let to = self.output.pointer();
        let mut done = 0;
        self.shape.for_each_run(start, from.len(), |at, len, stride| {
            for (index, &value) in from[done..done + len].iter().enumerate() {
                // SAFETY: every place of the walk belongs to the view.
                unsafe { to.add(at + index * stride).write(value) };
            }
            done += len;
        });
    }
}

/// The order in which the dimensions of a call are walked.
pub(crate) struct Order {
    /// `None`: as they are.
    axes: Option<Vec<usize>>,
}

impl Order {
    /// Row-major order of the dimensions as they are.
    pub(crate) const AS_GIVEN: Order = Order { axes: None };

    /// The order in which `out` lies in memory. What is computed elementwise does not depend on
    /// the order, and neighbours are written together.
    pub(crate) fn of_memory(out: &Layout) -> Self {
        if out.is_contiguous() {
            return Order::AS_GIVEN;
        }
        let mut axes: Vec<usize> = (0..out.ndim()).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(out.strides()[axis]));
        Order { axes: Some(axes) }
    }

    /// `layout` with its dimensions in this order.
    pub(crate) fn apply(&self, layout: &Layout) -> Result<Layout> {
        match &self.axes {
            Some(axes) => layout.permute(axes),
            None => Ok(*layout),
        }
    }
}

/// Sizes and strides with neighbours merged, ready to be walked.
struct Strides {
    layout: Layout,
    /// Size and stride of the innermost dimension.
    inner: (usize, usize),
    /// Whether all elements lie in one run.
    flat: bool,
}

impl Strides {
    fn new(layout: &Layout, order: &Order) -> Result<Self> {
        let layout = order.apply(layout)?.coalesce().with_offset(0);
        let inner = match (layout.shape().last(), layout.strides().last()) {
            (Some(&size), Some(&stride)) => (size, stride),
            _ => (1, 1),
        };
        Ok(Strides { layout, inner, flat: layout.is_contiguous() })
    }

    /// Where elements `start..start + len` begin, if they lie in one run.
    fn run(&self, start: usize, len: usize) -> Option<usize> {
        if self.flat {
            return Some(start);
        }
        let (size, stride) = self.inner;
        (stride == 1 && start % size + len <= size).then(|| self.layout.position(start))
    }

    /// Calls `visit` with place, length and stride of every piece of an innermost dimension that
    /// elements `start..start + len` consist of.
    fn for_each_run(&self, start: usize, len: usize, mut visit: impl FnMut(usize, usize, usize)) {
        if len == 0 {
            return;
        }
        let (size, stride) = self.inner;
        if self.flat {
            return visit(start, len, 1);
        }
        let outer = self.layout.ndim() - 1;
        let (shape, strides) = (self.layout.shape(), self.layout.strides());
        let mut index = [0; sneppx_contract::MAX_NDIM];
        let (mut number, mut row) = (start / size, 0);
        for axis in (0..outer).rev() {
            index[axis] = number % shape[axis];
            row += index[axis] * strides[axis];
            number /= shape[axis];
        }
        let (mut column, mut left) = (start % size, len);
        loop {
            let piece = left.min(size - column);
            visit(row + column * stride, piece, stride);
            left -= piece;
            if left == 0 {
                return;
            }
            column = 0;
            for axis in (0..outer).rev() {
                index[axis] += 1;
                row += strides[axis];
                if index[axis] < shape[axis] {
                    break;
                }
                row -= strides[axis] * shape[axis];
                index[axis] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_visit_every_element_in_order() {
        let layouts = [
            Layout::strided(&[3, 4], &[4, 1], 0),
            Layout::strided(&[3, 4], &[1, 3], 0),
            Layout::strided(&[2, 3, 5], &[0, 5, 1], 0),
            Layout::strided(&[2, 3, 5], &[20, 0, 2], 0),
            Layout::strided(&[7], &[0], 0),
            Layout::strided(&[], &[], 0),
        ];
        for layout in layouts.map(Result::unwrap) {
            let strides = Strides::new(&layout, &Order::AS_GIVEN).unwrap();
            for start in 0..layout.numel() {
                for len in 0..=layout.numel() - start {
                    let mut got = Vec::new();
                    strides.for_each_run(start, len, |at, len, stride| {
                        got.extend((0..len).map(|index| at + index * stride));
                    });
                    let want: Vec<_> = (start..start + len).map(|i| layout.position(i)).collect();
                    assert_eq!(got, want, "{layout:?} {start} {len}");
                    if let Some(at) = strides.run(start, len) {
                        assert!(want.into_iter().eq(at..at + len), "{layout:?} {start} {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_order_of_memory_makes_a_transpose_flat() {
        let layout = Layout::strided(&[3, 4], &[1, 3], 0).unwrap();
        let order = Order::of_memory(&layout);
        assert!(Strides::new(&layout, &order).unwrap().flat);
        assert!(!Strides::new(&layout, &Order::AS_GIVEN).unwrap().flat);
    }
}
