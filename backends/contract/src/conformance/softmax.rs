//! Softmax over the last dimension and its derivative.

use super::oracle;
use super::placed::{Lie, Placed, assert_same_bits, draw, drawn};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::{assert_close, tolerance};
use crate::{DType, Device, Result};

const SHAPES: [&[usize]; 9] =
    [&[1], &[2], &[7], &[3, 5], &[2, 3, 65], &[4, 1], &[2, 1000], &[0, 3], &[3, 0]];

fn softmax<D: Device>(
    device: &D,
    dtype: DType,
    shape: &[usize],
    lie: usize,
    values: &[f64],
) -> Result<[Vec<f64>; 2]> {
    let x = Placed::new(device, dtype, shape, Lie::ALL[lie % 5], values)?;
    let out = Placed::output(device, dtype, shape, Lie::ALL[(lie + 1) % 5])?;
    device.softmax(x.view(), out.view())?;
    device.softmax(x.view(), x.view())?;
    Ok([out.values()?, x.values()?])
}

fn softmax_backward<D: Device>(
    device: &D,
    dtype: DType,
    shape: &[usize],
    lie: usize,
    (y, dy): (&[f64], &[f64]),
) -> Result<Vec<f64>> {
    let y = Placed::new(device, dtype, shape, Lie::ALL[lie % 5], y)?;
    let dy = Placed::new(device, dtype, shape, Lie::ALL[(lie + 1) % 5], dy)?;
    let dx = Placed::output(device, dtype, shape, Lie::ALL[(lie + 2) % 5])?;
    device.softmax_backward(y.view(), dy.view(), dx.view())?;
    dx.values()
}

/// Rows become weights, however they lie and in place.
pub fn softmax_has_its_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for shape in SHAPES {
            let (count, columns) = (shape.iter().product(), shape[shape.len() - 1]);
            let values = draw(dtype, 1, count, -6.0, 6.0);
            let want = oracle::softmax(&values, columns);
            for lie in 0..5 {
                for got in on_both!(device, softmax(dtype, shape, lie, &values)).as_flattened() {
                    assert_close(&format!("softmax {shape:?}"), dtype, got, &want, 0.0);
                }
            }
        }
    }
    Ok(())
}

/// Each row of weights sums to 1, whatever the size of its numbers.
pub fn softmax_rows_sum_to_one<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for height in [1.0, 100.0, 30_000.0] {
            let values = draw(dtype, 2, 4 * 333, -height, height);
            for got in on_both!(device, softmax(dtype, &[4, 333], 0, &values)).as_flattened() {
                for row in got.chunks(333) {
                    let sum: f64 = row.iter().sum();
                    let slack = 2.0 * tolerance(dtype);
                    assert!(
                        (sum - 1.0).abs() <= slack,
                        "{dtype}: a row of ±{height} sums to {sum}"
                    );
                    assert!(row.iter().all(|weight| (0.0..=1.0).contains(weight)));
                }
            }
        }
    }
    Ok(())
}

/// Hidden elements get the weight 0 exactly, and one visible element 1 exactly.
pub fn softmax_gives_hidden_elements_nothing<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let mut values = vec![f64::NEG_INFINITY; 3 * 70];
        values[69] = -5.0;
        values[70] = 3.0;
        values[71] = 3.0;
        values[140 + 64] = 0.0;
        let mut want = vec![0.0; 3 * 70];
        (want[69], want[70], want[71], want[140 + 64]) = (1.0, 0.5, 0.5, 1.0);
        for got in on_both!(device, softmax(dtype, &[3, 70], 0, &values)).as_flattened() {
            assert_eq!(*got, want, "{dtype}");
        }
    }
    Ok(())
}

/// The derivative has its values, however the operands lie.
pub fn softmax_has_its_derivative<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for shape in SHAPES {
            let (count, columns) = (shape.iter().product(), shape[shape.len() - 1]);
            let y = oracle::softmax(&draw(dtype, 1, count, -3.0, 3.0), columns);
            let y = super::placed::rounded(dtype, &y);
            let dy = draw(dtype, 2, count, -2.0, 2.0);
            let want = oracle::softmax_backward(&y, &dy, columns);
            for lie in 0..5 {
                for got in on_both!(device, softmax_backward(dtype, shape, lie, (&y, &dy))) {
                    assert_close(&format!("{shape:?}"), dtype, &got, &want, 1.0);
                }
            }
        }
    }
    Ok(())
}

/// Scalars, integers and operands that disagree are refused.
pub fn unfit_softmax_is_refused<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let (x, _) = drawn(device, DType::F32, 1, &[2, 3])?;
        let (other, _) = drawn(device, DType::F32, 1, &[3, 2])?;
        let (double, _) = drawn(device, DType::F64, 1, &[2, 3])?;
        let scalar = Placed::output(device, DType::F32, &[], Lie::Whole)?;
        let whole = Placed::output(device, DType::I64, &[2, 3], Lie::Whole)?;
        let (x, other, double) = (x.view(), other.view(), double.view());
        let (scalar, whole) = (scalar.view(), whole.view());
        refused_shape("a scalar", device.softmax(scalar, scalar));
        refused_shape("other shape", device.softmax(other, x));
        refused_dtype("mixed", device.softmax(double, x));
        refused_dtype("integers", device.softmax(whole, whole));
        refused_shape("other shape", device.softmax_backward(x, other, x));
        refused_dtype("mixed", device.softmax_backward(x, double, x));
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}

/// Equal inputs give equal bits.
pub fn softmax_gives_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let (x, _) = drawn(device, DType::F32, 1, &[65, 1001])?;
    assert_same_bits("softmax", || {
        let out = Placed::output(device, DType::F32, &[65, 1001], Lie::Whole)?;
        device.softmax(x.view(), out.view())?;
        device.softmax_backward(out.view(), x.view(), out.view())?;
        out.bytes()
    })
}
