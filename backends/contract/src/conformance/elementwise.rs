//! Filling, copying, converting and mixing: what moves elements and changes each by itself.

use super::placed::{Lie, Placed, assert_same_bits, draw, drawn, repeated, rounded};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::assert_close;
use crate::{DType, Device, HostSlice, HostVec, Layout, Result, View};

/// Shapes with and without elements, short and long, even and odd.
pub(super) const SHAPES: [&[usize]; 7] = [&[], &[1], &[7], &[3, 5], &[2, 3, 65], &[1030], &[2, 0]];

/// A filled view holds the value as its dtype rounds it, and its neighbours hold what they held.
pub fn fill_rounds_to_the_dtype<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        for lie in Lie::ALL {
            for shape in SHAPES {
                let out = Placed::output(device, dtype, shape, lie)?;
                device.fill(3.3, out.view())?;
                let want = vec![rounded(dtype, &[3.3])[0]; shape.iter().product()];
                assert_eq!(out.values()?, want, "{dtype} {lie:?} {shape:?}");
            }
        }
    }
    Ok(())
}

/// Infinities, NaN and the sign of zero survive a fill.
pub fn fill_keeps_special_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let out = Placed::output(device, dtype, &[3], Lie::Whole)?;
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0] {
            device.fill(value, out.view())?;
            for got in out.values()? {
                let same = got == value && got.is_sign_negative() == value.is_sign_negative();
                assert!(same || (got.is_nan() && value.is_nan()), "{dtype}: {got}, not {value}");
            }
        }
    }
    Ok(())
}

/// A view that names an element twice cannot be written, by any elementwise kernel.
pub fn an_output_that_repeats_elements_is_refused<D: Device>(device: &D) -> Result<()> {
    let (x, _) = drawn(device, DType::F32, 1, &[4, 3])?;
    let memory = device.alloc(DType::F32, 12)?;
    let rows = View::new(&memory, repeated(&[4, 3], 0)?);
    let crossing = View::new(&memory, Layout::strided(&[4, 3], &[2, 1], 0)?);
    for out in [rows, crossing] {
        refused_shape("fill", device.fill(1.0, out));
        refused_shape("copy", device.copy(x.view(), out));
        refused_shape("cast", device.cast(x.view(), out));
        refused_shape("scaled_add", device.scaled_add(1.0, x.view(), 0.0, out));
    }
    Ok(())
}

/// A copy has the values of its source, however both lie.
pub fn copy_moves_values_between_any_layouts<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        for (seed, shape) in SHAPES.into_iter().chain([&[40, 50][..], &[2, 33, 34]]).enumerate() {
            let values = draw(dtype, seed as u64, shape.iter().product(), 0.0, 200.0);
            for from in Lie::ALL {
                let x = Placed::new(device, dtype, shape, from, &values)?;
                for to in Lie::ALL {
                    let out = Placed::output(device, dtype, shape, to)?;
                    device.copy(x.view(), out.view())?;
                    assert_eq!(out.values()?, values, "{dtype} {shape:?} {from:?} to {to:?}");
                }
            }
        }
    }
    Ok(())
}

/// A copy moves bits: NaN payloads, subnormal numbers and large integers come out as they were.
pub fn copy_changes_no_bit<D: Device>(device: &D) -> Result<()> {
    let odd = [0x7FC0_1234u32, 0xFFC0_0001, 0x0000_0001, 0x8000_0000].map(f32::from_bits);
    let x = device.upload(HostSlice::F32(&odd))?;
    let out = device.alloc(DType::F32, 4)?;
    device.copy(View::whole(&x), View::whole(&out))?;
    assert_eq!(device.download(&out)?.as_slice().bytes(), HostSlice::F32(&odd).bytes());
    let large = [i64::MAX, i64::MIN, (1 << 53) + 1];
    let x = device.upload(HostSlice::I64(&large))?;
    let out = device.alloc(DType::I64, 3)?;
    device.copy(View::whole(&x), View::whole(&out))?;
    assert_eq!(device.download(&out)?, HostVec::I64(large.to_vec()));
    Ok(())
}

/// A row can be copied to many rows: strides of 0 repeat.
pub fn copy_repeats_along_strides_of_zero<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        let row = draw(dtype, 3, 5, 0.0, 100.0);
        let memory = device.upload(HostVec::from_f64(dtype, &row).as_slice())?;
        let out = Placed::output(device, dtype, &[70, 5], Lie::Gaps)?;
        device.copy(View::new(&memory, repeated(&[70, 5], 0)?), out.view())?;
        assert_eq!(out.values()?, row.repeat(70), "{dtype}");
        let out = Placed::output(device, dtype, &[5, 70], Lie::Whole)?;
        let columns = Layout::strided(&[5, 70], &[1, 0], 0)?;
        device.copy(View::new(&memory, columns), out.view())?;
        let want: Vec<f64> = row.iter().flat_map(|&value| vec![value; 70]).collect();
        assert_eq!(out.values()?, want, "{dtype}");
    }
    Ok(())
}

/// A view may be copied onto itself and within its buffer, but not onto a part of itself.
pub fn copy_within_a_buffer_needs_views_apart<D: Device>(device: &D) -> Result<()> {
    let memory = device.upload(HostSlice::F32(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))?;
    let run = |offset, len| View::new(&memory, Layout::flat(offset, len));
    device.copy(run(0, 6), run(0, 6))?;
    refused_shape("copy onto a part of itself", device.copy(run(0, 3), run(1, 3)));
    assert_eq!(device.download(&memory)?.to_f64(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    device.copy(run(0, 3), run(3, 3))?;
    assert_eq!(device.download(&memory)?.to_f64(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    Ok(())
}

/// Operands of other shapes or dtypes are refused, and nothing is written.
pub fn operands_that_disagree_are_refused<D: Device>(device: &D) -> Result<()> {
    let (six, values) = drawn(device, DType::F32, 1, &[6])?;
    let (matrix, _) = drawn(device, DType::F32, 2, &[2, 3])?;
    let (double, _) = drawn(device, DType::F64, 3, &[6])?;
    let whole = Placed::new(device, DType::I64, &[6], Lie::Whole, &[1.0; 6])?;
    refused_shape("copy", device.copy(matrix.view(), six.view()));
    refused_shape("cast", device.cast(matrix.view(), double.view()));
    refused_shape("scaled_add", device.scaled_add(1.0, matrix.view(), 1.0, six.view()));
    refused_dtype("copy", device.copy(double.view(), six.view()));
    refused_dtype("scaled_add", device.scaled_add(1.0, double.view(), 1.0, six.view()));
    refused_dtype("scaled_add", device.scaled_add(1.0, whole.view(), 1.0, whole.view()));
    assert_eq!(six.values()?, values);
    Ok(())
}

/// Every dtype converts to every other: floats to nearest, floats to integers toward zero.
pub fn cast_converts_between_all_dtypes<D: Device>(device: &D) -> Result<()> {
    for from in DType::ALL {
        for to in DType::ALL {
            let signed = [from, to].iter().all(|d| d.is_float() || *d == DType::I64);
            let low = if signed { -100.0 } else { 0.0 };
            for (seed, shape) in SHAPES.into_iter().enumerate() {
                let values = draw(from, seed as u64, shape.iter().product(), low, 100.0);
                let x = Placed::new(device, from, shape, Lie::ALL[seed % 5], &values)?;
                let out = Placed::output(device, to, shape, Lie::ALL[(seed + 2) % 5])?;
                device.cast(x.view(), out.view())?;
                assert_eq!(out.values()?, rounded(to, &values), "{from} to {to} {shape:?}");
            }
        }
    }
    Ok(())
}

/// Ties go to the even neighbour, what is too large becomes infinite, NaN stays NaN.
pub fn cast_rounds_to_nearest_even<D: Device>(device: &D) -> Result<()> {
    let eps = [1.0 / 256.0, 1.0 / 2048.0, 1.0 / 16_777_216.0];
    let cases = [(DType::BF16, eps[0]), (DType::F16, eps[1]), (DType::F32, eps[2])];
    for (to, half) in cases {
        let ulp = 2.0 * half;
        let x = [
            1.0 + half,
            1.0 + ulp + half,
            -1.0 - half,
            1.0 + half * 1.25,
            1.0 + half * 0.75,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            -0.0,
        ];
        let inf = f64::INFINITY;
        let want = [1.0, 1.0 + 2.0 * ulp, -1.0, 1.0 + ulp, 1.0, inf, -inf, f64::NAN, -0.0];
        let from = if to == DType::F32 { DType::F64 } else { DType::F32 };
        let x = Placed::new(device, from, &[9], Lie::Whole, &x)?;
        let out = Placed::output(device, to, &[9], Lie::Whole)?;
        device.cast(x.view(), out.view())?;
        assert_close("cast", DType::I64, &out.values()?, &want, 1.0);
        assert!(out.values()?[8].is_sign_negative(), "{to}: the sign of zero");
    }
    let x = Placed::new(device, DType::F32, &[2], Lie::Whole, &[65_519.0, 65_520.0])?;
    let out = Placed::output(device, DType::F16, &[2], Lie::Whole)?;
    device.cast(x.view(), out.view())?;
    assert_eq!(out.values()?, [65_504.0, f64::INFINITY]);
    Ok(())
}

/// Floats outside the range of an integer dtype become its nearest value.
pub fn cast_to_integers_truncates_and_saturates<D: Device>(device: &D) -> Result<()> {
    let x = [1.9, -1.9, 0.0, 1e30, -1e30, f64::INFINITY, f64::NEG_INFINITY, 255.5];
    let small = |max: f64| [1.0, 0.0, 0.0, max, 0.0, max, 0.0, 255.0];
    let (high, low) = (i64::MAX as f64, i64::MIN as f64);
    let cases = [
        (DType::U8, small(255.0)),
        (DType::U32, small(f64::from(u32::MAX))),
        (DType::I64, [1.0, -1.0, 0.0, high, low, high, low, 255.0]),
    ];
    for from in [DType::F32, DType::F64] {
        let x = Placed::new(device, from, &[8], Lie::Strided, &x)?;
        for (to, want) in cases {
            let out = Placed::output(device, to, &[8], Lie::Whole)?;
            device.cast(x.view(), out.view())?;
            assert_eq!(out.values()?, want, "{from} to {to}");
        }
    }
    Ok(())
}

/// `alpha * x + beta * out` for all factors, however the operands lie.
pub fn scaled_add_is_a_scaled_sum<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for (seed, shape) in SHAPES.into_iter().enumerate() {
            let count = shape.iter().product();
            let x_values = draw(dtype, seed as u64, count, -2.0, 2.0);
            let old_values = draw(dtype, 100 + seed as u64, count, -2.0, 2.0);
            for (alpha, beta) in [(1.0, 1.0), (-0.5, 1.0), (2.0, -3.0), (0.0, 1.0), (1.5, 0.0)] {
                for lie in Lie::ALL {
                    let x = Placed::new(device, dtype, shape, lie, &x_values)?;
                    let other = Lie::ALL[(lie as usize + 1) % 5];
                    let out = Placed::new(device, dtype, shape, other, &old_values)?;
                    device.scaled_add(alpha, x.view(), beta, out.view())?;
                    let pairs = x_values.iter().zip(&old_values);
                    let want: Vec<f64> = pairs.map(|(x, old)| alpha * x + beta * old).collect();
                    assert_close("scaled_add", dtype, &out.values()?, &want, 8.0);
                }
            }
        }
    }
    Ok(())
}

/// With `beta = 0` the old values are not read: NaN in them does not come through.
pub fn scaled_add_without_old_values_does_not_read_them<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let (x, values) = drawn(device, dtype, 1, &[5, 40])?;
        let out = Placed::output(device, dtype, &[5, 40], Lie::Transposed)?;
        device.scaled_add(-1.0, x.view(), 0.0, out.view())?;
        let want: Vec<f64> = values.iter().map(|x| -x).collect();
        assert_eq!(out.values()?, want, "{dtype}");
    }
    Ok(())
}

/// The source of a scaled sum may repeat, and may be the very view of the output.
pub fn scaled_add_takes_repeated_and_equal_views<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let row = draw(dtype, 5, 66, -2.0, 2.0);
        let memory = device.upload(HostVec::from_f64(dtype, &row).as_slice())?;
        let out = Placed::new(device, dtype, &[30, 66], Lie::Gaps, &[1.0; 30 * 66])?;
        device.scaled_add(2.0, View::new(&memory, repeated(&[30, 66], 0)?), 1.0, out.view())?;
        let want: Vec<f64> = row.repeat(30).iter().map(|x| 2.0 * x + 1.0).collect();
        assert_close("rows", dtype, &out.values()?, &want, 5.0);
        device.fill(1.5, out.view())?;
        device.scaled_add(2.0, out.view(), -1.0, out.view())?;
        assert_eq!(out.values()?, [1.5; 30 * 66], "{dtype}");
    }
    Ok(())
}

/// Equal inputs give equal bits.
pub fn moved_and_mixed_values_have_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let (x, _) = drawn(device, DType::F32, 1, &[37, 129])?;
    assert_same_bits("scaled_add", || {
        let out = Placed::new(device, DType::F32, &[37, 129], Lie::Gaps, &[0.1; 37 * 129])?;
        device.scaled_add(0.3, x.view(), 0.7, out.view())?;
        out.bytes()
    })
}
