//! The optimizers' updates on flat runs.

use super::oracle::fused;
use super::placed::{Lie, Placed, assert_same_bits, draw, drawn, rounded};
use super::refusal::{refused_argument, refused_dtype, refused_shape};
use super::tolerance::assert_close;
use crate::{AdamWStep, DType, Device, Result, SgdStep};

const LENGTHS: [usize; 6] = [0, 1, 7, 64, 1030, 5000];

/// Decay rates that make the moments large enough to be seen beside 1.
const ADAMW: AdamWStep = AdamWStep {
    learning_rate: 0.1,
    beta1: 0.8,
    beta2: 0.9,
    epsilon: 1e-3,
    weight_decay: 0.1,
    step: 1,
    gradient_scale: 0.5,
};

const SGD: SgdStep = SgdStep {
    learning_rate: 0.1,
    momentum: 0.9,
    dampening: 0.25,
    nesterov: false,
    weight_decay: 0.05,
    step: 1,
    gradient_scale: 0.5,
};

/// Gradients of three steps that change their sign and size.
fn gradients(dtype: DType, len: usize) -> [Vec<f64>; 3] {
    [1, 2, 3].map(|seed| draw(dtype, seed, len, -2.0 * seed as f64, 2.0))
}

/// Parameter and moments after three steps, in runs inside of larger buffers.
fn adamw<D: Device>(device: &D, dtype: DType, len: usize, p: &[f64]) -> Result<[Vec<f64>; 3]> {
    let wide = dtype.accumulator();
    let param = Placed::new(device, dtype, &[len], Lie::Offset, p)?;
    let m = Placed::new(device, wide, &[len], Lie::Whole, &vec![0.0; len])?;
    let v = Placed::new(device, wide, &[len], Lie::Offset, &vec![0.0; len])?;
    for (gradient, step) in gradients(dtype, len).iter().zip(1..) {
        let gradient = Placed::new(device, dtype, &[len], Lie::Offset, gradient)?;
        let step = AdamWStep { step, ..ADAMW };
        device.adamw_step(step, param.view(), gradient.view(), m.view(), v.view())?;
    }
    Ok([param.values()?, m.values()?, v.values()?])
}

/// Three AdamW steps on runs of every length and float dtype.
pub fn adamw_steps_have_their_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for len in LENGTHS {
            let start = draw(dtype, 9, len, -1.0, 1.0);
            let (mut p, mut m, mut v) = (start.clone(), vec![0.0; len], vec![0.0; len]);
            for (gradient, step) in gradients(dtype, len).iter().zip(1..) {
                let step = AdamWStep { step, ..ADAMW };
                for i in 0..len {
                    fused::adamw(step, &mut p[i], gradient[i], &mut m[i], &mut v[i]);
                }
                p = rounded(dtype, &p);
            }
            for got in on_both!(device, adamw(dtype, len, &start)) {
                assert_close("parameter", dtype, &got[0], &p, 2.0);
                assert_close("first moment", dtype.accumulator(), &got[1], &m, 1.0);
                assert_close("second moment", dtype.accumulator(), &got[2], &v, 1.0);
            }
        }
    }
    Ok(())
}

/// A step far into training corrects by almost nothing and stays finite.
pub fn late_adamw_steps_are_finite<D: Device>(device: &D) -> Result<()> {
    fn step<D: Device>(device: &D, dtype: DType, step: u64) -> Result<Vec<f64>> {
        let wide = dtype.accumulator();
        let param = Placed::new(device, dtype, &[3], Lie::Whole, &[1.0, -1.0, 0.5])?;
        let gradient = Placed::new(device, dtype, &[3], Lie::Whole, &[1.0, -1.0, 0.0])?;
        let m = Placed::new(device, wide, &[3], Lie::Whole, &[1.0, -1.0, 0.0])?;
        let v = Placed::new(device, wide, &[3], Lie::Whole, &[1.0, 1.0, 0.0])?;
        let step = AdamWStep { step, gradient_scale: 1.0, weight_decay: 0.0, ..ADAMW };
        device.adamw_step(step, param.view(), gradient.view(), m.view(), v.view())?;
        param.values()
    }
    let change = 0.1 / 1.001;
    for dtype in DType::FLOATS {
        for number in [1_000, 1_000_000, u64::from(u32::MAX) + 5] {
            for got in on_both!(device, step(dtype, number)) {
                assert_close("late", dtype, &got, &[1.0 - change, change - 1.0, 0.5], 1.0);
            }
        }
    }
    Ok(())
}

/// Parameter and buffer after three steps.
fn sgd<D: Device>(device: &D, dtype: DType, spec: SgdStep, p: &[f64]) -> Result<[Vec<f64>; 2]> {
    let len = p.len();
    let param = Placed::new(device, dtype, &[len], Lie::Offset, p)?;
    // Old values of the buffer do not count at the first step.
    let buffer = Placed::output(device, dtype.accumulator(), &[len], Lie::Offset)?;
    for (gradient, step) in gradients(dtype, len).iter().zip(1..) {
        let gradient = Placed::new(device, dtype, &[len], Lie::Whole, gradient)?;
        let step = SgdStep { step, ..spec };
        let buffer = (spec.momentum != 0.0).then(|| buffer.view());
        device.sgd_step(step, param.view(), gradient.view(), buffer)?;
    }
    let buffer = if spec.momentum == 0.0 { vec![0.0; len] } else { buffer.values()? };
    Ok([param.values()?, buffer])
}

/// Three SGD steps, plain, with momentum, and looking ahead.
pub fn sgd_steps_have_their_values<D: Device>(device: &D) -> Result<()> {
    let plain = SgdStep { momentum: 0.0, dampening: 0.0, ..SGD };
    let ahead = SgdStep { nesterov: true, dampening: 0.0, ..SGD };
    let bare = SgdStep { weight_decay: 0.0, gradient_scale: 1.0, ..SGD };
    for dtype in DType::FLOATS {
        for spec in [plain, SGD, ahead, bare] {
            for len in LENGTHS {
                let start = draw(dtype, 9, len, -1.0, 1.0);
                let (mut p, mut buffer) = (start.clone(), vec![0.0; len]);
                for (gradient, step) in gradients(dtype, len).iter().zip(1..) {
                    let step = SgdStep { step, ..spec };
                    for i in 0..len {
                        fused::sgd(step, &mut p[i], gradient[i], &mut buffer[i]);
                    }
                    p = rounded(dtype, &p);
                }
                for got in on_both!(device, sgd(dtype, spec, &start)) {
                    let what = format!("parameter, {spec:?}");
                    assert_close(&what, dtype, &got[0], &p, 2.0);
                    let what = format!("buffer, {spec:?}");
                    assert_close(&what, dtype.accumulator(), &got[1], &buffer, 4.0);
                }
            }
        }
    }
    Ok(())
}

/// Where a run is cut makes no difference: parts give the bits of the whole.
pub fn updates_do_not_depend_on_the_cut<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        let start = draw(dtype, 9, 1030, -1.0, 1.0);
        let gradient = draw(dtype, 8, 1030, -1.0, 1.0);
        let moments = draw(dtype.accumulator(), 7, 1030, 0.0, 1.0);
        let step = |range: std::ops::Range<usize>| -> Result<[Vec<f64>; 3]> {
            let wide = dtype.accumulator();
            let shape = [range.len()];
            let place = |dtype, values: &[f64]| {
                Placed::new(device, dtype, &shape, Lie::Offset, &values[range.clone()])
            };
            let (param, gradient) = (place(dtype, &start)?, place(dtype, &gradient)?);
            let (m, v) = (place(wide, &moments)?, place(wide, &moments)?);
            let step = AdamWStep { step: 3, ..ADAMW };
            device.adamw_step(step, param.view(), gradient.view(), m.view(), v.view())?;
            let spec = SgdStep { step: 3, ..SGD };
            device.sgd_step(spec, param.view(), gradient.view(), Some(m.view()))?;
            Ok([param.values()?, m.values()?, v.values()?])
        };
        let whole = step(0..1030)?;
        for range in [0..1, 1..64, 64..129, 129..1030] {
            for (part, whole) in step(range.clone())?.iter().zip(&whole) {
                assert!(*part == whole[range.clone()], "{dtype}: {range:?} differs");
            }
        }
    }
    Ok(())
}

/// Runs of other lengths, gaps, other dtypes and step number 0 are refused.
pub fn unfit_updates_are_refused<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let (p, values) = drawn(device, DType::F32, 1, &[6])?;
        let (g, _) = drawn(device, DType::F32, 2, &[6])?;
        let (m, v) = (drawn(device, DType::F32, 3, &[6])?.0, drawn(device, DType::F32, 4, &[6])?.0);
        let (short, _) = drawn(device, DType::F32, 5, &[5])?;
        let (double, _) = drawn(device, DType::F64, 6, &[6])?;
        let gaps = Placed::output(device, DType::F32, &[6], Lie::Strided)?;
        let (half, _) = drawn(device, DType::BF16, 7, &[6])?;
        let run = |p: &Placed<D>, g: &Placed<D>, m: &Placed<D>, v: &Placed<D>| {
            device.adamw_step(ADAMW, p.view(), g.view(), m.view(), v.view())
        };
        refused_shape("a short gradient", run(&p, &short, &m, &v));
        refused_shape("a short moment", run(&p, &g, &m, &short));
        refused_shape("gaps", run(&gaps, &g, &m, &v));
        refused_dtype("another gradient", run(&p, &double, &m, &v));
        refused_dtype("another moment", run(&p, &g, &m, &double));
        refused_dtype("moments of 16 bits", run(&half, &half, &half, &half));
        let first = AdamWStep { step: 0, ..ADAMW };
        let refused = device.adamw_step(first, p.view(), g.view(), m.view(), v.view());
        refused_argument("step 0", refused);
        let buffer = Some(m.view());
        refused_shape("short", device.sgd_step(SGD, p.view(), short.view(), buffer));
        refused_dtype("mixed", device.sgd_step(SGD, p.view(), double.view(), buffer));
        refused_dtype("buffer", device.sgd_step(SGD, p.view(), g.view(), Some(double.view())));
        refused_argument("no buffer", device.sgd_step(SGD, p.view(), g.view(), None));
        let first = SgdStep { step: 0, ..SGD };
        refused_argument("step 0", device.sgd_step(first, p.view(), g.view(), buffer));
        assert_eq!(p.values()?, values, "a refused step changes nothing");
        Ok(())
    }
    on_both!(device, check());
    Ok(())
}

/// Equal inputs give equal bits.
pub fn updates_give_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let start = draw(DType::F32, 9, 70_000, -1.0, 1.0);
    assert_same_bits("adamw_step", || {
        let values = adamw(device, DType::F32, 70_000, &start)?.concat();
        Ok(values.into_iter().flat_map(f64::to_ne_bytes).collect())
    })
}
