//! Mistakes that other frameworks made, with numbers worked out apart from any backend.
//!
//! The names begin with the number of the case. Each runs on the device and on its
//! [`Composed`] twin, so overrides and compositions are held to the same numbers.

use crate::conformance::composed::Composed;
use crate::{
    AdamWStep, Attention, CrossEntropy, DType, Device, Error, HostVec, Layout, Norm, NormKind,
    NormOperands, Result, SUM_BLOCK, Shape, View, ViewOf, Visibility,
};

/// A buffer that a kernel wrote, with its shape.
struct Tensor<D: Device> {
    device: D,
    buffer: D::Buffer,
    layout: Layout,
}

impl<D: Device> Tensor<D> {
    fn new(device: &D, dtype: DType, shape: &[usize], values: &[f64]) -> Result<Self> {
        let buffer = device.upload(HostVec::from_f64(dtype, values).as_slice())?;
        let layout = Layout::contiguous(Shape::new(shape)?);
        layout.check("a case", values.len())?;
        Ok(Tensor { device: device.clone(), buffer, layout })
    }

    /// An output, full of NaN so that an element that was forgotten shows.
    fn output(device: &D, dtype: DType, shape: &[usize]) -> Result<Self> {
        Self::new(device, dtype, shape, &vec![f64::NAN; shape.iter().product()])
    }

    fn view(&self) -> ViewOf<'_, D> {
        View::new(&self.buffer, self.layout)
    }

    fn values(&self) -> Result<Vec<f64>> {
        Ok(self.device.download(&self.buffer)?.to_f64())
    }
}

#[track_caller]
fn near(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let close = (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(close, "{what}: element {at} is {got}, want {want} ± {tolerance:e}");
    }
}

#[track_caller]
fn all_finite(what: &str, got: &[f64]) {
    assert!(got.iter().all(|value| value.is_finite()), "{what}: {got:?}");
}

/// The two dtypes whose results are compared digit by digit, with what their digits allow: the
/// wanted numbers have ten.
const EXACT: [(DType, f64); 2] = [(DType::F32, 1e-6), (DType::F64, 1e-9)];

// ---- cross entropy -----------------------------------------------------------------------------

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
        let cases: [(&[f64], usize, &[i64], &[f64]); 4] = [
            (&[1e8, 1e8], 2, &[1], &[0.69314718]),
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

// ---- attention ---------------------------------------------------------------------------------

/// The result and the gradients of its sum, for one head.
struct Attended {
    out: Vec<f64>,
    dq: Vec<f64>,
    dk: Vec<f64>,
    dv: Vec<f64>,
}

fn attend<D: Device>(
    device: &D,
    dtype: DType,
    visibility: Visibility,
    [q, k, v]: [(&[f64], usize); 3],
    mask: Option<&[f64]>,
) -> Result<Attended> {
    let spec = Attention { scale: 1.0 / (q.1 as f64).sqrt(), visibility };
    let place = |(values, size): (&[f64], usize)| {
        Tensor::new(device, dtype, &[1, 1, values.len() / size, size], values)
    };
    let (queries, keys) = (q.0.len() / q.1, k.0.len() / k.1);
    let mask = match mask {
        Some(mask) => Some(Tensor::new(device, DType::U8, &[1, 1, queries, keys], mask)?),
        None => None,
    };
    let mask = mask.as_ref().map(Tensor::view);
    let (q, k, v) = (place(q)?, place(k)?, place(v)?);
    let out = Tensor::output(device, dtype, &[1, 1, queries, v.layout.shape()[3]])?;
    let lse = Tensor::output(device, dtype.accumulator(), &[1, 1, queries])?;
    device.attention(spec, q.view(), k.view(), v.view(), mask, out.view(), lse.view())?;
    let like = |of: &Tensor<D>| Tensor::output(device, dtype, of.layout.shape());
    let (dout, dq, dk, dv) = (like(&out)?, like(&q)?, like(&k)?, like(&v)?);
    device.fill(1.0, dout.view())?;
    device.attention_backward(
        spec,
        q.view(),
        k.view(),
        v.view(),
        mask,
        out.view(),
        lse.view(),
        dout.view(),
        dq.view(),
        dk.view(),
        dv.view(),
    )?;
    Ok(Attended { out: out.values()?, dq: dq.values()?, dk: dk.values()?, dv: dv.values()? })
}

const QUERIES: (&[f64], usize) = (&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], 2);
const KEYS: (&[f64], usize) = (&[1.0, 0.0, 0.0, 1.0, 1.0, -1.0], 2);
const VALUES: (&[f64], usize) = (&[1.0, 10.0, 2.0, 20.0, 4.0, 40.0], 2);

/// A promise; see its name.
pub fn attn_01_a_row_that_sees_nothing_gives_zero_and_harms_nobody<D: Device>(
    device: &D,
) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let mask = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
        for (dtype, tolerance) in EXACT {
            let operands = [QUERIES, KEYS, VALUES];
            let got = attend(device, dtype, Visibility::All, operands, Some(&mask))?;
            let want = [1.3302384507, 13.3023845067, 0.0, 0.0, 1.9944395366, 19.9443953660];
            near("result", &got.out, &want, tolerance);
            assert_eq!(got.out[2..4], [0.0; 2]);
            assert_eq!(got.dq[2..4], [0.0; 2]);
            let rows = [1.0708736420, 0.7313505434, 0.1977758146];
            near("dv", &got.dv, &rows.map(|sum| [sum, sum]).concat(), tolerance);
            all_finite("dq", &got.dq);
            all_finite("dk", &got.dk);
        }
        for dtype in DType::FLOATS {
            let operands = [QUERIES, KEYS, VALUES];
            let got = attend(device, dtype, Visibility::All, operands, Some(&[0.0; 9]))?;
            for values in [got.out, got.dq, got.dk, got.dv] {
                assert_eq!(values, [0.0; 6], "{dtype}: nothing is seen at all");
            }
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn attn_02_a_position_sees_itself_and_nothing_later<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        for (dtype, tolerance) in EXACT {
            let operands = [QUERIES, KEYS, VALUES];
            let got = attend(device, dtype, Visibility::Causal, operands, None)?;
            let want = [1.0, 10.0, 1.6697615493, 16.6976154933, 1.9944395366, 19.9443953660];
            near("result", &got.out, &want, tolerance);
            assert_eq!(got.out[..2], [1.0, 10.0], "one key: its value, exactly");
            // The same three queries one by one, each appended to a cache of the keys so far.
            for position in 0..3 {
                let query = (&QUERIES.0[2 * position..][..2], 2);
                let seen = 2 * (position + 1);
                let (keys, values) = ((&KEYS.0[..seen], 2), (&VALUES.0[..seen], 2));
                let got = attend(device, dtype, Visibility::Causal, [query, keys, values], None)?;
                near("appended", &got.out, &want[2 * position..][..2], tolerance);
            }
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn attn_04_an_odd_head_size_works<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let q: (&[f64], usize) = (&[1.0, 2.0, 3.0, 0.0, 1.0, 0.0], 3);
        let k: (&[f64], usize) = (&[1.0, 0.0, 1.0, 0.0, 2.0, 0.0], 3);
        let v: (&[f64], usize) = (&[1.0, 5.0], 1);
        for (dtype, tolerance) in EXACT {
            let got = attend(device, dtype, Visibility::Causal, [q, k, v], None)?;
            near("result", &got.out, &[1.0, 4.0414737674], tolerance);
            assert_eq!(got.out[0], 1.0);
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

// ---- norms and softmax -------------------------------------------------------------------------

const LAYER: Norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };

/// The layer norm of one row and the gradient for the upstream gradient `dy`.
fn layer_norm<D: Device>(device: &D, x: &[f64], dy: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
    let shape = [1, x.len()];
    let x = Tensor::new(device, DType::F32, &shape, x)?;
    let statistics = Tensor::output(device, DType::F32, &[2, 1])?;
    let out = Tensor::output(device, DType::F32, &shape)?;
    let operands = NormOperands { x: x.view(), residual: None, weight: None, bias: None };
    device.normalize(LAYER, operands, None, statistics.view(), out.view())?;
    let dy = Tensor::new(device, DType::F32, &shape, dy)?;
    let dx = Tensor::output(device, DType::F32, &shape)?;
    device.normalize_backward(
        LAYER,
        x.view(),
        None,
        statistics.view(),
        dy.view(),
        None,
        dx.view(),
        None,
        None,
    )?;
    Ok((out.values()?, dx.values()?))
}

/// A promise; see its name.
pub fn num_02_the_variance_of_large_values_is_not_negative<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let (out, _) = layer_norm(device, &[1234.0; 8], &[1.0; 8])?;
        assert_eq!(out, [0.0; 8]);
        let (out, _) = layer_norm(device, &[40000.0, 40001.0, 40002.0, 40003.0], &[1.0; 4])?;
        near("large", &out, &[-1.3416354, -0.4472118, 0.4472118, 1.3416354], 1e-4);
        let (out, _) = layer_norm(device, &[0.0; 4], &[1.0; 4])?;
        assert_eq!(out, [0.0; 4]);
        let (_, dx) = layer_norm(device, &[1234.0; 4], &[1.0, 2.0, 3.0, 6.0])?;
        let want = [-632.4555320, -316.2277660, 0.0, 948.6832981];
        for (got, want) in dx.iter().zip(want) {
            assert!((got - want).abs() <= 1e-2, "{dx:?}");
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn num_03_each_row_of_a_softmax_is_shifted_by_its_own_maximum<D: Device>(
    device: &D,
) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let pairs = [[-1e30, -1e30], [-1000.0, -1001.0], [-3e38, 3e38], [f64::NEG_INFINITY, 0.0]];
        let x = Tensor::new(device, DType::F32, &[4, 2], pairs.as_flattened())?;
        let out = Tensor::output(device, DType::F32, &[4, 2])?;
        device.softmax(x.view(), out.view())?;
        let want = [0.5, 0.5, 0.7310586, 0.2689414, 0.0, 1.0, 0.0, 1.0];
        near("pairs", &out.values()?, &want, 1e-6);

        let x = Tensor::new(device, DType::F32, &[1, 3], &[10000.0, 9999.0, -10000.0])?;
        let out = Tensor::output(device, DType::F32, &[1, 3])?;
        device.softmax(x.view(), out.view())?;
        near("three", &out.values()?, &[0.7310586, 0.2689414, 0.0], 1e-6);
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

// ---- optimizer and norms of gradients ----------------------------------------------------------

const ADAMW: AdamWStep = AdamWStep {
    learning_rate: 0.1,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 0.0,
    step: 1,
    gradient_scale: 1.0,
};

/// The parameters after each of the steps, one gradient per step; `spec.step` is counted here.
fn train<D: Device>(
    device: &D,
    dtype: DType,
    spec: AdamWStep,
    start: &[f64],
    gradients: &[&[f64]],
) -> Result<Vec<Vec<f64>>> {
    let shape = [start.len()];
    let param = Tensor::new(device, dtype, &shape, start)?;
    let zeros = vec![0.0; start.len()];
    let m = Tensor::new(device, dtype.accumulator(), &shape, &zeros)?;
    let v = Tensor::new(device, dtype.accumulator(), &shape, &zeros)?;
    let mut after = Vec::new();
    for (step, gradient) in (1..).zip(gradients) {
        let gradient = Tensor::new(device, dtype, &shape, gradient)?;
        let spec = AdamWStep { step, ..spec };
        device.adamw_step(spec, param.view(), gradient.view(), m.view(), v.view())?;
        all_finite("first moment", &m.values()?);
        all_finite("second moment", &v.values()?);
        after.push(param.values()?);
    }
    Ok(after)
}

/// A promise; see its name.
pub fn adam_01_decay_is_decoupled_from_the_gradient<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let spec = AdamWStep { weight_decay: 0.1, ..ADAMW };
        let after = train(device, DType::F32, spec, &[1.0], &[&[0.1]])?;
        near("gradient 0.1", &after[0], &[0.89000001], 1e-7);
        let after = train(device, DType::F32, spec, &[1.0], &[&[0.0]])?;
        assert_eq!(after[0], [f64::from(0.99f32)], "decay alone");
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn adam_02_epsilon_is_added_to_the_root_of_the_corrected_moment<D: Device>(
    device: &D,
) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let spec = AdamWStep { learning_rate: 1.0, epsilon: 1e-3, ..ADAMW };
        for (dtype, tolerance) in EXACT {
            let after = train(device, dtype, spec, &[0.0], &[&[1e-3], &[2e-3]])?;
            near("parameter", &after.concat(), &[-0.5, -1.0912798946], tolerance);
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn adam_06_a_zero_gradient_leaves_f16_parameters_alone<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        let spec = AdamWStep { learning_rate: 1e-3, ..ADAMW };
        let start = [1.0, -2.0, 0.5];
        for dtype in [DType::F16, DType::BF16] {
            let after = train(device, dtype, spec, &start, &[&[0.0; 3][..]; 3])?;
            assert_eq!(after, [start; 3], "{dtype}");
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}

/// A promise; see its name.
pub fn clip_06_squares_of_f16_gradients_do_not_overflow<D: Device>(device: &D) -> Result<()> {
    fn check<D: Device>(device: &D) -> Result<()> {
        for count in [1, 64, SUM_BLOCK + 64] {
            let gradient = Tensor::new(device, DType::F16, &[count], &vec![300.0; count])?;
            let sums = Tensor::output(device, DType::F32, &[count.div_ceil(SUM_BLOCK)])?;
            device.sums_of_squares(gradient.view(), sums.view())?;
            let norm = sums.values()?.iter().sum::<f64>().sqrt();
            near("norm", &[norm], &[300.0 * (count as f64).sqrt()], 1e-6);
        }
        Ok(())
    }
    check(device)?;
    check(&Composed::of(device))
}
