//! Derivatives in `f64` against central differences of the forward pass.

use sneppx_contract::{
    Activation, Attention, CrossEntropy, DType, Kernels, Norm, NormKind, NormOperands, Store,
    Visibility,
};

use crate::rig::{Rig, Style, Tensor};

/// The gradient of `sum(dy * forward(x))` at `x`, by differences.
fn differences(x: &[f64], dy: &[f64], forward: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let loss = |x: &[f64]| -> f64 { forward(x).iter().zip(dy).map(|(y, dy)| y * dy).sum() };
    let step = 1e-5;
    let mut x = x.to_vec();
    (0..x.len())
        .map(|at| {
            let old = x[at];
            x[at] = old + step;
            let above = loss(&x);
            x[at] = old - step;
            let below = loss(&x);
            x[at] = old;
            (above - below) / (2.0 * step)
        })
        .collect()
}

fn assert_close(what: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() < 1e-7 * (1.0 + want.abs()), "{what}[{at}]: {got}, {want}");
    }
}

fn rig() -> Rig {
    Rig::new(1, DType::F64, Style::Dense)
}

/// Numbers off the kinks of ReLU.
fn numbers(len: usize, seed: u64) -> Vec<f64> {
    Rig::numbers(len, seed).into_iter().map(|number| number + 0.003).collect()
}

#[test]
fn softmax_and_cross_entropy() {
    let (rig, shape) = (rig(), [3, 7]);
    let (x, dy) = (numbers(21, 1), numbers(21, 2));
    let forward = |x: &[f64]| {
        let y = rig.zeros(&shape);
        rig.device.softmax(rig.tensor(&shape, x).view(), y.view()).unwrap();
        rig.read(&y)
    };
    let (y, gradient) = (rig.tensor(&shape, &forward(&x)), rig.tensor(&shape, &dy));
    let dx = rig.zeros(&shape);
    rig.device.softmax_backward(y.view(), gradient.view(), dx.view()).unwrap();
    assert_close("softmax", &rig.read(&dx), &differences(&x, &dy, forward));

    let targets = rig.dense(DType::U32, &[3], &[6.0, 9.0, 0.0]);
    let spec = CrossEntropy { ignore_index: 9, label_smoothing: 0.2 };
    let lse = rig.wide(&[3]);
    let forward = |x: &[f64]| {
        let (x, losses) = (rig.tensor(&shape, x), rig.wide(&[3]));
        let views = (x.view(), targets.view(), losses.view(), lse.view());
        rig.device.cross_entropy(spec, views.0, views.1, views.2, views.3).unwrap();
        rig.read(&losses)
    };
    let dy = [0.5, 2.0, -1.0];
    let want = differences(&x, &dy, forward);
    forward(&x);
    let (logits, dlosses) = (rig.tensor(&shape, &x), rig.dense(DType::F64, &[3], &dy));
    let views = (logits.view(), targets.view(), lse.view(), dlosses.view());
    rig.device.cross_entropy_backward(spec, views.0, views.1, views.2, views.3, views.0).unwrap();
    assert_close("cross entropy", &rig.read(&logits), &want);
}

#[test]
fn norms() {
    let (rig, shape) = (rig(), [4, 6]);
    for kind in [NormKind::Layer, NormKind::Rms] {
        let norm = Norm { kind, epsilon: 1e-3 };
        let (x, weight, bias) = (numbers(24, 1), numbers(6, 2), numbers(6, 3));
        let (dy, dsum) = (numbers(24, 4), numbers(24, 5));
        let statistics = rig.wide(&[2, 4]);
        // The sum reaches the loss by itself, too.
        let forward = |x: &[f64], weight: &[f64], bias: &[f64]| {
            let (x, weight) = (rig.tensor(&shape, x), rig.tensor(&[6], weight));
            let (bias, y) = (rig.tensor(&[6], bias), rig.zeros(&shape));
            let operands = NormOperands {
                x: x.view(),
                residual: None,
                weight: Some(weight.view()),
                bias: Some(bias.view()),
            };
            let d = &rig.device;
            d.normalize(norm, operands, None, statistics.view(), y.view()).unwrap();
            [rig.read(&y), rig.read(&x)].concat()
        };
        let gradient = [&dy[..], &dsum].concat();
        let want_dx = differences(&x, &gradient, |x| forward(x, &weight, &bias));
        let want_dweight = differences(&weight, &gradient, |weight| forward(&x, weight, &bias));
        let want_dbias = differences(&bias, &gradient, |bias| forward(&x, &weight, bias));
        forward(&x, &weight, &bias);
        let (x, weight) = (rig.tensor(&shape, &x), rig.tensor(&[6], &weight));
        let (dy, dsum) = (rig.tensor(&shape, &dy), rig.tensor(&shape, &dsum));
        let (dx, dweight, dbias) = (rig.zeros(&shape), rig.zeros(&[6]), rig.zeros(&[6]));
        rig.device
            .normalize_backward(
                norm,
                x.view(),
                Some(weight.view()),
                statistics.view(),
                dy.view(),
                Some(dsum.view()),
                dx.view(),
                Some((dweight.view(), Store::Overwrite)),
                Some((dbias.view(), Store::Overwrite)),
            )
            .unwrap();
        assert_close("dx", &rig.read(&dx), &want_dx);
        assert_close("dweight", &rig.read(&dweight), &want_dweight);
        assert_close("dbias", &rig.read(&dbias), &want_dbias);
    }
}

#[test]
fn activations() {
    let (rig, shape) = (rig(), [4, 5]);
    for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu] {
        let (x, up, dy) = (numbers(20, 1), numbers(20, 2), numbers(20, 3));
        let forward = |x: &[f64], up: &[f64]| {
            let (x, up, y) = (rig.tensor(&shape, x), rig.tensor(&shape, up), rig.zeros(&shape));
            rig.device.gated_activation(activation, x.view(), up.view(), y.view()).unwrap();
            rig.read(&y)
        };
        let want_dgate = differences(&x, &dy, |x| forward(x, &up));
        let want_dup = differences(&up, &dy, |up| forward(&x, up));
        let tensors: Vec<Tensor> = [&x, &up, &dy].map(|v| rig.tensor(&shape, v)).into();
        let (dgate, dup) = (rig.zeros(&shape), rig.zeros(&shape));
        let [gate, up, dy] = [0, 1, 2].map(|at| tensors[at].view());
        let (to_gate, to_up) = (dgate.view(), dup.view());
        rig.device.gated_activation_backward(activation, gate, up, dy, to_gate, to_up).unwrap();
        assert_close("dgate", &rig.read(&dgate), &want_dgate);
        assert_close("dup", &rig.read(&dup), &want_dup);
    }
}

#[test]
fn biases_gather_the_gradients_of_their_rows() {
    let (rig, shape) = (rig(), [130, 3]);
    let (x, bias, dy) = (numbers(390, 1), numbers(3, 2), numbers(390, 3));
    let activation = Some(Activation::Gelu);
    let forward = |bias: &[f64]| {
        let (x, bias, y) = (rig.tensor(&shape, &x), rig.tensor(&[3], bias), rig.zeros(&shape));
        rig.device.bias_activation(activation, x.view(), Some(bias.view()), y.view()).unwrap();
        rig.read(&y)
    };
    let want = differences(&bias, &dy, forward);
    let (x, bias, dy) = (rig.tensor(&shape, &x), rig.tensor(&[3], &bias), rig.tensor(&shape, &dy));
    let (dx, dbias) = (rig.zeros(&shape), rig.tensor(&[3], &[1.0, 2.0, 3.0]));
    let into = Some((dbias.view(), Store::Add));
    let (x, bias, dy) = (x.view(), Some(bias.view()), dy.view());
    rig.device.bias_activation_backward(activation, x, bias, dy, dx.view(), into).unwrap();
    let added: Vec<f64> = want.iter().zip([1.0, 2.0, 3.0]).map(|(a, b)| a + b).collect();
    assert_close("dbias", &rig.read(&dbias), &added);
}

#[test]
fn attention() {
    for (visibility, masked, few) in [
        (Visibility::All, false, false),
        (Visibility::Causal, true, false),
        (Visibility::Causal, false, true),
    ] {
        let rig = rig();
        let spec = Attention { scale: 0.3, visibility };
        let (b, h, g, s, d, e) = (1, 4, 2, 7, 3, 2);
        let t = if few { 2 } else { 5 };
        let mask: Vec<f64> =
            (0..h * t * s).map(|at| f64::from(at / s % t != 1 && at % 3 != 1)).collect();
        let mask = rig.dense(DType::U8, &[b, h, t, s], &mask);
        let mask = masked.then(|| mask.view());
        let shapes = [[b, h, t, d], [b, g, s, d], [b, g, s, e]];
        let values = [0, 1, 2].map(|at| numbers(shapes[at].iter().product(), at as u64));
        let dout = numbers(b * h * t * e, 9);
        let lse = rig.wide(&[b, h, t]);
        let forward = |values: [&[f64]; 3]| {
            let [q, k, v] = [0, 1, 2].map(|at| rig.tensor(&shapes[at], values[at]));
            let out = rig.zeros(&[b, h, t, e]);
            let (q, k, v, o) = (q.view(), k.view(), v.view(), out.view());
            rig.device.attention(spec, q, k, v, mask, o, lse.view()).unwrap();
            rig.read(&out)
        };
        let all = || [0, 1, 2].map(|at| &values[at][..]);
        let want = [0, 1, 2].map(|part| {
            differences(&values[part], &dout, |changed| {
                let mut inputs = all();
                inputs[part] = changed;
                forward(inputs)
            })
        });
        let out = rig.tensor(&[b, h, t, e], &forward(all()));
        let dout = rig.tensor(&[b, h, t, e], &dout);
        let inputs = [0, 1, 2].map(|at| rig.tensor(&shapes[at], &values[at]));
        let gradients = shapes.map(|shape| rig.zeros(&shape));
        let [q, k, v] = [0, 1, 2].map(|at| inputs[at].view());
        let [dq, dk, dv] = [0, 1, 2].map(|at| gradients[at].view());
        let (o, l, dout) = (out.view(), lse.view(), dout.view());
        rig.device.attention_backward(spec, q, k, v, mask, o, l, dout, dq, dk, dv).unwrap();
        for (at, name) in ["dq", "dk", "dv"].into_iter().enumerate() {
            assert_close(name, &rig.read(&gradients[at]), &want[at]);
        }
    }
}
