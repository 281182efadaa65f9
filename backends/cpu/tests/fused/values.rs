//! Values of the forward pass against plain loops and known answers.

use sneppx_contract::{
    Activation, Attention, CrossEntropy, DType, Error, Kernels, Layout, Norm, NormKind,
    NormOperands, RandomKey, Rotation, Visibility, rng,
};

use crate::rig::{Rig, Style, Tensor};

fn rig(dtype: DType) -> Rig {
    Rig::new(2, dtype, Style::Dense)
}

fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let close = (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(close, "{what}[{at}]: {got}, want {want}");
    }
}

/// Losses and, for an upstream gradient per row, the gradient of the logits.
fn losses(
    rig: &Rig,
    spec: CrossEntropy,
    classes: usize,
    logits: &[f64],
    targets: &[f64],
    upstream: f64,
) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let rows = targets.len();
    let logits = rig.tensor(&[rows, classes], logits);
    let targets = rig.dense(DType::I64, &[rows], targets);
    let (losses, lse) = (rig.wide(&[rows]), rig.wide(&[rows]));
    let mut dlosses = rig.dense(rig.dtype.accumulator(), &[1], &[upstream]);
    dlosses.layout = Layout::strided(&[rows], &[0], 0).unwrap();
    let (x, t) = (logits.view(), targets.view());
    rig.device.cross_entropy(spec, x, t, losses.view(), lse.view())?;
    rig.device.cross_entropy_backward(spec, x, t, lse.view(), dlosses.view(), x)?;
    Ok((rig.read(&losses), rig.read(&logits)))
}

const PLAIN: CrossEntropy = CrossEntropy { ignore_index: -100, label_smoothing: 0.0 };
const LOGITS: [f64; 12] = [2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0, -1.0, -1.0, 0.0, 2.0];
const TARGETS: [f64; 4] = [2.0, -100.0, 1.0, 0.0];

#[test]
fn ce_01_ignored_rows_have_no_loss_and_no_gradient() {
    let rig = rig(DType::F32);
    let (got, gradient) = losses(&rig, PLAIN, 3, &LOGITS, &TARGETS, 1.0 / 3.0).unwrap();
    let want = [2.4076059644, 0.0, 0.1429316285, 3.1698460196];
    assert_close("losses", &got, &want, 1e-6);
    let want = [
        0.221746985,
        0.081576157,
        -0.303323142,
        0.0,
        0.0,
        0.0,
        0.039103476,
        -0.044395556,
        0.005292080,
        -0.319329978,
        0.038065066,
        0.281264911,
    ];
    assert_close("gradient", &gradient, &want, 1e-6);
    assert_eq!(gradient[3..6], [0.0; 3]);
}

#[test]
fn ce_02_nothing_but_ignored_rows_gives_zeros() {
    let rig = rig(DType::F32);
    let logits = [0.2, 1.0, 0.5, 0.1, 0.3, 0.6];
    let got = losses(&rig, PLAIN, 3, &logits, &[-100.0; 2], 1.0).unwrap();
    assert_eq!(got, (vec![0.0; 2], vec![0.0; 6]));
}

#[test]
fn ce_03_a_label_outside_the_classes_is_named() {
    let rig = rig(DType::F32);
    for bad in [3i64, -1, -4, 2_147_483_648] {
        let targets = [0.0, 1.0, 2.0, bad as f64];
        match losses(&rig, PLAIN, 3, &[0.0; 12], &targets, 1.0) {
            Err(Error::IndexOutOfRange { index, position: 3, bound: 3, .. }) => {
                assert_eq!(index, bad);
            }
            other => panic!("{bad}: {other:?}"),
        }
    }
}

#[test]
fn ce_04_smoothing_counts_rows_that_count() {
    let rig = rig(DType::F32);
    for (label_smoothing, want) in [(0.1, 5.6870502792), (0.2, 5.6537169458)] {
        let spec = CrossEntropy { label_smoothing, ..PLAIN };
        let (got, _) = losses(&rig, spec, 3, &LOGITS, &TARGETS, 1.0).unwrap();
        assert!((got.iter().sum::<f64>() - want).abs() < 1e-5, "{got:?}");
    }
}

#[test]
fn ce_05_huge_logits_keep_their_loss() {
    let rig = rig(DType::F32);
    let check = |classes, logits: &[f64], targets: &[f64], want: &[f64]| {
        let (got, gradient) = losses(&rig, PLAIN, classes, logits, targets, 1.0).unwrap();
        assert_close("losses", &got, want, 1e-7);
        assert!(gradient.iter().all(|value| value.is_finite()), "{gradient:?}");
    };
    check(2, &[1e8, 1e8], &[1.0], &[std::f64::consts::LN_2]);
    check(3, &[1000.0, 0.0, -1000.0], &[2.0], &[2000.0]);
    check(2, &[1000.0, 1001.0, -1000.0, -999.0], &[0.0; 2], &[1.31326169; 2]);
    check(4, &[-300.0, 0.0, -300.0, -300.0], &[2.0], &[300.0]);
}

#[test]
fn ce_07_sums_over_a_large_vocabulary_are_formed_in_f32() {
    for dtype in [DType::BF16, DType::F16] {
        let rig = rig(dtype);
        let (got, gradient) = losses(&rig, PLAIN, 50257, &vec![0.0; 50257], &[7.0], 1.0).unwrap();
        assert!((got[0] - 10.82490512).abs() < 1e-3, "{got:?}");
        assert!((gradient[7] + 0.99998).abs() < 5e-3 && (gradient[8] - 1.98977e-5).abs() < 1e-6);
    }
}

#[test]
fn num_02_norms_of_constant_and_of_large_rows() {
    let rig = rig(DType::F32);
    let norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };
    let run = |x: &[f64]| {
        let shape = [1, x.len()];
        let (x, y, statistics) = (rig.tensor(&shape, x), rig.zeros(&shape), rig.wide(&[2, 1]));
        let operands = NormOperands { x: x.view(), residual: None, weight: None, bias: None };
        rig.device.normalize(norm, operands, None, statistics.view(), y.view()).unwrap();
        (rig.read(&y), x, statistics)
    };
    assert_eq!(run(&[1234.0; 8]).0, [0.0; 8]);
    assert_eq!(run(&[1234.1; 5]).0, [0.0; 5]);
    assert_eq!(run(&[0.0; 4]).0, [0.0; 4]);
    let want = [-1.3416354, -0.4472118, 0.4472118, 1.3416354];
    assert_close("large", &run(&[40000.0, 40001.0, 40002.0, 40003.0]).0, &want, 1e-4);
    let (_, x, statistics) = run(&[1234.0; 4]);
    let (dy, dx) = (rig.tensor(&[1, 4], &[1.0, 2.0, 3.0, 6.0]), rig.zeros(&[1, 4]));
    let (x, statistics, dy) = (x.view(), statistics.view(), dy.view());
    let d = &rig.device;
    d.normalize_backward(norm, x, None, statistics, dy, None, dx.view(), None, None).unwrap();
    let want = [-632.4555320, -316.2277660, 0.0, 948.6832981];
    assert_close("gradient", &rig.read(&dx), &want, 1e-5);
}

#[test]
fn num_03_softmax_at_the_edges() {
    let rig = rig(DType::F32);
    let infinity = f64::INFINITY;
    for (x, want) in [
        (vec![-1e30, -1e30, -1000.0, -1001.0], vec![0.5, 0.5, 0.7310586, 0.2689414]),
        (vec![-3e38, 3e38, -infinity, 0.0], vec![0.0, 1.0, 0.0, 1.0]),
    ] {
        let (x, y) = (rig.tensor(&[2, 2], &x), rig.zeros(&[2, 2]));
        rig.device.softmax(x.view(), y.view()).unwrap();
        assert_close("softmax", &rig.read(&y), &want, 1e-6);
    }
    let (x, y) = (rig.tensor(&[1, 3], &[10000.0, 9999.0, -10000.0]), rig.zeros(&[1, 3]));
    rig.device.softmax(x.view(), y.view()).unwrap();
    assert_close("softmax", &rig.read(&y), &[0.7310586, 0.2689414, 0.0], 1e-6);
}

/// The output by plain loops, in `f64`.
fn plain_attention(
    spec: Attention,
    [b, h, g, t, s, d, e]: [usize; 7],
    [q, k, v]: [&[f64]; 3],
    mask: Option<&[f64]>,
) -> Vec<f64> {
    let mut out = Vec::with_capacity(b * h * t * e);
    for row in 0..b * h * t {
        let (head, query) = (row / t, row % t);
        let kv = head / h * g + head % h / (h / g);
        let sees = |key: usize| {
            let causal = spec.visibility == Visibility::All || key + t <= query + s;
            causal && mask.is_none_or(|mask| mask[row * s + key] != 0.0)
        };
        let keys: Vec<usize> = (0..s).filter(|&key| sees(key)).collect();
        let dot = |key: usize| -> f64 {
            (0..d).map(|at| q[row * d + at] * k[(kv * s + key) * d + at]).sum()
        };
        let weights: Vec<f64> = keys.iter().map(|&key| (spec.scale * dot(key)).exp()).collect();
        let total: f64 = weights.iter().sum();
        for at in 0..e {
            let values = keys.iter().map(|&key| v[(kv * s + key) * e + at]);
            let sum: f64 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
            out.push(if keys.is_empty() { 0.0 } else { sum / total });
        }
    }
    out
}

/// The output of the device.
fn attend(
    rig: &Rig,
    spec: Attention,
    [b, h, g, t, s, d, e]: [usize; 7],
    [q, k, v]: [&[f64]; 3],
    mask: Option<&[f64]>,
) -> Vec<f64> {
    let (q, k) = (rig.tensor(&[b, h, t, d], q), rig.tensor(&[b, g, s, d], k));
    let (v, out, lse) =
        (rig.tensor(&[b, g, s, e], v), rig.zeros(&[b, h, t, e]), rig.wide(&[b, h, t]));
    let mask = mask.map(|mask| rig.dense(DType::U8, &[b, h, t, s], mask));
    let mask = mask.as_ref().map(Tensor::view);
    let (q, k, v) = (q.view(), k.view(), v.view());
    rig.device.attention(spec, q, k, v, mask, out.view(), lse.view()).unwrap();
    rig.read(&out)
}

#[test]
fn attention_is_what_plain_loops_give() {
    for (sizes, visibility, masked) in [
        ([2, 4, 2, 67, 67, 16, 16], Visibility::Causal, false),
        ([1, 2, 2, 130, 70, 5, 33], Visibility::Causal, false),
        ([1, 3, 1, 70, 200, 24, 7], Visibility::All, true),
        ([2, 4, 4, 1, 300, 64, 64], Visibility::Causal, false),
        ([1, 4, 2, 3, 90, 10, 80], Visibility::Causal, true),
        ([1, 1, 1, 5, 6, 0, 4], Visibility::All, false),
        ([1, 1, 1, 5, 0, 3, 4], Visibility::All, false),
    ] {
        let [b, h, g, t, s, d, e] = sizes;
        let spec = Attention { scale: 0.2, visibility };
        let (q, k) = (Rig::numbers(b * h * t * d, 1), Rig::numbers(b * g * s * d, 2));
        let v = Rig::numbers(b * g * s * e, 3);
        let mask: Vec<f64> =
            Rig::numbers(b * h * t * s, 4).iter().map(|n| f64::from(*n < 0.3)).collect();
        let mask = masked.then_some(&mask[..]);
        let inputs = [&q[..], &k, &v];
        let want = plain_attention(spec, sizes, inputs, mask);
        assert_close("f64", &attend(&rig(DType::F64), spec, sizes, inputs, mask), &want, 1e-12);
        assert_close("f32", &attend(&rig(DType::F32), spec, sizes, inputs, mask), &want, 1e-5);
    }
}

const Q: [f64; 6] = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
const K: [f64; 6] = [1.0, 0.0, 0.0, 1.0, 1.0, -1.0];
const VALUES: [f64; 6] = [1.0, 10.0, 2.0, 20.0, 4.0, 40.0];

#[test]
fn attn_01_a_row_that_sees_nothing_is_0_and_has_no_gradient() {
    let rig = rig(DType::F32);
    let spec = Attention { scale: 0.5f64.sqrt(), visibility: Visibility::All };
    let shape = [1, 1, 3, 2];
    let [q, k, v] = [Q, K, VALUES].map(|values| rig.tensor(&shape, &values));
    let mask = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    let mask = rig.dense(DType::U8, &[1, 1, 3, 3], &mask);
    let (out, lse) = (rig.zeros(&shape), rig.wide(&[1, 1, 3]));
    let (q, k, v, mask) = (q.view(), k.view(), v.view(), Some(mask.view()));
    rig.device.attention(spec, q, k, v, mask, out.view(), lse.view()).unwrap();
    let want = [1.3302384507, 13.3023845067, 0.0, 0.0, 1.9944395366, 19.9443953660];
    assert_close("out", &rig.read(&out), &want, 1e-6);
    let dout = rig.tensor(&shape, &[1.0; 6]);
    let gradients = [0; 3].map(|_| rig.zeros(&shape));
    let [dq, dk, dv] = [0, 1, 2].map(|at| gradients[at].view());
    let (o, l, dout) = (out.view(), lse.view(), dout.view());
    rig.device.attention_backward(spec, q, k, v, mask, o, l, dout, dq, dk, dv).unwrap();
    let [dq, dk, dv] = [0, 1, 2].map(|at| rig.read(&gradients[at]));
    assert_eq!(dq[2..4], [0.0; 2]);
    assert!(dk.iter().all(|value| value.is_finite()));
    let want = [1.0708736420, 1.0708736420, 0.7313505434, 0.7313505434, 0.1977758146, 0.1977758146];
    assert_close("dv", &dv, &want, 1e-6);
}

#[test]
fn attn_02_a_position_sees_itself_and_not_the_next() {
    let rig = rig(DType::F32);
    let spec = Attention { scale: 0.5f64.sqrt(), visibility: Visibility::Causal };
    let got = attend(&rig, spec, [1, 1, 1, 3, 3, 2, 2], [&Q, &K, &VALUES], None);
    let want = [1.0, 10.0, 1.6697615493, 16.6976154933, 1.9944395366, 19.9443953660];
    assert_close("out", &got, &want, 1e-6);
    assert_eq!(got[..2], [1.0, 10.0]);
}

#[test]
fn attn_04c_heads_of_odd_size_work() {
    let spec = Attention { scale: 3f64.sqrt().recip(), visibility: Visibility::Causal };
    let inputs: [&[f64]; 3] =
        [&[1.0, 2.0, 3.0, 0.0, 1.0, 0.0], &[1.0, 0.0, 1.0, 0.0, 2.0, 0.0], &[1.0, 5.0]];
    let got = attend(&rig(DType::F32), spec, [1, 1, 1, 2, 2, 3, 1], inputs, None);
    assert_close("out", &got, &[1.0, 4.0414737674], 1e-6);
}

#[test]
fn norms_add_the_residual_and_report_statistics() {
    let rig = rig(DType::F64);
    let (shape, columns) = ([5, 70], 70);
    let (x, residual) = (rig.random(&shape, 1), rig.random(&shape, 2));
    let (weight, bias) = (rig.random(&[columns], 3), rig.random(&[columns], 4));
    let (sum, y, statistics) = (rig.zeros(&shape), rig.zeros(&shape), rig.wide(&[2, 5]));
    for kind in [NormKind::Layer, NormKind::Rms] {
        let operands = NormOperands {
            x: x.view(),
            residual: Some(residual.view()),
            weight: Some(weight.view()),
            bias: Some(bias.view()),
        };
        let (norm, into) = (Norm { kind, epsilon: 1e-5 }, Some(sum.view()));
        rig.device.normalize(norm, operands, into, statistics.view(), y.view()).unwrap();
        let (a, b) = (rig.read(&x), rig.read(&residual));
        let added: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(rig.read(&sum), added);
        let (w, b) = (rig.read(&weight), rig.read(&bias));
        let (mut want, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
        for row in added.chunks(columns) {
            let mean = match kind {
                NormKind::Layer => row.iter().sum::<f64>() / columns as f64,
                NormKind::Rms => 0.0,
            };
            let squares: f64 = row.iter().map(|x| (x - mean).powi(2)).sum();
            let rstd = (squares / columns as f64 + 1e-5).sqrt().recip();
            want.extend((0..columns).map(|at| (row[at] - mean) * rstd * w[at] + b[at]));
            means.push(mean);
            rstds.push(rstd);
        }
        assert_close("y", &rig.read(&y), &want, 1e-12);
        assert_close("statistics", &rig.read(&statistics), &[means, rstds].concat(), 1e-12);
    }
}

#[test]
fn a_residual_without_a_place_for_the_sum_is_refused() {
    let rig = rig(DType::F32);
    let (x, y, statistics) = (rig.zeros(&[2, 3]), rig.zeros(&[2, 3]), rig.wide(&[2, 2]));
    let operands = NormOperands { x: x.view(), residual: Some(x.view()), weight: None, bias: None };
    let norm = Norm { kind: NormKind::Rms, epsilon: 1e-5 };
    let error = rig.device.normalize(norm, operands, None, statistics.view(), y.view());
    assert!(error.unwrap_err().to_string().contains("residual"));
}

#[test]
fn a_bias_is_added_before_the_activation() {
    let rig = rig(DType::F64);
    let (x, bias, y) = (rig.random(&[3, 5], 1), rig.random(&[5], 2), rig.zeros(&[3, 5]));
    let b = rig.read(&bias);
    let added: Vec<f64> = rig.read(&x).iter().zip(b.iter().cycle()).map(|(x, b)| x + b).collect();
    for (activation, value) in [
        (None, (|x| x) as fn(f64) -> f64),
        (Some(Activation::Relu), |x| x.max(0.0)),
        (Some(Activation::Silu), |x| x / (1.0 + (-x).exp())),
    ] {
        rig.device.bias_activation(activation, x.view(), Some(bias.view()), y.view()).unwrap();
        let want: Vec<f64> = added.iter().map(|&x| value(x)).collect();
        assert_close("y", &rig.read(&y), &want, 1e-14);
    }
}

#[test]
fn rotary_turns_pairs_of_the_two_halves() {
    let rig = rig(DType::F64);
    let x = rig.tensor(&[1, 2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let angles = [0.1f64, 0.2, 0.3, 0.4];
    let cos = rig.dense(DType::F64, &[2, 2], &angles.map(f64::cos));
    let sin = rig.dense(DType::F64, &[2, 2], &angles.map(f64::sin));
    let y = rig.zeros(&[1, 2, 4]);
    let (cos, sin) = (cos.view(), sin.view());
    rig.device.rotary(Rotation::Forward, x.view(), cos, sin, y.view()).unwrap();
    let pair = |a: f64, b: f64, angle: f64| {
        (a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin())
    };
    let (a, b) = (pair(1.0, 3.0, 0.1), pair(2.0, 4.0, 0.2));
    let (c, d) = (pair(5.0, 7.0, 0.3), pair(6.0, 8.0, 0.4));
    assert_close("y", &rig.read(&y), &[a.0, b.0, a.1, b.1, c.0, d.0, c.1, d.1], 1e-14);
    rig.device.rotary(Rotation::Backward, y.view(), cos, sin, y.view()).unwrap();
    assert_close("back", &rig.read(&y), &rig.read(&x), 1e-14);
}

#[test]
fn dropout_keeps_what_the_stream_says() {
    let rig = rig(DType::F32);
    let (x, y) = (rig.tensor(&[3, 1501], &[1.0; 4503]), rig.zeros(&[3, 1501]));
    let key = RandomKey::from_seed(7);
    for (probability, scale) in [(0.0, 1.0), (0.25, 4.0 / 3.0), (0.3, 1.0 / 0.7), (1.0, 0.0)] {
        rig.device.dropout(probability, key, 6, x.view(), y.view()).unwrap();
        for (at, got) in rig.read(&y).into_iter().enumerate() {
            let kept = f64::from(rng::uniform(key.word(6 + at as u64))) >= probability;
            let want = if kept { scale } else { 0.0 };
            assert!((got - want).abs() < 1e-6, "{at} at {probability}: {got}");
        }
    }
    for bad in [-0.1, 1.5, f64::NAN] {
        let error = rig.device.dropout(bad, key, 0, x.view(), y.view()).unwrap_err().to_string();
        assert!(error.contains("probability"), "{error}");
    }
}
