//! Every fused family with its derivative, at a size that the caller scales.
//!
//! Size 0 has no rows at all, 1 is small and odd, larger ones occupy several threads.

use sneppx_contract::{
    Activation, AdamWStep, Attention, CrossEntropy, DType, Kernels, Norm, NormKind, NormOperands,
    RandomKey, Rotation, SUM_BLOCK, SgdStep, Store, Visibility,
};

use crate::rig::{Rig, Tensor};

type Case = fn(&Rig, usize) -> Vec<Vec<f64>>;

pub const ALL: [(&str, Case); 13] = [
    ("softmax", softmax),
    ("layer norm", layer_norm),
    ("rms norm", rms_norm),
    ("bias and activation", bias_activation),
    ("gated activation", gated_activation),
    ("rotary", rotary),
    ("cross entropy", cross_entropy),
    ("attention", attention),
    ("grouped attention with a mask", masked_attention),
    ("attention over a cache", cached_attention),
    ("dropout", dropout),
    ("optimizers", optimizers),
    ("sums", sums),
];

const ACTIVATIONS: [Activation; 4] =
    [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu];

fn read(rig: &Rig, tensors: &[&Tensor]) -> Vec<Vec<f64>> {
    tensors.iter().map(|tensor| rig.read(tensor)).collect()
}

fn softmax(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    let shape = [size * 8, 7, 67];
    let (x, dy) = (rig.random(&shape, 1), rig.random(&shape, 2));
    let (y, dx) = (rig.zeros(&shape), rig.zeros(&shape));
    rig.device.softmax(x.view(), y.view()).unwrap();
    rig.device.softmax_backward(y.view(), dy.view(), dx.view()).unwrap();
    let separate = read(rig, &[&y, &dx]);
    rig.device.softmax(x.view(), x.view()).unwrap();
    rig.device.softmax_backward(x.view(), dy.view(), dy.view()).unwrap();
    assert_eq!(read(rig, &[&x, &dy]), separate, "in place");
    separate
}

fn layer_norm(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    norm(rig, size, NormKind::Layer)
}

fn rms_norm(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    norm(rig, size, NormKind::Rms)
}

fn norm(rig: &Rig, size: usize, kind: NormKind) -> Vec<Vec<f64>> {
    let (shape, columns) = ([size * 11, 7, 67], 67);
    let rows = size * 77;
    let norm = Norm { kind, epsilon: 1e-5 };
    let (x, residual) = (rig.random(&shape, 1), rig.random(&shape, 2));
    let (weight, bias) = (rig.random(&[columns], 3), rig.random(&[columns], 4));
    let (dy, dsum) = (rig.random(&shape, 5), rig.random(&shape, 6));
    let (sum, y, statistics) = (rig.zeros(&shape), rig.zeros(&shape), rig.wide(&[2, rows]));
    let (dx, dweight, dbias) = (rig.zeros(&shape), rig.zeros(&[columns]), rig.zeros(&[columns]));
    let operands = NormOperands {
        x: x.view(),
        residual: Some(residual.view()),
        weight: Some(weight.view()),
        bias: Some(bias.view()),
    };
    let d = &rig.device;
    d.normalize(norm, operands, Some(sum.view()), statistics.view(), y.view()).unwrap();
    d.normalize_backward(
        norm,
        sum.view(),
        Some(weight.view()),
        statistics.view(),
        dy.view(),
        Some(dsum.view()),
        dx.view(),
        Some((dweight.view(), Store::Overwrite)),
        Some((dbias.view(), Store::Add)),
    )
    .unwrap();
    read(rig, &[&sum, &y, &statistics, &dx, &dweight, &dbias])
}

fn bias_activation(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    let shape = [size * 5, 3, 1030];
    let (x, dy) = (rig.random(&shape, 1), rig.random(&shape, 2));
    let bias = rig.random(&[1030], 3);
    let mut all = Vec::new();
    for activation in ACTIVATIONS.map(Some).into_iter().chain([None]) {
        let (y, dx, dbias) = (rig.zeros(&shape), rig.zeros(&shape), rig.zeros(&[1030]));
        let d = &rig.device;
        let (x, bias) = (x.view(), Some(bias.view()));
        d.bias_activation(activation, x, bias, y.view()).unwrap();
        let into = Some((dbias.view(), Store::Add));
        d.bias_activation_backward(activation, x, bias, dy.view(), dx.view(), into).unwrap();
        let again = rig.random(&shape, 2);
        let into = Some((dbias.view(), Store::Overwrite));
        d.bias_activation_backward(activation, x, bias, again.view(), again.view(), into).unwrap();
        assert_eq!(rig.read(&again), rig.read(&dx), "in place");
        all.extend(read(rig, &[&y, &dx, &dbias]));
    }
    all
}

fn gated_activation(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    let shape = [size * 5, 1030];
    let (gate, up, dy) = (rig.random(&shape, 1), rig.random(&shape, 2), rig.random(&shape, 3));
    let mut all = Vec::new();
    for activation in ACTIVATIONS {
        let (y, dgate, dup) = (rig.zeros(&shape), rig.zeros(&shape), rig.zeros(&shape));
        let (gate, up, dy) = (gate.view(), up.view(), dy.view());
        rig.device.gated_activation(activation, gate, up, y.view()).unwrap();
        let (to_gate, to_up) = (dgate.view(), dup.view());
        rig.device.gated_activation_backward(activation, gate, up, dy, to_gate, to_up).unwrap();
        all.extend(read(rig, &[&y, &dgate, &dup]));
    }
    all
}

fn rotary(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    let shape = [size * 4, 3, 17, 22];
    let table = Rig::numbers(17 * 11, 2);
    let table = |f: fn(f64) -> f64| -> Vec<f64> { table.iter().map(|&angle| f(angle)).collect() };
    let wide = rig.dtype.accumulator();
    let cos = rig.dense(wide, &[17, 11], &table(f64::cos));
    let sin = rig.dense(wide, &[17, 11], &table(f64::sin));
    let (x, y, back) = (rig.random(&shape, 1), rig.zeros(&shape), rig.zeros(&shape));
    let (cos, sin) = (cos.view(), sin.view());
    rig.device.rotary(Rotation::Forward, x.view(), cos, sin, y.view()).unwrap();
    rig.device.rotary(Rotation::Backward, y.view(), cos, sin, back.view()).unwrap();
    read(rig, &[&y, &back])
}

fn cross_entropy(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    let (rows, classes) = (size * 13, 5003);
    let logits = rig.random(&[rows, classes], 1);
    let targets: Vec<f64> = (0..rows).map(|row| [-1.0, 7.0, 5002.0][row % 3]).collect();
    let targets = rig.dense(DType::I64, &[rows], &targets);
    let dlosses = rig.dense(rig.dtype.accumulator(), &[rows], &vec![0.5; rows]);
    let mut all = Vec::new();
    for label_smoothing in [0.0, 0.1] {
        let spec = CrossEntropy { ignore_index: -1, label_smoothing };
        let (losses, log_sum_exp) = (rig.wide(&[rows]), rig.wide(&[rows]));
        let dlogits = rig.random(&[rows, classes], 1);
        let (targets, lse) = (targets.view(), log_sum_exp.view());
        rig.device.cross_entropy(spec, logits.view(), targets, losses.view(), lse).unwrap();
        // In place and beside.
        let (d, dlosses) = (&rig.device, dlosses.view());
        let own = dlogits.view();
        d.cross_entropy_backward(spec, own, targets, lse, dlosses, own).unwrap();
        let beside = rig.zeros(&[rows, classes]);
        let logits = logits.view();
        d.cross_entropy_backward(spec, logits, targets, lse, dlosses, beside.view()).unwrap();
        assert_eq!(rig.read(&beside), rig.read(&dlogits), "in place");
        all.extend(read(rig, &[&losses, &log_sum_exp, &dlogits]));
    }
    all
}

fn attention(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    attend(rig, [size, 2, 2, 67, 67, 16, 16], Visibility::Causal, false)
}

fn masked_attention(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    attend(rig, [size, 4, 2, 70, 131, 13, 18], Visibility::All, true)
}

fn cached_attention(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    let mut all = attend(rig, [size, 6, 3, 1, 200, 32, 32], Visibility::Causal, false);
    all.extend(attend(rig, [size, 2, 1, 3, 90, 20, 5], Visibility::Causal, true));
    // More queries than keys: the first see nothing.
    all.extend(attend(rig, [size, 2, 1, 9, 5, 16, 16], Visibility::Causal, false));
    all
}

fn attend(rig: &Rig, sizes: [usize; 7], visibility: Visibility, masked: bool) -> Vec<Vec<f64>> {
    let [b, h, g, t, s, d, e] = sizes;
    let spec = Attention { scale: 0.25, visibility };
    let (q, k) = (rig.random(&[b, h, t, d], 1), rig.random(&[b, g, s, d], 2));
    let (v, dout) = (rig.random(&[b, g, s, e], 3), rig.random(&[b, h, t, e], 4));
    // Row 2 sees nothing.
    let visible: Vec<f64> = Rig::numbers(b * h * t * s, 5)
        .into_iter()
        .enumerate()
        .map(|(at, number)| f64::from(at / s % t != 2 && number < 0.5))
        .collect();
    let mask = rig.dense(DType::U8, &[b, h, t, s], &visible);
    let mask = masked.then(|| mask.view());
    let (out, lse) = (rig.zeros(&[b, h, t, e]), rig.wide(&[b, h, t]));
    let (dq, dk, dv) =
        (rig.zeros(&[b, h, t, d]), rig.zeros(&[b, g, s, d]), rig.zeros(&[b, g, s, e]));
    let (q, k, v, o, l) = (q.view(), k.view(), v.view(), out.view(), lse.view());
    rig.device.attention(spec, q, k, v, mask, o, l).unwrap();
    let gradients = (dq.view(), dk.view(), dv.view());
    rig.device
        .attention_backward(
            spec,
            q,
            k,
            v,
            mask,
            o,
            l,
            dout.view(),
            gradients.0,
            gradients.1,
            gradients.2,
        )
        .unwrap();
    read(rig, &[&out, &dq, &dk, &dv])
}

fn dropout(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    let shape = [size * 4, 2051];
    let (x, y) = (rig.random(&shape, 1), rig.zeros(&shape));
    let key = RandomKey::from_seed(2);
    rig.device.dropout(0.25, key, 5, x.view(), y.view()).unwrap();
    read(rig, &[&y])
}

fn optimizers(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    let len = size * 5003;
    let run = |seed| rig.random(&[len], seed);
    let (param, grad, m, v) = (run(1), run(2), rig.wide(&[len]), rig.wide(&[len]));
    for step in [1, 2] {
        let step = AdamWStep {
            learning_rate: 0.01,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.1,
            step,
            gradient_scale: 0.5,
        };
        rig.device.adamw_step(step, param.view(), grad.view(), m.view(), v.view()).unwrap();
    }
    let (other, momentum) = (run(3), rig.wide(&[len]));
    for step in [1, 2] {
        let step = SgdStep {
            learning_rate: 0.1,
            momentum: 0.9,
            dampening: 0.1,
            nesterov: true,
            weight_decay: 0.01,
            step,
            gradient_scale: 1.0,
        };
        let momentum = Some(momentum.view());
        rig.device.sgd_step(step, other.view(), grad.view(), momentum).unwrap();
    }
    read(rig, &[&param, &m, &v, &other, &momentum])
}

fn sums(rig: &Rig, size: usize) -> Vec<Vec<f64>> {
    let len = size * 50_003;
    let x = rig.random(&[len], 1);
    let squares = rig.wide(&[len.div_ceil(SUM_BLOCK)]);
    rig.device.sums_of_squares(x.view(), squares.view()).unwrap();
    let nodes: Vec<Tensor> = (0..5).map(|seed| rig.random(&[size * 9, 1500], seed)).collect();
    let views: Vec<_> = nodes.iter().map(Tensor::view).collect();
    let total = rig.zeros(&[size * 9, 1500]);
    rig.device.tree_sum(&views, total.view()).unwrap();
    read(rig, &[&squares, &total])
}
