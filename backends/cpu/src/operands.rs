//! The operands of one kernel call: claimed, checked against one another, and handed out as typed
//! pointers.
//!
//! A kernel claims its outputs first and then its inputs:
//!
//! ```ignore
//! let operands = Operands::of("unary");
//! let out = operands.output::<f32>(out)?;
//! let x = operands.input_in_place::<f32>(x)?;
//! ```
//!
//! Several outputs may lie in one buffer if they are disjoint, several inputs may share one, and
//! an input may lie in the buffer of an output if it is disjoint from it or, where the kernel
//! allows it, the very same view. Everything else is an error that says so.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::slice;

use sneppx_contract::{Element, Error, Layout, Result, View};

use crate::buffer::{Claim, CpuBuffer};

/// The claims of one call. They end when this is dropped, and with them every operand.
pub(crate) struct Operands<'a> {
    operation: &'static str,
    claimed: RefCell<Vec<Claimed<'a>>>,
    outputs: RefCell<Vec<View<'a, CpuBuffer>>>,
}

struct Claimed<'a> {
    buffer: &'a CpuBuffer,
    exclusive: bool,
    _claim: Claim<'a>,
}

/// A view to be read.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a, T> {
    start: *const T,
    layout: Layout,
    in_place: bool,
    _borrow: PhantomData<&'a [T]>,
}

/// A view to be written.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a, T> {
    start: *mut T,
    layout: Layout,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: the pointers name memory whose claim outlives the operands; several threads may read an
// input, and the writing methods of an output are unsafe and ask for disjoint places.
unsafe impl<T: Sync> Send for Input<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Input<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Output<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Output<'_, T> {}

impl<'a> Operands<'a> {
    /// No operands yet.
    pub(crate) fn of(operation: &'static str) -> Self {
        Operands { operation, claimed: RefCell::default(), outputs: RefCell::default() }
    }

    /// Claims a view to be written. The checks of the contract's `check` module come before this.
    pub(crate) fn output<T: Element>(&self, view: View<'a, CpuBuffer>) -> Result<Output<'_, T>> {
        self.expect::<T>(view)?;
        for other in self.outputs.borrow().iter() {
            if other.buffer_is(view) && !disjoint(&other.layout, &view.layout) {
                let detail = format!(
                    "the outputs {:?} and {:?} overlap in one buffer; give each its own",
                    other.layout, view.layout
                );
                return Err(Error::shape(self.operation, detail));
            }
        }
        self.claim(view.buffer, true)?;
        self.outputs.borrow_mut().push(view);
        // SAFETY: the layout was checked to lie inside the buffer.
        let start = unsafe { view.buffer.start::<T>().as_ptr().add(offset(view)) };
        Ok(Output { start, layout: view.layout, _borrow: PhantomData })
    }

    /// Claims a view to be read that must be disjoint from every output.
    pub(crate) fn input<T: Element>(&self, view: View<'a, CpuBuffer>) -> Result<Input<'_, T>> {
        let input = self.input_in_place(view)?;
        if input.in_place {
            return Err(self.overlap(view, &view.layout));
        }
        Ok(input)
    }

    /// Claims a view to be read that may also be the very view of an output.
    pub(crate) fn input_in_place<T: Element>(
        &self,
        view: View<'a, CpuBuffer>,
    ) -> Result<Input<'_, T>> {
        self.expect::<T>(view)?;
        let mut in_place = false;
        for output in self.outputs.borrow().iter() {
            if !output.buffer_is(view) || disjoint(&output.layout, &view.layout) {
                continue;
            }
            if !same_places(&output.layout, &view.layout) {
                return Err(self.overlap(view, &output.layout));
            }
            in_place = true;
        }
        self.claim(view.buffer, false)?;
        // SAFETY: the layout was checked to lie inside the buffer.
        let start = unsafe { view.buffer.start::<T>().as_ptr().add(offset(view)) };
        Ok(Input { start, layout: view.layout, in_place, _borrow: PhantomData })
    }

    fn claim(&self, buffer: &'a CpuBuffer, exclusive: bool) -> Result<()> {
        use sneppx_contract::Buffer;
        let mut claimed = self.claimed.borrow_mut();
        let held = claimed.iter().find(|held| held.buffer.same_memory(buffer));
        if held.is_some_and(|held| held.exclusive || !exclusive) {
            return Ok(());
        }
        let claim = match exclusive {
            true => buffer.claim_exclusive(self.operation)?,
            false => buffer.claim_shared(self.operation)?,
        };
        claimed.push(Claimed { buffer, exclusive, _claim: claim });
        Ok(())
    }

    fn expect<T: Element>(&self, view: View<'a, CpuBuffer>) -> Result<()> {
        if view.dtype() != T::DTYPE {
            return Err(Error::dtype(self.operation, T::DTYPE.name(), view.dtype()));
        }
        view.layout.check(self.operation, sneppx_contract::Buffer::len(view.buffer))
    }

    fn overlap(&self, input: View<'a, CpuBuffer>, output: &Layout) -> Error {
        let detail = format!(
            "the input {:?} overlaps the output {output:?} in one buffer; write to another buffer",
            input.layout
        );
        Error::shape(self.operation, detail)
    }
}

impl<'a, T: Element> Input<'a, T> {
    /// The first element; others lie at the strides of [`Input::layout`], whose offset is already
    /// counted. Reading through it is sound while the operand lives, except for places of an
    /// output that another thread may be writing.
    pub(crate) fn pointer(&self) -> *const T {
        self.start
    }

    /// Shape and strides; the offset is that of the buffer and counted in [`Input::pointer`].
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether this is the view of an output: each element must be read before it is written.
    pub(crate) fn in_place(&self) -> bool {
        self.in_place
    }

    /// All elements in order, if they lie in one run that the call does not write.
    pub(crate) fn slice(&self) -> Option<&'a [T]> {
        if self.in_place || !self.layout.is_contiguous() {
            return None;
        }
        // SAFETY: the run lies inside the buffer, is initialised, and no output overlaps it.
        Some(unsafe { slice::from_raw_parts(self.start, self.layout.numel()) })
    }

    /// `len` elements from `at` on, counted from the first element along the memory.
    ///
    /// # Safety
    /// They belong to the view, and nobody writes them while the slice lives.
    pub(crate) unsafe fn run(&self, at: usize, len: usize) -> &'a [T] {
        // SAFETY: the caller's promise; memory of buffers is always initialised.
        unsafe { slice::from_raw_parts(self.start.add(at), len) }
    }
}

impl<'a, T: Element> Output<'a, T> {
    /// The first element; others lie at the strides of [`Output::layout`], whose offset is already
    /// counted. Writing is sound for places of the view that no other thread touches.
    pub(crate) fn pointer(&self) -> *mut T {
        self.start
    }

    /// Shape and strides; the offset is that of the buffer and counted in [`Output::pointer`].
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// `len` elements from `at` on, counted from the first element along the memory.
    ///
    /// # Safety
    /// They belong to the view, and nobody else reads or writes them while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn run(&self, at: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise; memory of buffers is always initialised.
        unsafe { slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}

trait SameBuffer {
    fn buffer_is(&self, other: Self) -> bool;
}

impl SameBuffer for View<'_, CpuBuffer> {
    fn buffer_is(&self, other: Self) -> bool {
        sneppx_contract::Buffer::same_memory(self.buffer, other.buffer)
    }
}

/// The offset of the first element; 0 for an empty view, whose offset may lie anywhere.
fn offset(view: View<'_, CpuBuffer>) -> usize {
    if view.numel() == 0 { 0 } else { view.layout.offset() }
}

/// Whether two layouts name the same element at every index. A dimension of size 1 has no second
/// element for its stride to lead to.
fn same_places(left: &Layout, right: &Layout) -> bool {
    let strides = left.strides().iter().zip(right.strides());
    left.offset() == right.offset()
        && left.shape() == right.shape()
        && left.shape().iter().zip(strides).all(|(&size, (left, right))| size == 1 || left == right)
}

/// Whether two layouts provably name no common element: their extents do not meet, or they are
/// different columns of rows of one length.
pub(crate) fn disjoint(left: &Layout, right: &Layout) -> bool {
    if left.numel() == 0 || right.numel() == 0 {
        return true;
    }
    let (Some(left_end), Some(right_end)) = (left.end(), right.end()) else { return false };
    if left_end <= right.offset() || right_end <= left.offset() {
        return true;
    }
    let pitches = left.strides().iter().chain(right.strides());
    pitches.filter(|&&pitch| pitch > 1).any(|&pitch| {
        match (columns(left, pitch), columns(right, pitch)) {
            (Some(left), Some(right)) => left.1 <= right.0 || right.1 <= left.0,
            _ => false,
        }
    })
}

/// The columns that a layout touches in rows of `pitch` elements, if each of its strides is a
/// whole number of rows or stays inside one.
fn columns(layout: &Layout, pitch: usize) -> Option<(usize, usize)> {
    let first = layout.offset() % pitch;
    let mut end = first + 1;
    for (&size, &stride) in layout.shape().iter().zip(layout.strides()) {
        if stride % pitch != 0 {
            end += (size - 1) * stride;
        }
    }
    (end <= pitch).then_some((first, end))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sneppx_contract::DType;

    use super::*;

    fn layout(shape: &[usize], strides: &[usize], offset: usize) -> Layout {
        Layout::strided(shape, strides, offset).unwrap()
    }

    #[test]
    fn columns_of_one_matrix_are_disjoint_and_shifted_ones_are_not() {
        // q, k and v of a fused product: [B, H, T, D] inside [B, T, 3, H, D].
        let part = |at| layout(&[2, 4, 3, 8], &[3 * 96, 8, 96, 1], at);
        assert!(disjoint(&part(0), &part(32)) && disjoint(&part(64), &part(32)));
        assert!(!disjoint(&part(0), &part(31)));
        assert!(!disjoint(&part(0), &part(0)));
        assert!(disjoint(&layout(&[4], &[1], 0), &layout(&[4], &[1], 4)));
        assert!(!disjoint(&layout(&[4], &[1], 0), &layout(&[4], &[1], 3)));
        assert!(disjoint(&layout(&[4], &[2], 0), &layout(&[4], &[2], 1)));
        assert!(disjoint(&layout(&[0], &[1], 2), &layout(&[4], &[1], 0)));
    }

    /// Every pair of small layouts: what is called disjoint must be disjoint.
    #[test]
    fn what_is_called_disjoint_has_no_common_element() {
        let mut layouts = Vec::new();
        for rows in 1..4 {
            for columns in 1..4 {
                for pitch in [1, 2, 3, 4, 6] {
                    for step in [0, 1, 2, 3] {
                        for offset in 0..5 {
                            layouts.push(layout(&[rows, columns], &[pitch, step], offset));
                        }
                    }
                }
            }
        }
        let places = |l: &Layout| (0..l.numel()).map(|i| l.position(i)).collect::<Vec<_>>();
        for left in &layouts {
            let taken = places(left);
            for right in &layouts {
                if disjoint(left, right) {
                    assert!(!places(right).iter().any(|p| taken.contains(p)), "{left:?} {right:?}");
                }
            }
        }
    }

    #[test]
    fn inputs_may_be_the_output_or_apart_from_it_and_nothing_else() {
        let buffer = CpuBuffer::from_pool(&Arc::default(), DType::F32, 8).unwrap();
        let view = |offset, len| View::new(&buffer, Layout::flat(offset, len));
        let operands = Operands::of("trial");
        operands.output::<f32>(view(0, 4)).unwrap();
        assert!(operands.input_in_place::<f32>(view(0, 4)).unwrap().in_place());
        assert!(!operands.input::<f32>(view(4, 4)).unwrap().in_place());
        for refused in [
            operands.input::<f32>(view(0, 4)).err(),
            operands.input_in_place::<f32>(view(1, 4)).err(),
            operands.output::<f32>(view(3, 4)).err(),
        ] {
            let message = refused.expect("an overlap").to_string();
            assert!(message.contains("trial") && message.contains("overlap"), "{message}");
        }
        operands.output::<f32>(view(4, 4)).unwrap();
    }

    #[test]
    fn strides_of_dimensions_of_size_1_make_no_other_view() {
        let buffer = CpuBuffer::from_pool(&Arc::default(), DType::F32, 8).unwrap();
        let operands = Operands::of("trial");
        operands.output::<f32>(View::new(&buffer, layout(&[4, 1], &[1, 1], 0))).unwrap();
        let same = View::new(&buffer, layout(&[4, 1], &[1, 0], 0));
        assert!(operands.input_in_place::<f32>(same).unwrap().in_place());
        let other = View::new(&buffer, layout(&[4, 1], &[2, 1], 0));
        assert!(operands.input_in_place::<f32>(other).is_err());
    }

    #[test]
    fn claims_end_with_the_call() {
        let buffer = CpuBuffer::from_pool(&Arc::default(), DType::F32, 8).unwrap();
        let operands = Operands::of("trial");
        operands.input::<f32>(View::whole(&buffer)).unwrap();
        operands.input::<f32>(View::whole(&buffer)).unwrap();
        assert!(buffer.write::<f32>().is_err() && buffer.read::<f32>().is_ok());
        drop(operands);
        assert!(buffer.write::<f32>().is_ok());
    }
}
