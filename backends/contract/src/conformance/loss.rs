//! Cross entropy straight from logits, and its derivative.

use super::oracle::fused;
use super::placed::{Lie, Placed, assert_same_bits, draw, drawn};
use super::refusal::{refused_argument, refused_dtype, refused_index, refused_shape};
use super::tolerance::{assert_close, assert_each_close};
use crate::{CrossEntropy, DType, Device, HostSlice, Layout, Result, View};

/// Rows and classes.
const SIZES: [(usize, usize); 8] =
    [(1, 1), (1, 2), (3, 5), (4, 65), (2, 1000), (70, 6), (2, 9000), (0, 4)];

const PLAIN: CrossEntropy = CrossEntropy { ignore_index: -100, label_smoothing: 0.0 };

/// The inputs of one loss.
struct Case {
    dtype: DType,
    index_dtype: DType,
    spec: CrossEntropy,
    size: (usize, usize),
    lie: usize,
    logits: Vec<f64>,
    targets: Vec<i64>,
    dlosses: Vec<f64>,
}

impl Case {
    fn all(dtype: DType) -> Vec<Case> {
        let mut cases = vec![];
        for size in SIZES {
            for (label_smoothing, ignore_index) in [(0.0, -100), (0.1, 0), (1.0, -100)] {
                let seed = cases.len() as u64;
                let (rows, classes) = size;
                // Every third row is ignored; with unsigned targets a class stands for that.
                let target = |row: usize| match row % 3 {
                    1 => ignore_index,
                    _ => (row * 7 + seed as usize) as i64 % classes as i64,
                };
                cases.push(Case {
                    dtype,
                    index_dtype: if ignore_index < 0 { DType::I64 } else { DType::U32 },
                    spec: CrossEntropy { ignore_index, label_smoothing },
                    size,
                    lie: cases.len(),
                    logits: draw(dtype, seed, rows * classes, -4.0, 4.0),
                    targets: (0..rows).map(target).collect(),
                    dlosses: draw(dtype.accumulator(), 90 + seed, rows, -1.0, 1.0),
                });
            }
        }
        cases
    }

    fn name(&self) -> String {
        format!("{:?} {:?}", self.size, self.spec)
    }
}

/// Losses, log-sum-exp, and the gradient beside and over the logits.
fn cross_entropy<D: Device>(device: &D, case: &Case) -> Result<[Vec<f64>; 4]> {
    let lie = |number: usize| Lie::ALL[(case.lie + number) % 5];
    let (rows, classes) = case.size;
    let shape = [rows, classes];
    let wide = case.dtype.accumulator();
    let logits = Placed::new(device, case.dtype, &shape, lie(0), &case.logits)?;
    let targets: Vec<f64> = case.targets.iter().map(|&target| target as f64).collect();
    let targets = Placed::new(device, case.index_dtype, &[rows], lie(1), &targets)?;
    let losses = Placed::output(device, wide, &[rows], lie(2))?;
    let sums = Placed::output(device, wide, &[rows], lie(3))?;
    let (x, targets) = (logits.view(), targets.view());
    device.cross_entropy(case.spec, x, targets, losses.view(), sums.view())?;
    let dlosses = Placed::new(device, wide, &[rows], lie(4), &case.dlosses)?;
    let gradient = Placed::output(device, case.dtype, &shape, lie(1))?;
    for out in [&gradient, &logits] {
        device.cross_entropy_backward(
            case.spec,
            x,
            targets,
            sums.view(),
            dlosses.view(),
            out.view(),
        )?;
    }
    Ok([losses.values()?, sums.values()?, gradient.values()?, logits.values()?])
}

/// Losses, log-sum-exp and gradients; ignored rows have exactly none.
pub fn cross_entropy_has_its_values_and_derivative<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for case in Case::all(dtype) {
            let (spec, (_, classes), targets) = (case.spec, case.size, &case.targets);
            let [losses, sums] = fused::cross_entropy(spec, &case.logits, classes, targets);
            let gradient =
                fused::cross_entropy_backward(spec, &case.logits, classes, targets, &case.dlosses);
            for got in on_both!(device, cross_entropy(&case)) {
                let (name, wide) = (case.name(), dtype.accumulator());
                assert_close(&format!("losses {name}"), wide, &got[0], &losses, 4.0);
                assert_close(&format!("sums {name}"), wide, &got[1], &sums, 4.0);
                assert_close(&format!("gradient {name}"), dtype, &got[2], &gradient, 1.0);
                assert_close(&format!("over logits {name}"), dtype, &got[3], &gradient, 1.0);
                for (row, &target) in targets.iter().enumerate() {
                    if target == spec.ignore_index {
                        assert_eq!(got[0][row], 0.0, "{name}: loss of ignored row {row}");
                        let row = row * classes..(row + 1) * classes;
                        assert_eq!(got[2][row.clone()], vec![0.0; classes], "{name}");
                        assert_eq!(got[3][row], vec![0.0; classes], "{name}");
                    }
                }
            }
        }
    }
    Ok(())
}

/// One number can be the gradient of every loss, by a stride of 0.
pub fn one_gradient_serves_every_loss<D: Device>(device: &D) -> Result<()> {
    fn gradient<D: Device>(device: &D, dtype: DType, logits: &[f64]) -> Result<Vec<f64>> {
        let wide = dtype.accumulator();
        let logits = Placed::new(device, dtype, &[3, 5], Lie::Whole, logits)?;
        let targets = device.upload(HostSlice::I64(&[4, 0, 2]))?;
        let (losses, sums) = (
            Placed::output(device, wide, &[3], Lie::Whole)?,
            Placed::output(device, wide, &[3], Lie::Whole)?,
        );
        let targets = View::whole(&targets);
        device.cross_entropy(PLAIN, logits.view(), targets, losses.view(), sums.view())?;
        let third = Placed::new(device, wide, &[1], Lie::Whole, &[1.0 / 3.0])?;
        let third = View::new(third.buffer(), Layout::strided(&[3], &[0], 0)?);
        let out = Placed::output(device, dtype, &[3, 5], Lie::Whole)?;
        let sums = sums.view();
        device.cross_entropy_backward(PLAIN, logits.view(), targets, sums, third, out.view())?;
        out.values()
    }
    for dtype in DType::FLOATS {
        let logits = draw(dtype, 1, 15, -3.0, 3.0);
        let want = fused::cross_entropy_backward(PLAIN, &logits, 5, &[4, 0, 2], &[1.0 / 3.0; 3]);
        for got in on_both!(device, gradient(dtype, &logits)) {
            assert_close("mean", dtype, &got, &want, 1.0);
        }
    }
    Ok(())
}

/// Rows do not see one another: huge, tiny and ruled-out logits harm only themselves.
pub fn rows_of_logits_are_apart<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let calm = draw(dtype, 1, 5, -1.0, 1.0);
        let ruled_out = f64::NEG_INFINITY;
        let case = Case {
            dtype,
            index_dtype: DType::I64,
            spec: PLAIN,
            size: (4, 5),
            lie: 0,
            logits: [
                &calm[..],
                &[1e30, -1e30, 0.0, 1e30, 5.0],
                &[1.0, ruled_out, 1.0, ruled_out, ruled_out],
                &calm,
            ]
            .concat(),
            targets: vec![2, 3, 0, 2],
            dlosses: vec![1.0; 4],
        };
        let calm_loss = fused::cross_entropy(PLAIN, &calm, 5, &[2])[0][0];
        let calm_gradient = fused::cross_entropy_backward(PLAIN, &calm, 5, &[2], &[1.0]);
        let half = 0.5;
        let far = [half, 0.0, 0.0, -half, 0.0];
        let two = [-half, 0.0, half, 0.0, 0.0];
        let gradient = [&calm_gradient[..], &far, &two, &calm_gradient].concat();
        let losses = [calm_loss, 2f64.ln(), 2f64.ln(), calm_loss];
        for got in on_both!(device, cross_entropy(&case)) {
            assert_close("losses", dtype.accumulator(), &got[0], &losses, 1.0);
            assert_each_close("gradient", dtype, &got[2], &gradient, &[1.0; 20]);
        }
    }
    Ok(())
}

/// A target that is neither a class nor ignored is an error with its value and row, from the loss
/// and from its derivative.
pub fn a_target_outside_the_classes_is_an_error<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        for target in [3, -1, -4, 1 << 31, i64::MAX] {
            let (logits, _) = drawn(device, DType::F32, 1, &[4, 3])?;
            let targets = device.upload(HostSlice::I64(&[0, -100, 2, target]))?;
            let targets = View::whole(&targets);
            let new = || Placed::new(device, DType::F32, &[4], Lie::Whole, &[0.0; 4]);
            let (losses, sums) = (new()?, new()?);
            let (x, losses, sums) = (logits.view(), losses.view(), sums.view());
            let refused = device.cross_entropy(PLAIN, x, targets, losses, sums);
            let refused = refused.and_then(|()| device.synchronize());
            refused_index("loss", refused, target, 3, 3);
            let refused = device.cross_entropy_backward(PLAIN, x, targets, sums, losses, x);
            let refused = refused.and_then(|()| device.synchronize());
            refused_index("derivative", refused, target, 3, 3);
        }
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}

/// Operands of other shapes and dtypes, and a smoothing outside `0 ..= 1`, are refused.
pub fn unfit_losses_are_refused<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let new = |dtype, shape: &[usize]| {
            Placed::new(device, dtype, shape, Lie::Whole, &vec![0.0; shape.iter().product()])
        };
        let (x, cube) = (new(DType::F32, &[4, 3])?, new(DType::F32, &[2, 2, 3])?);
        let (targets, few) = (new(DType::U32, &[4])?, new(DType::U32, &[3])?);
        let (bytes, row) = (new(DType::U8, &[4])?, new(DType::F32, &[4])?);
        let (double, wide) = (new(DType::F64, &[4])?, new(DType::F64, &[4, 3])?);
        let run = |spec, x: &Placed<D>, targets: &Placed<D>, losses: &Placed<D>| {
            let sums = new(DType::F32, &[4])?;
            device.cross_entropy(spec, x.view(), targets.view(), losses.view(), sums.view())
        };
        refused_shape("a cube of logits", run(PLAIN, &cube, &targets, &row));
        refused_shape("too few targets", run(PLAIN, &x, &few, &row));
        refused_shape("losses of another shape", run(PLAIN, &x, &targets, &x));
        refused_dtype("targets of bytes", run(PLAIN, &x, &bytes, &row));
        refused_dtype("targets of floats", run(PLAIN, &x, &row, &row));
        refused_dtype("losses of another dtype", run(PLAIN, &x, &targets, &double));
        for label_smoothing in [-0.1, 1.5, f64::NAN] {
            let spec = CrossEntropy { label_smoothing, ..PLAIN };
            refused_argument("smoothing", run(spec, &x, &targets, &row));
        }
        let (x, targets, row) = (x.view(), targets.view(), row.view());
        let back = |sums, dlosses, out| {
            device.cross_entropy_backward(PLAIN, x, targets, sums, dlosses, out)
        };
        refused_shape("dlogits", back(row, row, cube.view()));
        refused_dtype("dlogits", back(row, row, wide.view()));
        refused_dtype("dlosses", back(row, double.view(), x));
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}

/// Equal inputs give equal bits.
pub fn losses_have_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let case = Case::all(DType::F32).swap_remove(13);
    assert_eq!(case.size, (2, 1000), "a case of some size");
    assert_same_bits("cross_entropy", || {
        let values = cross_entropy(device, &case)?.concat();
        Ok(values.into_iter().flat_map(f64::to_ne_bytes).collect())
    })
}
