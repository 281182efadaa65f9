//! Elementwise loops over one, two or three inputs: the part that all of them share.
//!
//! A kernel brings a function over slices of at most [`BLOCK`] elements; views, widening and
//! threads are handled here.

use sneppx_contract::{Element, Result};

use crate::blocks::{BLOCK, Order, Source, Target, scratch};
use crate::element::Stored;
use crate::operands::{Input, Output};
use crate::parallel::for_each_block;

/// Elements of one task: scratch memory is set up once in it.
const TASK: usize = 16 * BLOCK;

/// How expensive one element is, in elementary operations; decides what is worth a second thread.
#[derive(Clone, Copy)]
pub(crate) enum Cost {
    /// A few instructions.
    Cheap,
    /// Something like an exponential.
    Function,
}

impl Cost {
    fn of(self, numel: usize) -> usize {
        match self {
            Cost::Cheap => numel,
            Cost::Function => numel.saturating_mul(8),
        }
    }
}

/// `out = body()`, in the dtype of `out`; `body` gets the number of the first element, too.
///
/// Elements are numbered in row-major order of `out`.
pub(crate) fn generate<T: Stored>(
    out: Output<'_, T>,
    cost: Cost,
    body: impl Fn(usize, &mut [T]) + Sync,
) -> Result<()> {
    let numel = out.layout().numel();
    let out = Target::new(out, &Order::AS_GIVEN)?;
    for_each_block(numel, TASK, cost.of(numel), |task| {
        let mut to = scratch();
        for start in task.clone().step_by(BLOCK) {
            let len = BLOCK.min(task.end - start);
            // SAFETY: tasks are disjoint.
            unsafe { out.block(start, len, &mut to, |out| body(start, out)) };
        }
    });
    Ok(())
}

/// `out = body(x)` on elements as they are stored.
pub(crate) fn map_stored<A: Element, O: Element>(
    x: Input<'_, A>,
    out: Output<'_, O>,
    cost: Cost,
    body: impl Fn(&[A], &mut [O]) + Sync,
) -> Result<()> {
    let numel = out.layout().numel();
    let order = Order::of_memory(out.layout());
    let (x, out) = (Source::new(x, &order)?, Target::new(out, &order)?);
    for_each_block(numel, TASK, cost.of(numel), |task| {
        let (mut from, mut to) = (scratch(), scratch());
        for start in task.clone().step_by(BLOCK) {
            let len = BLOCK.min(task.end - start);
            // SAFETY: tasks are disjoint, and an input in place is copied before it is written.
            unsafe {
                let x = x.block(start, len, &mut from);
                out.block(start, len, &mut to, |out| body(x, out));
            }
        }
    });
    Ok(())
}

/// `out = body(a, b)` on elements as they are stored.
pub(crate) fn map_stored_pair<A: Element, O: Element>(
    a: Input<'_, A>,
    b: Input<'_, A>,
    out: Output<'_, O>,
    body: impl Fn(&[A], &[A], &mut [O]) + Sync,
) -> Result<()> {
    let numel = out.layout().numel();
    let order = Order::of_memory(out.layout());
    let (a, b) = (Source::new(a, &order)?, Source::new(b, &order)?);
    let out = Target::new(out, &order)?;
    for_each_block(numel, TASK, Cost::Cheap.of(numel), |task| {
        let (mut from_a, mut from_b, mut to) = (scratch(), scratch(), scratch());
        for start in task.clone().step_by(BLOCK) {
            let len = BLOCK.min(task.end - start);
            // SAFETY: as in `map_stored`.
            unsafe {
                let a = a.block(start, len, &mut from_a);
                let b = b.block(start, len, &mut from_b);
                out.block(start, len, &mut to, |out| body(a, b, out));
            }
        }
    });
    Ok(())
}

/// `out = body(condition, a, b)` on elements as they are stored.
pub(crate) fn map_stored_choice<T: Element>(
    condition: Input<'_, u8>,
    a: Input<'_, T>,
    b: Input<'_, T>,
    out: Output<'_, T>,
    body: impl Fn(&[u8], &[T], &[T], &mut [T]) + Sync,
) -> Result<()> {
    let numel = out.layout().numel();
    let order = Order::of_memory(out.layout());
    let condition = Source::new(condition, &order)?;
    let (a, b) = (Source::new(a, &order)?, Source::new(b, &order)?);
    let out = Target::new(out, &order)?;
    for_each_block(numel, TASK, Cost::Cheap.of(numel), |task| {
        let mut from_condition = scratch();
        let (mut from_a, mut from_b, mut to) = (scratch(), scratch(), scratch());
        for start in task.clone().step_by(BLOCK) {
            let len = BLOCK.min(task.end - start);
            // SAFETY: as in `map_stored`.
            unsafe {
                let condition = condition.block(start, len, &mut from_condition);
                let a = a.block(start, len, &mut from_a);
                let b = b.block(start, len, &mut from_b);
                out.block(start, len, &mut to, |out| body(condition, a, b, out));
            }
        }
    });
    Ok(())
}

/// `out = body(x)` in the type of arithmetic.
pub(crate) fn map<T: Stored>(
    x: Input<'_, T>,
    out: Output<'_, T>,
    cost: Cost,
    body: impl Fn(&[T::Acc], &mut [T::Acc]) + Sync,
) -> Result<()> {
    let numel = out.layout().numel();
    let order = Order::of_memory(out.layout());
    let (x, out) = (Source::new(x, &order)?, Target::new(out, &order)?);
    for_each_block(numel, TASK, cost.of(numel), |task| {
        let (mut from, mut wide_from) = (scratch(), scratch());
        let (mut to, mut wide_to) = (scratch(), scratch());
        for start in task.clone().step_by(BLOCK) {
            let len = BLOCK.min(task.end - start);
            // SAFETY: as in `map_stored`.
            unsafe {
                let x = x.wide_block(start, len, &mut from, &mut wide_from);
                out.wide_block(start, len, &mut to, &mut wide_to, |out| body(x, out));
            }
        }
    });
    Ok(())
}

/// `out = body(a, b)` in the type of arithmetic.
pub(crate) fn map_pair<T: Stored>(
    a: Input<'_, T>,
    b: Input<'_, T>,
    out: Output<'_, T>,
    cost: Cost,
    body: impl Fn(&[T::Acc], &[T::Acc], &mut [T::Acc]) + Sync,
) -> Result<()> {
    let numel = out.layout().numel();
    let order = Order::of_memory(out.layout());
    let (a, b) = (Source::new(a, &order)?, Source::new(b, &order)?);
    let out = Target::new(out, &order)?;
    for_each_block(numel, TASK, cost.of(numel), |task| {
        let (mut from_a, mut wide_a) = (scratch(), scratch());
        let (mut from_b, mut wide_b) = (scratch(), scratch());
        let (mut to, mut wide_to) = (scratch(), scratch());
        for start in task.clone().step_by(BLOCK) {
            let len = BLOCK.min(task.end - start);
            // SAFETY: as in `map_stored`.
            unsafe {
                let a = a.wide_block(start, len, &mut from_a, &mut wide_a);
                let b = b.wide_block(start, len, &mut from_b, &mut wide_b);
                out.wide_block(start, len, &mut to, &mut wide_to, |out| body(a, b, out));
            }
        }
    });
    Ok(())
}
