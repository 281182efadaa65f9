//! Sums of squares, the finite check and the tree.

use super::placed::{Lie, Placed, assert_same_bits, draw, drawn};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::{assert_close, assert_each_close};
use crate::{DType, Device, HostVec, Result, SUM_BLOCK, View};

fn sums_of_squares<D: Device>(device: &D, dtype: DType, values: &[f64]) -> Result<Vec<f64>> {
    let x = Placed::new(device, dtype, &[values.len()], Lie::Offset, values)?;
    let blocks = values.len().div_ceil(SUM_BLOCK);
    let out = Placed::output(device, dtype.accumulator(), &[blocks], Lie::Gaps)?;
    device.sums_of_squares(x.view(), out.view())?;
    out.values()
}

/// One sum for each block, the last of which may be short; none for no elements.
pub fn squares_are_summed_in_blocks<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for len in [0, 1, 77, SUM_BLOCK - 1, SUM_BLOCK, SUM_BLOCK + 1, 3 * SUM_BLOCK + 100] {
            let values = draw(dtype, len as u64, len, -3.0, 3.0);
            let square = |block: &[f64]| block.iter().map(|x| x * x).sum::<f64>();
            let want: Vec<f64> = values.chunks(SUM_BLOCK).map(square).collect();
            for got in on_both!(device, sums_of_squares(dtype, &values)) {
                assert_each_close(&format!("{len}"), dtype.accumulator(), &got, &want, &want);
            }
        }
    }
    Ok(())
}

/// A block has the same bits alone and among others: norms do not depend on the cut.
pub fn sums_of_squares_do_not_depend_on_the_cut<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let values = draw(dtype, 1, 5 * SUM_BLOCK + 33, -3.0, 3.0);
        let whole = on_both!(device, sums_of_squares(dtype, &values));
        for (number, block) in values.chunks(SUM_BLOCK).enumerate() {
            let alone = on_both!(device, sums_of_squares(dtype, block));
            for (whole, alone) in whole.iter().zip(&alone) {
                assert_eq!(alone[0], whole[number], "{dtype}: block {number}");
            }
        }
    }
    Ok(())
}

fn finite<D: Device>(device: &D, dtype: DType, lie: Lie, values: &[f64]) -> Result<bool> {
    let shape = [3, values.len() / 3];
    let x = Placed::new(device, dtype, &shape, lie, values)?;
    let out = Placed::output(device, DType::U8, &[1], Lie::Offset)?;
    device.all_finite(x.view(), out.view())?;
    let verdict = out.values()?[0];
    assert!(verdict == 0.0 || verdict == 1.0, "{dtype}: the verdict is {verdict}");
    Ok(verdict == 1.0)
}

/// One value that is not finite is found wherever it stands, and the largest numbers are finite.
pub fn one_value_that_is_not_finite_is_found<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let largest = match dtype {
            DType::F16 => 65_504.0,
            DType::F64 => f64::MAX,
            _ => f64::from(half::bf16::MAX.to_f32()),
        };
        for (number, len) in [3, 300, 9000].into_iter().enumerate() {
            for lie in Lie::ALL {
                let mut values = draw(dtype, 1, len, -3.0, 3.0);
                (values[0], values[len - 1]) = (largest, -largest);
                for verdict in on_both!(device, finite(dtype, lie, &values)) {
                    assert!(verdict, "{dtype}: {len} finite numbers, {lie:?}");
                }
                let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][number];
                for place in [0, len / 2, len - 1] {
                    let mut values = values.clone();
                    values[place] = bad;
                    for verdict in on_both!(device, finite(dtype, lie, &values)) {
                        assert!(!verdict, "{dtype}: {bad} at {place} of {len}, {lie:?}");
                    }
                }
            }
        }
        for verdict in on_both!(device, finite(dtype, Lie::Whole, &[])) {
            assert!(verdict, "{dtype}: nothing is finite");
        }
    }
    Ok(())
}

/// What lies around a view does not count.
pub fn values_around_a_view_may_be_nan<D: Device>(device: &D) -> Result<()> {
    fn verdict<D: Device>(device: &D, dtype: DType) -> Result<f64> {
        let mut values = vec![f64::NAN; 40];
        (1..40).step_by(2).for_each(|place| values[place] = 1.0);
        let x = device.upload(HostVec::from_f64(dtype, &values).as_slice())?;
        let x = View::new(&x, crate::Layout::strided(&[4, 5], &[10, 2], 1)?);
        let out = Placed::output(device, DType::U8, &[1], Lie::Whole)?;
        device.all_finite(x, out.view())?;
        Ok(out.values()?[0])
    }
    for dtype in DType::FLOATS {
        assert_eq!(on_both!(device, verdict(dtype)), [1.0; 2], "{dtype}");
    }
    Ok(())
}

fn tree_sum<D: Device>(
    device: &D,
    dtype: DType,
    (shape, lie): (&[usize], usize),
    nodes: &[Vec<f64>],
) -> Result<Vec<f64>> {
    let place = |(number, values): (usize, &Vec<f64>)| {
        Placed::new(device, dtype, shape, Lie::ALL[(lie + number) % 5], values)
    };
    let nodes: Vec<Placed<D>> = nodes.iter().enumerate().map(place).collect::<Result<_>>()?;
    let out = Placed::output(device, dtype, shape, Lie::ALL[(lie + 2) % 5])?;
    let views: Vec<_> = nodes.iter().map(Placed::view).collect();
    device.tree_sum(&views, out.view())?;
    let beside = out.values()?;
    device.tree_sum(&views, views[views.len() - 1])?;
    assert_eq!(nodes[nodes.len() - 1].values()?, beside, "{dtype}: over the last node");
    Ok(beside)
}

/// Sums of any number of nodes, however they lie, beside and over a node.
pub fn tree_sums_have_their_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for (lie, shape) in super::elementwise::SHAPES.into_iter().enumerate() {
            for count in [1, 2, 3, 4, 5, 8, 13] {
                let len = shape.iter().product();
                let nodes: Vec<Vec<f64>> =
                    (0..count).map(|seed| draw(dtype, seed, len, -2.0, 2.0)).collect();
                let sum = |i: usize| nodes.iter().map(|node| node[i]).sum::<f64>();
                let want: Vec<f64> = (0..len).map(sum).collect();
                for got in on_both!(device, tree_sum(dtype, (shape, lie), &nodes)) {
                    let what = format!("{count} nodes of {shape:?}");
                    assert_close(&what, dtype, &got, &want, 2.0 * count as f64);
                }
            }
        }
    }
    Ok(())
}

/// The tree is the binary one on the nodes' numbers: every `f32` addition is where it should be.
pub fn tree_sums_add_along_the_tree<D: Device>(device: &D) -> Result<()> {
    let (big, cases) = (
        1e8,
        [
            // Sequentially the fourth would survive.
            (vec![1e8, 1.0, -1e8, 1.0], 0.0),
            (vec![1e8, -1e8, 1.0], 1.0),
            (vec![1e8, 1.0, -1e8], 0.0),
            // (0 + 1) + (2 + 3), then node 4 as its own parent: 4 meets the sum of all others.
            (vec![1e8, -1e8, 1.0, 1.0, 5.0], 7.0),
            (vec![0.0, 1e8, 0.0, 0.0, 1.0, -1e8], 0.0),
            (vec![1.0, 1.0, 1.0, 1e8, -1e8, 0.0, 0.0], 0.0),
        ],
    );
    assert_eq!(big as f32 + 1.0, big as f32, "the cases need a number that swallows 1");
    for (values, want) in cases {
        let nodes: Vec<Vec<f64>> = values.iter().map(|&value| vec![value; 70]).collect();
        for got in on_both!(device, tree_sum(DType::F32, (&[70], 0), &nodes)) {
            assert_eq!(got, [want; 70], "{values:?}");
        }
    }
    Ok(())
}

/// Operands of other shapes and dtypes are refused, and so is a tree of nothing.
pub fn unfit_sums_are_refused<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let (x, _) = drawn(device, DType::F32, 1, &[6])?;
        let (matrix, _) = drawn(device, DType::F32, 1, &[2, 3])?;
        let (double, _) = drawn(device, DType::F64, 1, &[6])?;
        let new = |dtype, shape: &[usize]| Placed::output(device, dtype, shape, Lie::Whole);
        let (one, two) = (new(DType::F32, &[1])?, new(DType::F32, &[2])?);
        let (byte, bytes) = (new(DType::U8, &[1])?, new(DType::U8, &[2])?);
        let (wide, whole) = (new(DType::F64, &[1])?, new(DType::I64, &[6])?);
        let gaps = new(DType::F32, &[6])?;
        let gaps = View::new(gaps.buffer(), crate::Layout::strided(&[3], &[2], 0)?);
        let (x, matrix, double) = (x.view(), matrix.view(), double.view());
        let (one, two, wide, whole) = (one.view(), two.view(), wide.view(), whole.view());
        refused_shape("two blocks", device.sums_of_squares(x, two));
        refused_shape("gaps", device.sums_of_squares(gaps, one));
        refused_dtype("wide sums", device.sums_of_squares(x, wide));
        refused_dtype("integers", device.sums_of_squares(whole, one));
        refused_shape("two verdicts", device.all_finite(x, bytes.view()));
        refused_dtype("a float verdict", device.all_finite(x, one));
        refused_dtype("integers", device.all_finite(whole, byte.view()));
        refused_shape("no nodes", device.tree_sum(&[], x));
        refused_shape("another shape", device.tree_sum(&[x, matrix], x));
        refused_dtype("another dtype", device.tree_sum(&[x, double], x));
        refused_dtype("integers", device.tree_sum(&[whole], whole));
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}

/// Equal inputs give equal bits.
pub fn sums_give_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let (x, _) = drawn(device, DType::F32, 1, &[100_000])?;
    assert_same_bits("sums_of_squares and tree_sum", || {
        let blocks = 100_000usize.div_ceil(SUM_BLOCK);
        let sums = Placed::output(device, DType::F32, &[blocks], Lie::Whole)?;
        device.sums_of_squares(x.view(), sums.view())?;
        let out = Placed::output(device, DType::F32, &[100_000], Lie::Whole)?;
        device.tree_sum(&[x.view(), x.view(), x.view()], out.view())?;
        Ok([sums.bytes()?, out.bytes()?].concat())
    })
}
