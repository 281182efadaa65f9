//! Matrix products.

use super::oracle;
use super::placed::{Lie, Placed, assert_same_bits, draw, drawn, repeated};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::{assert_close, assert_each_close};
use crate::{DType, Device, HostVec, Layout, Result, View};

/// Rows, inner dimension and columns.
const SIZES: [(usize, usize, usize); 11] = [
    (1, 1, 1),
    (2, 3, 4),
    (5, 7, 3),
    (17, 33, 9),
    (1, 64, 1),
    (1, 40, 50),
    (50, 40, 1),
    (33, 1, 65),
    (64, 64, 64),
    (0, 3, 4),
    (3, 4, 0),
];

/// One product, compared with loops.
fn check_product<D: Device>(
    device: &D,
    dtype: DType,
    batch: &[usize],
    (m, k, n): (usize, usize, usize),
    (alpha, beta): (f64, f64),
    lies: [Lie; 3],
) -> Result<()> {
    let shape = |rows, columns| [batch, &[rows, columns]].concat();
    let count: usize = batch.iter().product();
    let a_values = draw(dtype, 1, count * m * k, -1.0, 1.0);
    let b_values = draw(dtype, 2, count * k * n, -1.0, 1.0);
    let old_values = draw(dtype, 3, count * m * n, -1.0, 1.0);
    let a = Placed::new(device, dtype, &shape(m, k), lies[0], &a_values)?;
    let b = Placed::new(device, dtype, &shape(k, n), lies[1], &b_values)?;
    let out = if beta == 0.0 {
        Placed::output(device, dtype, &shape(m, n), lies[2])?
    } else {
        Placed::new(device, dtype, &shape(m, n), lies[2], &old_values)?
    };
    device.matmul(alpha, a.view(), b.view(), beta, out.view())?;
    let sizes = |values: &[f64]| values.iter().map(|x| x.abs()).collect::<Vec<_>>();
    let product = oracle::matmul(count, (m, k, n), &a_values, &b_values);
    let magnitude = oracle::matmul(count, (m, k, n), &sizes(&a_values), &sizes(&b_values));
    let mixed = product.iter().zip(&old_values).map(|(product, old)| match beta {
        0.0 => alpha * product,
        _ => alpha * product + beta * old,
    });
    let magnitude: Vec<f64> = magnitude.iter().map(|x| alpha.abs() * x + beta.abs()).collect();
    let what = format!("{batch:?} {m}x{k}x{n} alpha {alpha} beta {beta} {lies:?}");
    assert_each_close(&what, dtype, &out.values()?, &mixed.collect::<Vec<_>>(), &magnitude);
    Ok(())
}

/// Products of all sizes in every float dtype.
pub fn products_have_their_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for size in SIZES {
            check_product(device, dtype, &[], size, (1.0, 0.0), [Lie::Whole; 3])?;
            check_product(device, dtype, &[3], size, (1.0, 0.0), [Lie::Whole; 3])?;
        }
        check_product(device, dtype, &[2, 3], (5, 6, 7), (1.0, 0.0), [Lie::Whole; 3])?;
        check_product(device, dtype, &[0], (5, 6, 7), (1.0, 0.0), [Lie::Whole; 3])?;
    }
    Ok(())
}

/// Transposes, gaps and offsets of each operand and of the result make no difference.
pub fn products_take_any_layout<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for a in Lie::ALL {
            for b in Lie::ALL {
                for out in Lie::ALL {
                    check_product(device, dtype, &[], (9, 17, 5), (1.0, 1.0), [a, b, out])?;
                    check_product(device, dtype, &[2, 2], (3, 4, 5), (1.0, 0.0), [a, b, out])?;
                }
            }
        }
    }
    Ok(())
}

/// `alpha` scales the product and `beta` the old values; with 0 these are not read.
pub fn products_are_scaled_and_added<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for factors in [(1.0, 1.0), (-0.5, 0.0), (2.0, -1.5), (0.0, 1.0), (0.0, 0.0), (0.25, 1.0)] {
            for lie in [Lie::Whole, Lie::Transposed, Lie::Gaps] {
                check_product(
                    device,
                    dtype,
                    &[],
                    (19, 23, 21),
                    factors,
                    [Lie::Whole, Lie::Gaps, lie],
                )?;
                check_product(
                    device,
                    dtype,
                    &[2],
                    (4, 8, 1),
                    factors,
                    [Lie::Whole, Lie::Whole, lie],
                )?;
            }
        }
    }
    Ok(())
}

/// A product over nothing is 0: what remains is `beta` times the old values.
pub fn a_product_over_nothing_is_zero<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for lies in [[Lie::Whole; 3], [Lie::Gaps; 3]] {
            check_product(device, dtype, &[], (3, 0, 4), (1.0, 0.0), lies)?;
            check_product(device, dtype, &[2], (3, 0, 4), (1.0, 1.0), lies)?;
            check_product(device, dtype, &[], (3, 0, 4), (1.0, -2.0), lies)?;
        }
    }
    Ok(())
}

/// One matrix can stand for a whole batch by a stride of 0.
pub fn one_matrix_serves_a_batch<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let (a, a_values) = drawn(device, dtype, 1, &[3, 4, 5])?;
        let b_values = draw(dtype, 2, 30, -1.0, 1.0);
        let memory = device.upload(HostVec::from_f64(dtype, &b_values).as_slice())?;
        let out = Placed::output(device, dtype, &[3, 4, 6], Lie::Whole)?;
        let b = View::new(&memory, repeated(&[3, 5, 6], 0)?);
        device.matmul(1.0, a.view(), b, 0.0, out.view())?;
        let want = oracle::matmul(3, (4, 5, 6), &a_values, &b_values.repeat(3));
        assert_close("repeated b", dtype, &out.values()?, &want, 10.0);
    }
    Ok(())
}

/// Products of 16-bit floats are summed in `f32` and rounded once.
pub fn products_of_16_bit_floats_are_summed_in_f32<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::BF16, DType::F16] {
        for (m, n) in [(1, 1), (3, 5), (1, 8)] {
            let k = 5000;
            let a = Placed::new(device, dtype, &[m, k], Lie::Whole, &vec![1.0; m * k])?;
            let b = Placed::new(device, dtype, &[k, n], Lie::Transposed, &vec![1.0; k * n])?;
            let out = Placed::output(device, dtype, &[m, n], Lie::Whole)?;
            device.matmul(1.0, a.view(), b.view(), 0.0, out.view())?;
            assert_close("5000 ones", dtype, &out.values()?, &vec![5000.0; m * n], 1.0);
        }
        // Large terms cancel in f32; rounded to 16 bits one by one they would leave an error.
        let a = Placed::new(device, dtype, &[1, 3], Lie::Whole, &[255.0, 255.0, 1.0])?;
        let b = Placed::new(device, dtype, &[3, 1], Lie::Whole, &[201.0, -201.0, 1.0])?;
        let out = Placed::output(device, dtype, &[1, 1], Lie::Whole)?;
        device.matmul(1.0, a.view(), b.view(), 0.0, out.view())?;
        assert_eq!(out.values()?, [1.0], "{dtype}");
    }
    Ok(())
}

/// NaN and infinity reach the rows and columns they belong to and no others.
pub fn nan_stays_in_its_row<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let mut values = draw(dtype, 1, 9 * 20, 0.5, 1.0);
        values[4 * 20 + 3] = f64::NAN;
        let a = Placed::new(device, dtype, &[9, 20], Lie::Whole, &values)?;
        let b = Placed::new(device, dtype, &[20, 6], Lie::Whole, &[1.0; 120])?;
        let out = Placed::output(device, dtype, &[9, 6], Lie::Whole)?;
        device.matmul(1.0, a.view(), b.view(), 0.0, out.view())?;
        for (index, value) in out.values()?.into_iter().enumerate() {
            assert_eq!(value.is_nan(), index / 6 == 4, "{dtype}: element {index} is {value}");
        }
    }
    Ok(())
}

/// Equal inputs give equal bits.
pub fn products_have_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let (a, _) = drawn(device, dtype, 1, &[2, 65, 130])?;
        let (b, _) = drawn(device, dtype, 2, &[2, 130, 70])?;
        assert_same_bits("matmul", || {
            let out = Placed::output(device, dtype, &[2, 65, 70], Lie::Whole)?;
            device.matmul(1.0, a.view(), b.view(), 0.0, out.view())?;
            out.bytes()
        })?;
    }
    Ok(())
}

/// Matrices that do not fit one another are refused, with both shapes in the message.
pub fn matrices_that_do_not_fit_are_refused<D: Device>(device: &D) -> Result<()> {
    let new = |shape: &[usize]| Placed::output(device, DType::F32, shape, Lie::Whole);
    let cases: [[&[usize]; 3]; 7] = [
        [&[2, 3], &[4, 5], &[2, 5]],
        [&[2, 3], &[3, 5], &[5, 2]],
        [&[2, 2, 3], &[3, 3, 5], &[2, 2, 5]],
        [&[2, 2, 3], &[3, 5], &[2, 2, 5]],
        [&[3], &[3, 5], &[5]],
        [&[2, 3], &[3], &[2]],
        [&[2, 3], &[3, 5], &[1, 2, 5]],
    ];
    for [a, b, out] in cases {
        let (x, y, z) = (new(a)?, new(b)?, new(out)?);
        let refused = device.matmul(1.0, x.view(), y.view(), 0.0, z.view());
        refused_shape(&format!("{a:?} times {b:?} to {out:?}"), refused);
    }
    let (x, y) = (new(&[32, 64])?, new(&[80, 25])?);
    let out = new(&[32, 25])?;
    let message = device.matmul(1.0, x.view(), y.view(), 0.0, out.view()).unwrap_err().to_string();
    for word in ["matmul", "[32, 64]", "[80, 25]"] {
        assert!(message.contains(word), "{word} is missing in: {message}");
    }
    Ok(())
}

/// Integers, mixed dtypes and outputs that overlap an operand or themselves are refused.
pub fn products_of_unfit_operands_are_refused<D: Device>(device: &D) -> Result<()> {
    let (x, values) = drawn(device, DType::F32, 1, &[3, 3])?;
    let (double, _) = drawn(device, DType::F64, 1, &[3, 3])?;
    let whole = Placed::new(device, DType::I64, &[3, 3], Lie::Whole, &[1.0; 9])?;
    let out = Placed::output(device, DType::F32, &[3, 3], Lie::Whole)?;
    let (x, double, whole, out) = (x, double.view(), whole.view(), out.view());
    refused_dtype("mixed", device.matmul(1.0, x.view(), double, 0.0, out));
    refused_dtype("mixed", device.matmul(1.0, double, double, 0.0, out));
    refused_dtype("integers", device.matmul(1.0, whole, whole, 0.0, whole));
    refused_shape("in place", device.matmul(1.0, x.view(), out, 0.0, x.view()));
    let transposed = View::new(x.buffer(), x.view().layout.transpose(0, 1)?);
    refused_shape("over its transpose", device.matmul(1.0, x.view(), out, 0.0, transposed));
    let row = View::new(out.buffer, Layout::strided(&[3, 3], &[0, 1], 0)?);
    refused_shape("repeated", device.matmul(1.0, x.view(), x.view(), 0.0, row));
    assert_eq!(x.values()?, values);
    Ok(())
}
