//! Cross entropy: ignored rows, bad labels, huge logits, big vocabularies.

use std::f64::consts::LN_2;

use super::{EXACT, Tensor, all_finite, near};
use crate::conformance::composed::Composed;
use crate::{CrossEntropy, DType, Device, Error, Result, Shape, View};

/// Losses of the rows and the gradient of their weighted sum, each row weighted by `weight`.
fn cross_entropy<D: Device>(
    device: &D,
    dtype: DType,
    spec: CrossEntropy,
    (logits, classes): (&[f64], usize),
    targets: &[i64],
    weight: f64,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let rows = targets.len();
    let logits = Tensor::new(device, dtype, &[rows, classes], logits)?;
    let targets = device.upload(crate::HostSlice::I64(targets))?;
    let losses = Tensor::output(device, dtype.accumulator(), &[rows])?;
    let log_sum_exp = Tensor::output(device, dtype.accumulator(), &[rows])?;
    let targets = View::whole(&targets);
    device.cross_entropy(spec, logits.view(), targets, losses.view(), log_sum_exp.view())?;
    let weight = Tensor::new(device, dtype.accumulator(), &[1], &[weight])?;
    let weights = View::new(&weight.buffer, weight.layout.broadcast_to(&Shape::new(&[rows])?)?);
    let gradient = Tensor::output(device, dtype, &[rows, classes])?;
    device.cross_entropy_backward(
        spec,
        logits.view(),
        targets,
        log_sum_exp.view(),
        weights,
        gradient.view(),
    )?;
    Ok((losses.values()?, gradient.values()?))
}

const PLAIN: CrossEntropy = CrossEntropy { ignore_index: -100, label_smoothing: 0.0 };
const LOGITS: [f64; 12] = [2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0, -1.0, -1.0, 0.0, 2.0];
const TARGETS: [i64; 4] = [2, -100, 1, 0];

/// A promise; see its name.
pub fn ce_01_ignored_rows_have_neither_loss_nor_gradient<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        for (dtype, tolerance) in EXACT {
            let (losses, gradient) =
                cross_entropy(device, dtype, PLAIN, (&LOGITS, 3), &TARGETS, 1.0 / 3.0)?;
            let want = [2.4076059644, 0.0, 0.1429316285, 3.1698460196];
            near("losses", &losses, &want, tolerance);
            assert_eq!(losses[1], 0.0);
            near("sum", &[losses.iter().sum()], &[5.7203836125], tolerance);
            let want = [
                [0.221746985, 0.081576157, -0.303323142],
                [0.0, 0.0, 0.0],
                [0.039103476, -0.044395556, 0.005292080],
                [-0.319329978, 0.038065066, 0.281264911],
            ];
            near("gradient", &gradient, want.as_flattened(), tolerance);
            assert_eq!(gradient[3..6], [0.0; 3]);
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
///
/// The mean over no rows weighs each by 1/0: even that must not reach a gradient.
pub fn ce_02_a_batch_without_labels_has_no_gradient<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let logits = [0.2, 1.0, 0.5, 0.1, 0.3, 0.6];
        for dtype in DType::FLOATS {
            for weight in [1.0, f64::INFINITY, f64::NAN] {
                let (losses, gradient) =
                    cross_entropy(device, dtype, PLAIN, (&logits, 3), &[-100, -100], weight)?;
                assert_eq!(losses, [0.0; 2], "{dtype}");
                assert_eq!(gradient, [0.0; 6], "{dtype}, rows weighted by {weight}");
            }
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn ce_03_a_label_outside_the_classes_is_an_error<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        for bad in [3, -1, -4, 1 << 31] {
            let targets = [0, 1, 2, bad];
            let result = cross_entropy(device, DType::F32, PLAIN, (&[0.0; 12], 3), &targets, 1.0);
            match result.and_then(|_| device.synchronize()) {
                Err(error @ Error::IndexOutOfRange { index, position: 3, bound: 3, .. }) => {
                    assert_eq!(index, bad);
                    assert!(error.to_string().contains(&bad.to_string()), "{error}");
                }
                other => panic!("target {bad} of 3 classes: {other:?}"),
            }
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn ce_04_smoothing_leaves_ignored_rows_out<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        for (dtype, tolerance) in EXACT {
            for (smoothing, sum) in [(0.1, 5.6870502792), (0.2, 5.6537169458)] {
                let spec = CrossEntropy { label_smoothing: smoothing, ..PLAIN };
                let (losses, gradient) =
                    cross_entropy(device, dtype, spec, (&LOGITS, 3), &TARGETS, 1.0)?;
                near("sum", &[losses.iter().sum()], &[sum], tolerance);
                assert_eq!(losses[1], 0.0);
                assert_eq!(gradient[3..6], [0.0; 3]);
                // The three rows that count, alone.
                let rows = [&LOGITS[..3], &LOGITS[6..]].concat();
                let (alone, gradient_alone) =
                    cross_entropy(device, dtype, spec, (&rows, 3), &[2, 1, 0], 1.0)?;
                assert_eq!(alone, [losses[0], losses[2], losses[3]]);
                assert_eq!(gradient_alone, [&gradient[..3], &gradient[6..]].concat());
            }
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn ce_05_huge_logits_keep_their_loss<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        type Case<'a> = (&'a [f64], usize, &'a [i64], &'a [f64]);
        let cases: [Case<'_>; 4] = [
            (&[1e8, 1e8], 2, &[1], &[LN_2]),
            (&[1000.0, 0.0, -1000.0], 3, &[2], &[2000.0]),
            (&[1000.0, 1001.0, -1000.0, -999.0], 2, &[0, 0], &[1.31326169, 1.31326169]),
            (&[-300.0, -300.0, 0.0, -300.0], 4, &[3], &[300.0]),
        ];
        for (logits, classes, targets, want) in cases {
            let (losses, gradient) =
                cross_entropy(device, DType::F32, PLAIN, (logits, classes), targets, 1.0)?;
            near("losses", &losses, want, 1e-6);
            all_finite("gradient", &gradient);
            for (row, &target) in gradient.chunks(classes).zip(targets) {
                near("sum of a row's gradient", &[row.iter().sum()], &[0.0], 1e-6);
                assert!(row[target as usize] < 0.0, "{row:?}");
            }
            if classes == 3 {
                assert_eq!(losses, [2000.0]);
            }
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
///
/// A running sum of ones stops at 256 in `bf16` and at 2048 in `f16`.
pub fn ce_07_sums_over_a_big_vocabulary_are_not_formed_in_16_bits<D: Device>(
    device: &D,
) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let classes = 50_257;
        let logits = vec![0.0; classes];
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let (losses, gradient) =
                cross_entropy(device, dtype, PLAIN, (&logits, classes), &[7], 1.0)?;
            near("loss", &losses, &[10.82490512], 1e-6);
            // One rounding to the logits' type: 2^-9 of the value, or half a step of 2^-24 where
            // `f16` runs out of exponents.
            let rounding = |value: f64| match dtype {
                DType::F32 => 1e-6 * value.abs(),
                _ => (value.abs() / 256.0).max(6e-8),
            };
            for (class, &got) in gradient.iter().enumerate() {
                let want = 1.0 / classes as f64 - f64::from(u8::from(class == 7));
                let error = (got - want).abs();
                assert!(error <= rounding(want), "{dtype}, class {class}: {got}, want {want}");
            }
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}
