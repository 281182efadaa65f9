//! Rotary position embedding.

use super::oracle::fused;
use super::placed::{Lie, Placed, draw, drawn};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::assert_close;
use crate::{DType, Device, Result, Rotation};

const SHAPES: [&[usize]; 7] =
    [&[1, 2], &[5, 4], &[2, 3, 7, 6], &[2, 9, 64], &[3, 5, 130], &[0, 3, 4], &[2, 3, 0]];

/// The result beside and over `x`.
fn rotate<D: Device>(
    device: &D,
    dtype: DType,
    (rotation, shape, lie): (Rotation, &[usize], usize),
    x: &[f64],
    tables: [&[f64]; 2],
) -> Result<[Vec<f64>; 2]> {
    let lie = |number: usize| Lie::ALL[(lie + number) % 5];
    let x = Placed::new(device, dtype, shape, lie(0), x)?;
    let out = Placed::output(device, dtype, shape, lie(1))?;
    let half = [shape[shape.len() - 2], shape[shape.len() - 1] / 2];
    let table =
        |number, values| Placed::new(device, dtype.accumulator(), &half, lie(number), values);
    let (cos, sin) = (table(2, tables[0])?, table(3, tables[1])?);
    device.rotary(rotation, x.view(), cos.view(), sin.view(), out.view())?;
    device.rotary(rotation, x.view(), cos.view(), sin.view(), x.view())?;
    Ok([out.values()?, x.values()?])
}

/// Both directions, however the operands lie and in place.
pub fn rotations_have_their_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for (lie, shape) in SHAPES.into_iter().enumerate() {
            for rotation in [Rotation::Forward, Rotation::Backward] {
                let &[.., positions, size] = shape else { unreachable!("two dimensions") };
                let x = draw(dtype, 1, shape.iter().product(), -2.0, 2.0);
                let table = |seed| draw(dtype.accumulator(), seed, positions * size / 2, -1.0, 1.0);
                let (cos, sin) = (table(2), table(3));
                let want = fused::rotary(rotation, size, &x, &cos, &sin);
                let tables = [&cos[..], &sin];
                let got = on_both!(device, rotate(dtype, (rotation, shape, lie), &x, tables));
                for got in got.as_flattened() {
                    assert_close(&format!("{rotation:?} {shape:?}"), dtype, got, &want, 4.0);
                }
            }
        }
    }
    Ok(())
}

/// Rotating back undoes a rotation: it is its own derivative with the angle turned.
pub fn rotating_back_undoes_a_rotation<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        let (x, values) = drawn(device, dtype, 1, &[2, 8, 6])?;
        let angle = |i: usize| (i / 3) as f64 * 0.7_f64.powi((i % 3) as i32);
        let cos: Vec<f64> = (0..24).map(|i| angle(i).cos()).collect();
        let sin: Vec<f64> = (0..24).map(|i| angle(i).sin()).collect();
        let cos = Placed::new(device, dtype, &[8, 3], Lie::Whole, &cos)?;
        let sin = Placed::new(device, dtype, &[8, 3], Lie::Whole, &sin)?;
        for rotation in [Rotation::Forward, Rotation::Backward] {
            device.rotary(rotation, x.view(), cos.view(), sin.view(), x.view())?;
        }
        assert_close("there and back", dtype, &x.values()?, &values, 2.0);
    }
    Ok(())
}

/// Odd sizes, tables of other shapes and dtypes, and vectors are refused.
pub fn unfit_rotations_are_refused<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let new = |dtype, shape: &[usize]| Placed::output(device, dtype, shape, Lie::Whole);
        let (x, odd) = (new(DType::F32, &[3, 4])?, new(DType::F32, &[3, 5])?);
        let (table, short) = (new(DType::F32, &[3, 2])?, new(DType::F32, &[2, 2])?);
        let (vector, half) = (new(DType::F32, &[4])?, new(DType::BF16, &[3, 4])?);
        let bytes = new(DType::BF16, &[3, 2])?;
        let run = |x: &Placed<D>, cos: &Placed<D>, sin: &Placed<D>, out: &Placed<D>| {
            device.rotary(Rotation::Forward, x.view(), cos.view(), sin.view(), out.view())
        };
        refused_shape("an odd size", run(&odd, &table, &table, &odd));
        refused_shape("a short table", run(&x, &short, &table, &x));
        refused_shape("a short table", run(&x, &table, &short, &x));
        refused_shape("a vector", run(&vector, &table, &table, &vector));
        refused_shape("another result", run(&x, &table, &table, &odd));
        refused_dtype("another result", run(&x, &table, &table, &half));
        refused_dtype("tables of 16 bits", run(&half, &bytes, &bytes, &half));
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}
