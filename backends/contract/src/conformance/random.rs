//! Random numbers and dropout, bit for bit those of the contract's generator.

use super::composed::Composed;
use super::placed::{Lie, Placed, draw, drawn, rounded};
use super::refusal::{refused_argument, refused_dtype, refused_shape};
use super::tolerance::assert_close;
use crate::{DType, Device, Distribution, RandomKey, Result, rng};

const UNIFORM: Distribution = Distribution::Uniform { low: -0.5, high: 1.5 };
const NORMAL: Distribution = Distribution::Normal { mean: 0.25, deviation: 0.02 };

/// Element `index` of a stream, by the definition.
fn number(distribution: Distribution, key: RandomKey, index: u64) -> f64 {
    match distribution {
        Distribution::Uniform { low, high } => {
            low + (high - low) * f64::from(rng::uniform(key.word(index)))
        }
        Distribution::Normal { mean, deviation } => {
            let first = index / 2 * 2;
            let pair = rng::normal_pair(key.word(first), key.word(first + 1));
            mean + deviation * f64::from(pair[(index % 2) as usize])
        }
    }
}

/// Every element is the number that its place in the stream names, at any offset and layout.
pub fn random_numbers_are_those_of_the_stream<D: Device>(device: &D) -> Result<()> {
    let key = RandomKey::from_seed(42).with_text("conformance");
    for dtype in DType::FLOATS {
        for distribution in [UNIFORM, NORMAL] {
            for offset in [0, 1, 2, 3, 5, 1 << 20, (1 << 34) - 3] {
                for (seed, shape) in super::elementwise::SHAPES.into_iter().enumerate() {
                    let lie = Lie::ALL[(seed + offset as usize) % 5];
                    let out = Placed::output(device, dtype, shape, lie)?;
                    device.random(distribution, key, offset, out.view())?;
                    let count = shape.iter().product::<usize>() as u64;
                    let want: Vec<f64> =
                        (0..count).map(|i| number(distribution, key, offset + i)).collect();
                    let want = rounded(dtype, &want);
                    assert_eq!(
                        out.values()?,
                        want,
                        "{distribution:?} {dtype} at {offset} {shape:?}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// A stream drawn in parts is the stream drawn at once.
pub fn random_numbers_do_not_depend_on_the_cut<D: Device>(device: &D) -> Result<()> {
    let key = RandomKey::from_seed(7);
    for distribution in [UNIFORM, NORMAL] {
        let whole = Placed::output(device, DType::F32, &[3001], Lie::Whole)?;
        device.random(distribution, key, 9, whole.view())?;
        let whole = whole.values()?;
        for (start, len) in [(0, 1), (1, 2), (3, 997), (1000, 2001)] {
            let part = Placed::output(device, DType::F32, &[len], Lie::Offset)?;
            device.random(distribution, key, 9 + start as u64, part.view())?;
            assert_eq!(part.values()?, whole[start..start + len], "{distribution:?} at {start}");
        }
    }
    Ok(())
}

/// Integers are not drawn.
pub fn random_integers_are_refused<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::U32, DType::I64, DType::U8] {
        let out = Placed::output(device, dtype, &[3], Lie::Whole)?;
        refused_dtype("random", device.random(UNIFORM, RandomKey::from_seed(1), 0, out.view()));
    }
    Ok(())
}

fn dropped<D: Device>(
    device: &D,
    dtype: DType,
    (probability, key, offset): (f64, RandomKey, u64),
    (shape, lie): (&[usize], usize),
    values: &[f64],
) -> Result<[Vec<f64>; 2]> {
    let x = Placed::new(device, dtype, shape, Lie::ALL[lie % 5], values)?;
    let out = Placed::output(device, dtype, shape, Lie::ALL[(lie + 1) % 5])?;
    device.dropout(probability, key, offset, x.view(), out.view())?;
    device.dropout(probability, key, offset, x.view(), x.view())?;
    Ok([out.values()?, x.values()?])
}

/// An element is kept exactly where its uniform number is at least the probability, and scaled.
pub fn dropout_keeps_what_the_stream_says<D: Device>(device: &D) -> Result<()> {
    let key = RandomKey::from_seed(3).with_text("dropout");
    for dtype in DType::FLOATS {
        for probability in [0.0, 0.1, 0.5, 0.9, 1.0] {
            for (seed, shape) in super::elementwise::SHAPES.into_iter().enumerate() {
                let (count, offset) = (shape.iter().product(), 3 * seed as u64);
                let x = draw(dtype, seed as u64, count, 0.5, 2.0);
                let kept =
                    |i: usize| f64::from(rng::uniform(key.word(offset + i as u64))) >= probability;
                let scaled = |i: usize| if kept(i) { x[i] / (1.0 - probability) } else { 0.0 };
                let want: Vec<f64> = (0..count).map(scaled).collect();
                let stream = (probability, key, offset);
                let own = dropped(device, dtype, stream, (shape, seed), &x)?;
                let composed = dropped(&Composed::of(device), dtype, stream, (shape, seed), &x)?;
                for got in own.iter().chain(&composed) {
                    assert_close(&format!("p = {probability}"), dtype, got, &want, 1.0);
                    let zeros = |values: &[f64]| values.iter().filter(|x| **x == 0.0).count();
                    assert_eq!(zeros(got), zeros(&want), "{dtype}: dropped elements are exactly 0");
                }
            }
        }
    }
    Ok(())
}

/// What is dropped is 0 even if it was NaN or infinite; with probability 0 nothing changes.
pub fn dropped_values_do_not_matter<D: Device>(device: &D) -> Result<()> {
    let key = RandomKey::from_seed(3);
    for dtype in DType::FLOATS {
        let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0];
        let own = dropped(device, dtype, (1.0, key, 0), (&[4], 0), &bad)?;
        let composed = dropped(&Composed::of(device), dtype, (1.0, key, 0), (&[4], 0), &bad)?;
        for got in own.iter().chain(&composed) {
            assert_eq!(*got, [0.0; 4], "{dtype}");
        }
        let (x, values) = drawn(device, dtype, 1, &[999])?;
        device.dropout(0.0, key, 0, x.view(), x.view())?;
        assert_eq!(x.values()?, values, "{dtype}");
    }
    Ok(())
}

/// Probabilities outside `0 ..= 1`, integers and other shapes are refused.
pub fn unfit_dropout_is_refused<D: Device>(device: &D) -> Result<()> {
    let key = RandomKey::from_seed(3);
    let (x, _) = drawn(device, DType::F32, 1, &[6])?;
    let (matrix, _) = drawn(device, DType::F32, 1, &[2, 3])?;
    let whole = Placed::output(device, DType::I64, &[6], Lie::Whole)?;
    for probability in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        refused_argument("dropout", device.dropout(probability, key, 0, x.view(), x.view()));
    }
    refused_shape("dropout", device.dropout(0.5, key, 0, matrix.view(), x.view()));
    refused_dtype("dropout", device.dropout(0.5, key, 0, whole.view(), whole.view()));
    Ok(())
}
