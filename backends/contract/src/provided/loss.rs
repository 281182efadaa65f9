//! Cross entropy straight from logits.
//!
//! With `z` the logits less their largest and `s = log(sum(exp(z)))`, the loss of a row with target
//! `t` is `(1 - e) * (s - z[t]) + e * (s - mean(z))`: no term holds the size of the logits, so huge
//! ones lose nothing.

use super::scratch::Scratch;
use crate::{
    CrossEntropy, Error, HostSlice, HostVec, Kernels, ReduceKind, Result, UnaryOp, View, ViewOf,
    check,
};

/// Composition of [`Kernels::cross_entropy`].
///
/// # Errors
/// Operands of other shapes or dtypes than the method states, a smoothing outside `0 ..= 1`, or
/// [`Error::IndexOutOfRange`] for a target that is neither a class nor ignored.
pub fn cross_entropy<K: Kernels>(
    device: &K,
    spec: CrossEntropy,
    logits: ViewOf<'_, K>,
    targets: ViewOf<'_, K>,
    losses: ViewOf<'_, K>,
    log_sum_exp: ViewOf<'_, K>,
) -> Result<()> {
    let (rows, classes) = check::cross_entropy(logits, targets, [losses, log_sum_exp])?;
    check::output("cross_entropy", losses)?;
    check::output("cross_entropy", log_sum_exp)?;
    let picked = Picked::read(device, spec, targets, classes)?;
    if rows == 0 {
        return Ok(());
    }
    let logits = Scratch::wide(device, logits)?;
    let largest = logits.reduce_last(ReduceKind::Max)?;
    let shifted = logits.minus(&largest)?;
    let sums = shifted.unary(UnaryOp::Exp)?.reduce_last(ReduceKind::Sum)?.unary(UnaryOp::Log)?;
    let at_target = Scratch::dense(device, losses.dtype(), *losses.layout.shape())?;
    let flat = shifted.reshape(&[rows * classes])?;
    device.index_select(flat.view(), picked.places.view(), at_target.view())?;
    let mut loss = sums.minus(&at_target.reshape(&[rows, 1])?)?;
    // Not where it has no weight: a class ruled out by -inf would turn the rest to NaN.
    if spec.label_smoothing > 0.0 {
        let uniform = sums.minus(&shifted.mean_last()?)?.scaled(spec.label_smoothing)?;
        loss = loss.scaled(1.0 - spec.label_smoothing)?.plus(&uniform)?;
    }
    sums.plus(&largest)?.store(log_sum_exp)?;
    loss.reshape(&[rows])?.where_or(&picked.counted, 0.0)?.store(losses)
}

/// Composition of [`Kernels::cross_entropy_backward`].
///
/// # Errors
/// As [`cross_entropy`].
pub fn cross_entropy_backward<K: Kernels>(
    device: &K,
    spec: CrossEntropy,
    logits: ViewOf<'_, K>,
    targets: ViewOf<'_, K>,
    log_sum_exp: ViewOf<'_, K>,
    dlosses: ViewOf<'_, K>,
    dlogits: ViewOf<'_, K>,
) -> Result<()> {
    const NAME: &str = "cross_entropy_backward";
    let (rows, classes) = check::cross_entropy(logits, targets, [log_sum_exp, dlosses])?;
    check::float_elementwise(NAME, &[logits], dlogits)?;
    let picked = Picked::read(device, spec, targets, classes)?;
    if rows == 0 {
        return Ok(());
    }
    let per_row = [rows, 1];
    let logits = Scratch::wide(device, logits)?;
    let log_sum_exp = Scratch::of(device, log_sum_exp).reshape(&per_row)?;
    // The logarithm of huge logits is rounded to their spacing; dividing by the sum undoes that.
    let unscaled = logits.minus(&log_sum_exp)?.unary(UnaryOp::Exp)?;
    let probabilities = unscaled.over(&unscaled.reduce_last(ReduceKind::Sum)?)?;
    let uniform = -spec.label_smoothing / classes as f64;
    let gradient = probabilities.affine(1.0, uniform)?.reshape(&[rows * classes])?;
    let hit = Scratch::dense(device, gradient.view().dtype(), *targets.layout.shape())?;
    device.fill(spec.label_smoothing - 1.0, hit.view())?;
    device.index_add(picked.places.view(), hit.view(), gradient.view())?;
    let dlosses = Scratch::of(device, dlosses).reshape(&per_row)?;
    let counted = picked.counted.reshape(&per_row)?;
    gradient.reshape(&[rows, classes])?.times(&dlosses)?.where_or(&counted, 0.0)?.store(dlogits)
}

/// Where the targets' logits lie in the flat matrix, and which rows count (`U8`). Rows that do not
/// point at their first class.
struct Picked<'d, K: Kernels> {
    places: Scratch<'d, K>,
    counted: Scratch<'d, K>,
}

impl<'d, K: Kernels> Picked<'d, K> {
    fn read(
        device: &'d K,
        spec: CrossEntropy,
        targets: ViewOf<'_, K>,
        classes: usize,
    ) -> Result<Self> {
        const NAME: &str = "cross_entropy";
        check::label_smoothing(spec.label_smoothing)?;
        let rows = targets.numel();
        let mut places = Vec::with_capacity(rows);
        let mut counted = Vec::with_capacity(rows);
        for (row, target) in read_indices(device, targets)?.into_iter().enumerate() {
            let ignored = target == spec.ignore_index;
            let class = if ignored { 0 } else { check::index(NAME, target, row, classes)? };
            let place = i64::try_from(row * classes + class);
            places.push(place.map_err(|_| Error::shape(NAME, "the logits are too many to index"))?);
            counted.push(u8::from(!ignored));
        }
        let places = device.upload(HostSlice::I64(&places))?;
        let counted = device.upload(HostSlice::U8(&counted))?;
        let places = Scratch::of(device, View::whole(&places));
        Ok(Picked { places, counted: Scratch::of(device, View::whole(&counted)) })
    }
}

fn read_indices<K: Kernels>(device: &K, view: ViewOf<'_, K>) -> Result<Vec<i64>> {
    if view.numel() == 0 {
        return Ok(Vec::new());
    }
    let (first, count) = (view.layout.offset(), view.numel());
    let end = view.layout.end().unwrap_or(first);
    let places = (0..count).map(|index| view.layout.position(index) - first);
    match device.read(view.buffer, first..end)? {
        HostVec::I64(values) => Ok(places.map(|place| values[place]).collect()),
        HostVec::U32(values) => Ok(places.map(|place| i64::from(values[place])).collect()),
        other => Err(Error::dtype("cross_entropy", "u32 or i64", other.dtype())),
    }
}
