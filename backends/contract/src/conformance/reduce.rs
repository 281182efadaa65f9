//! Sums and extremes over dimensions.

use super::oracle;
use super::placed::{Lie, Placed, assert_same_bits, draw, drawn, repeated};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::{assert_close, assert_each_close};
use crate::{DType, Device, HostVec, ReduceKind, Result, Store, View};

const SUM: ReduceKind = ReduceKind::Sum;

/// A shape and what each of its dimensions may become.
const CASES: [(&[usize], &[usize]); 12] = [
    (&[], &[]),
    (&[1], &[1]),
    (&[7], &[1]),
    (&[7], &[7]),
    (&[3, 5], &[3, 1]),
    (&[3, 5], &[1, 5]),
    (&[3, 5], &[1, 1]),
    (&[2, 3, 65], &[2, 1, 65]),
    (&[2, 3, 65], &[1, 3, 1]),
    (&[4, 1, 300], &[1, 1, 300]),
    (&[3, 2, 5, 4], &[3, 1, 1, 4]),
    (&[2, 1500], &[2, 1]),
];

/// Sums over any dimensions, in every float dtype, however the operands lie.
pub fn sums_run_over_any_dimensions<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for (seed, (from, to)) in CASES.into_iter().enumerate() {
            let values = draw(dtype, seed as u64, from.iter().product(), -2.0, 2.0);
            let want = oracle::reduce(SUM, from, to, &values);
            let sizes: Vec<f64> = values.iter().map(|x| x.abs()).collect();
            let magnitude = oracle::reduce(SUM, from, to, &sizes);
            for lie in Lie::ALL {
                let x = Placed::new(device, dtype, from, lie, &values)?;
                let out = Placed::output(device, dtype, to, Lie::ALL[(lie as usize + 2) % 5])?;
                device.reduce(SUM, x.view(), Store::Overwrite, out.view())?;
                let what = format!("sum {from:?} to {to:?} {lie:?}");
                assert_each_close(&what, dtype, &out.values()?, &want, &magnitude);
            }
        }
    }
    Ok(())
}

/// Extremes over any dimensions are elements of what they were taken of.
pub fn extremes_run_over_any_dimensions<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::U32, DType::I64] {
        for kind in [ReduceKind::Max, ReduceKind::Min] {
            for (seed, (from, to)) in CASES.into_iter().enumerate() {
                let low = if dtype == DType::U32 { 0.0 } else { -90.0 };
                let values = draw(dtype, seed as u64, from.iter().product(), low, 90.0);
                let want = oracle::reduce(kind, from, to, &values);
                let x = Placed::new(device, dtype, from, Lie::ALL[seed % 5], &values)?;
                let out = Placed::output(device, dtype, to, Lie::ALL[(seed + 1) % 5])?;
                device.reduce(kind, x.view(), Store::Overwrite, out.view())?;
                assert_eq!(out.values()?, want, "{kind:?} {dtype} {from:?} to {to:?}");
            }
        }
    }
    Ok(())
}

/// Sums of integers are exact.
pub fn sums_of_integers_are_exact<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::U32, DType::I64] {
        for (seed, (from, to)) in CASES.into_iter().enumerate() {
            let values = draw(dtype, seed as u64, from.iter().product(), 0.0, 1e6);
            let x = Placed::new(device, dtype, from, Lie::ALL[seed % 5], &values)?;
            let out = Placed::output(device, dtype, to, Lie::Whole)?;
            device.reduce(SUM, x.view(), Store::Overwrite, out.view())?;
            assert_eq!(out.values()?, oracle::reduce(SUM, from, to, &values), "{dtype} {from:?}");
        }
    }
    Ok(())
}

/// One NaN among the numbers makes the extreme NaN, wherever it stands.
pub fn an_extreme_of_nan_is_nan<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for kind in [ReduceKind::Max, ReduceKind::Min] {
            for place in [0, 1, 63, 64, 299] {
                let mut values = draw(dtype, 1, 300, -2.0, 2.0);
                values[place] = f64::NAN;
                let x = Placed::new(device, dtype, &[1, 300], Lie::Whole, &values)?;
                let row = Placed::output(device, dtype, &[1, 1], Lie::Whole)?;
                device.reduce(kind, x.view(), Store::Overwrite, row.view())?;
                assert!(row.values()?[0].is_nan(), "{dtype} {kind:?}, NaN at {place} of a row");
                let x = Placed::new(device, dtype, &[300, 1], Lie::Gaps, &values)?;
                device.reduce(kind, x.view(), Store::Overwrite, row.view())?;
                assert!(row.values()?[0].is_nan(), "{dtype} {kind:?}, NaN at {place} of a column");
            }
        }
    }
    Ok(())
}

/// Infinities are ordinary extremes: a row of -inf has the largest element -inf.
pub fn extremes_of_infinities_are_infinite<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for (kind, value) in
            [(ReduceKind::Max, f64::NEG_INFINITY), (ReduceKind::Min, f64::INFINITY)]
        {
            let x = Placed::new(device, dtype, &[2, 70], Lie::Whole, &[value; 140])?;
            let out = Placed::output(device, dtype, &[2, 1], Lie::Whole)?;
            device.reduce(kind, x.view(), Store::Overwrite, out.view())?;
            assert_eq!(out.values()?, [value; 2], "{dtype} {kind:?}");
        }
    }
    Ok(())
}

/// A long sum of 16-bit floats is formed in `f32`, and one of `f32` keeps its digits.
pub fn long_sums_keep_their_digits<D: Device>(device: &D) -> Result<()> {
    // A running sum of ones in bf16 stops at 256, in f16 at 2048.
    for (dtype, count) in [(DType::BF16, 30_000), (DType::F16, 30_000), (DType::F32, 1 << 20)] {
        let ones = vec![1.0; count];
        for shape in [[1, count], [count, 1]] {
            let x = Placed::new(device, dtype, &shape, Lie::Whole, &ones)?;
            let out = Placed::output(device, dtype, &[1, 1], Lie::Whole)?;
            device.reduce(SUM, x.view(), Store::Overwrite, out.view())?;
            assert_close("ones", dtype, &out.values()?, &[count as f64], 1.0);
        }
    }
    let values = draw(DType::F32, 3, 1 << 20, 0.0, 1.0);
    for shape in [[1, 1 << 20], [1 << 20, 1]] {
        let x = Placed::new(device, DType::F32, &shape, Lie::Whole, &values)?;
        let out = Placed::output(device, DType::F32, &[1, 1], Lie::Whole)?;
        device.reduce(SUM, x.view(), Store::Overwrite, out.view())?;
        assert_close("a million numbers", DType::F32, &out.values()?, &[values.iter().sum()], 1.0);
    }
    Ok(())
}

/// A sum can be added to what the output holds.
pub fn sums_can_be_added_to_old_values<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::U32] {
        for (seed, (from, to)) in CASES.into_iter().enumerate() {
            let values = draw(dtype, seed as u64, from.iter().product(), 0.0, 3.0);
            let old = draw(dtype, 70, to.iter().product(), 0.0, 3.0);
            let x = Placed::new(device, dtype, from, Lie::ALL[seed % 5], &values)?;
            let out = Placed::new(device, dtype, to, Lie::ALL[(seed + 3) % 5], &old)?;
            device.reduce(SUM, x.view(), Store::Add, out.view())?;
            let sums = oracle::reduce(SUM, from, to, &values);
            let want: Vec<f64> = sums.iter().zip(&old).map(|(sum, old)| sum + old).collect();
            assert_each_close(&format!("{from:?} to {to:?}"), dtype, &out.values()?, &want, &want);
        }
    }
    Ok(())
}

/// The sum of nothing is 0, or leaves old values alone; the extreme of nothing is an error.
pub fn the_sum_of_nothing_is_zero<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let x = Placed::new(device, dtype, &[0, 3], Lie::Whole, &[])?;
        let out = Placed::output(device, dtype, &[1, 3], Lie::Gaps)?;
        device.reduce(SUM, x.view(), Store::Overwrite, out.view())?;
        assert_eq!(out.values()?, [0.0; 3], "{dtype}");
        let out = Placed::new(device, dtype, &[1, 3], Lie::Gaps, &[1.0, 2.0, 3.0])?;
        device.reduce(SUM, x.view(), Store::Add, out.view())?;
        assert_eq!(out.values()?, [1.0, 2.0, 3.0], "{dtype}");
        for kind in [ReduceKind::Max, ReduceKind::Min] {
            let refused = device.reduce(kind, x.view(), Store::Overwrite, out.view());
            refused_shape("extreme of nothing", refused);
            let nothing = Placed::output(device, dtype, &[0, 1], Lie::Whole)?;
            device.reduce(kind, x.view(), Store::Overwrite, nothing.view())?;
        }
    }
    Ok(())
}

/// Views with strides of 0 are summed as often as they repeat.
pub fn repeated_elements_are_summed_each_time<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let row = [1.0, -2.0, 3.0];
        let memory = device.upload(HostVec::from_f64(dtype, &row).as_slice())?;
        let x = View::new(&memory, repeated(&[50, 3], 0)?);
        let out = Placed::output(device, dtype, &[1, 3], Lie::Whole)?;
        device.reduce(SUM, x, Store::Overwrite, out.view())?;
        assert_eq!(out.values()?, [50.0, -100.0, 150.0], "{dtype}");
        let out = Placed::output(device, dtype, &[50, 1], Lie::Whole)?;
        device.reduce(SUM, x, Store::Overwrite, out.view())?;
        assert_eq!(out.values()?, [2.0; 50], "{dtype}");
    }
    Ok(())
}

/// The order of a sum depends on the shapes: the same numbers lying otherwise give the same bits,
/// and so does every run.
pub fn the_bits_of_a_sum_depend_on_shapes_alone<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for (from, to) in [
            (&[37, 300][..], &[37, 1][..]),
            (&[300, 37], &[1, 37]),
            (&[9, 70, 11], &[1, 70, 1]),
            (&[3, 5000], &[1, 1]),
        ] {
            let values = draw(dtype, 9, from.iter().product(), -1.0, 1.0);
            let sum = |lie: Lie| -> Result<Vec<u8>> {
                let x = Placed::new(device, dtype, from, lie, &values)?;
                let out = Placed::output(device, dtype, to, Lie::Whole)?;
                device.reduce(SUM, x.view(), Store::Overwrite, out.view())?;
                out.bytes()
            };
            let first = sum(Lie::Whole)?;
            for lie in Lie::ALL {
                assert!(sum(lie)? == first, "{dtype} {from:?} to {to:?}: {lie:?} differs");
                assert_same_bits("sum", || sum(lie))?;
            }
        }
    }
    Ok(())
}

/// Outputs that are no reduction of the input are refused, and extremes cannot be added.
pub fn shapes_that_do_not_reduce_are_refused<D: Device>(device: &D) -> Result<()> {
    let (x, _) = drawn(device, DType::F32, 1, &[2, 3])?;
    let out = |shape: &[usize]| Placed::output(device, DType::F32, shape, Lie::Whole);
    for shape in [&[2][..], &[2, 2], &[3, 3], &[1, 1, 1], &[]] {
        let refused = device.reduce(SUM, x.view(), Store::Overwrite, out(shape)?.view());
        refused_shape(&format!("[2, 3] to {shape:?}"), refused);
    }
    let row = out(&[2, 1])?;
    refused_shape("added", device.reduce(ReduceKind::Max, x.view(), Store::Add, row.view()));
    let double = Placed::output(device, DType::F64, &[2, 1], Lie::Whole)?;
    refused_dtype("f64", device.reduce(SUM, x.view(), Store::Overwrite, double.view()));
    let repeated = View::new(x.buffer(), repeated(&[2, 1], 0)?);
    refused_shape("repeated", device.reduce(SUM, row.view(), Store::Overwrite, repeated));
    Ok(())
}
