//! Rotary position embedding.

use super::scratch::Scratch;
use crate::{Error, Kernels, Result, Rotation, View, ViewOf, check};

/// Composition of [`Kernels::rotary`].
///
/// # Errors
/// `x` and `out` of unequal shape or dtype, fewer than two dimensions, an odd last one, or tables
/// of another shape or dtype.
pub fn rotary<K: Kernels>(
    device: &K,
    rotation: Rotation,
    x: ViewOf<'_, K>,
    cos: ViewOf<'_, K>,
    sin: ViewOf<'_, K>,
    out: ViewOf<'_, K>,
) -> Result<()> {
    check::float_elementwise("rotary", &[x], out)?;
    let &[.., length, size] = &x.layout.shape()[..] else {
        let detail = format!("x is {:?}, expected [..., T, D]", x.layout.shape());
        return Err(Error::shape("rotary", detail));
    };
    if size % 2 != 0 {
        let detail = format!("the last dimension of x {:?} is odd", x.layout.shape());
        return Err(Error::shape("rotary", detail));
    }
    let half = size / 2;
    for (name, table) in [("cos", cos), ("sin", sin)] {
        check::fits("rotary", table)?;
        check::dtype("rotary", table, x.dtype().accumulator())?;
        check::shape("rotary", name, table, &[length, half])?;
    }
    let part = |view: ViewOf<'_, K>, at| view.layout.narrow(view.layout.ndim() - 1, at, half);
    let first = Scratch::wide(device, View::new(x.buffer, part(x, 0)?))?;
    let second = Scratch::wide(device, View::new(x.buffer, part(x, half)?))?;
    let cos = Scratch::of(device, cos);
    let sin = match rotation {
        Rotation::Forward => Scratch::of(device, sin),
        Rotation::Backward => Scratch::of(device, sin).scaled(-1.0)?,
    };
    let turned_first = first.times(&cos)?.minus(&second.times(&sin)?)?;
    let turned_second = second.times(&cos)?.plus(&first.times(&sin)?)?;
    turned_first.store(View::new(out.buffer, part(out, 0)?))?;
    turned_second.store(View::new(out.buffer, part(out, half)?))
}
