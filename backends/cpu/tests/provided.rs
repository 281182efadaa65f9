//! The compositions of the contract on this device, against plain loops over `f64`.

use sneppx_contract::{
    Activation, AdamWStep, Attention, CrossEntropy, DType, Error, HostSlice, HostVec, Layout, Norm,
    NormKind, NormOperands, RandomKey, Rotation, SUM_BLOCK, SgdStep, Shape, Store, View,
    Visibility, provided, rng,
};
use sneppx_contract::{Kernels, Memory};
use sneppx_cpu::{Cpu, CpuBuffer, CpuOptions};

const DTYPES: [(DType, f64); 4] =
    [(DType::F64, 1e-12), (DType::F32, 2e-5), (DType::BF16, 2e-2), (DType::F16, 4e-3)];

/// Buffers of one dtype and the loops' view of them.
struct Bench {
    device: Cpu,
    dtype: DType,
    tolerance: f64,
}

impl Bench {
    fn all() -> impl Iterator<Item = Bench> {
        let device = Cpu::new(CpuOptions { threads: Some(2) }).unwrap();
        DTYPES.into_iter().map(move |(dtype, tolerance)| Bench {
            device: device.clone(),
            dtype,
            tolerance,
        })
    }

    /// Numbers near 1 in size, the same for every dtype.
    fn numbers(&self, seed: u64, len: usize) -> CpuBuffer {
        let key = RandomKey::from_seed(seed);
        let values: Vec<f64> =
            (0..len as u64).map(|i| f64::from(rng::uniform(key.word(i))) * 3.0 - 1.5).collect();
        self.device.upload(HostVec::from_f64(self.dtype, &values).as_slice()).unwrap()
    }

    fn empty(&self, len: usize) -> CpuBuffer {
        let out = self.device.alloc(self.dtype, len).unwrap();
        self.device.fill(f64::NAN, View::whole(&out)).unwrap();
        out
    }

    fn wide(&self, len: usize) -> CpuBuffer {
        let out = self.device.alloc(self.dtype.accumulator(), len).unwrap();
        self.device.fill(f64::NAN, View::whole(&out)).unwrap();
        out
    }

    fn values(&self, buffer: &CpuBuffer) -> Vec<f64> {
        self.device.download(buffer).unwrap().to_f64()
    }

    fn agrees(&self, what: &str, got: &CpuBuffer, want: &[f64]) {
        let got = self.values(got);
        assert_eq!(got.len(), want.len(), "{what}");
        for (place, (got, want)) in got.iter().zip(want).enumerate() {
            let close = got == want || (got - want).abs() <= self.tolerance * (1.0 + want.abs());
            assert!(close, "{what} in {}: {got} at {place}, want {want}", self.dtype);
        }
    }
}

fn shaped<'a>(buffer: &'a CpuBuffer, shape: &[usize]) -> View<'a, CpuBuffer> {
    View::new(buffer, Layout::contiguous(Shape::new(shape).unwrap()))
}

/// The derivative of `f` at `x` along every coordinate, by central differences.
fn slopes(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let step = 1e-5;
    let at = |place: usize, by: f64| {
        let mut moved = x.to_vec();
        moved[place] += by;
        f(&moved)
    };
    (0..x.len()).map(|i| (at(i, step) - at(i, -step)) / (2.0 * step)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Tolerance of comparisons with central differences.
fn coarse(bench: Bench) -> Bench {
    Bench { tolerance: bench.tolerance.max(1e-8), ..bench }
}

fn softmax_rows(x: &[f64], columns: usize) -> Vec<f64> {
    x.chunks(columns)
        .flat_map(|row| {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let parts: Vec<f64> = row.iter().map(|x| (x - largest).exp()).collect();
            let sum: f64 = parts.iter().sum();
            parts.into_iter().map(move |part| part / sum).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn softmax_and_its_derivative_in_place_too() {
    for bench in Bench::all().map(coarse) {
        let (x, dy) = (bench.numbers(1, 15), bench.numbers(2, 15));
        let (y, dx) = (bench.empty(15), bench.empty(15));
        let view = |b| shaped(b, &[3, 5]);
        provided::softmax::softmax(&bench.device, view(&x), view(&y)).unwrap();
        let input = bench.values(&x);
        bench.agrees("softmax", &y, &softmax_rows(&input, 5));
        provided::softmax::softmax_backward(&bench.device, view(&y), view(&dy), view(&dx)).unwrap();
        let weights = bench.values(&dy);
        bench.agrees("dx", &dx, &slopes(&input, |x| dot(&softmax_rows(x, 5), &weights)));
        provided::softmax::softmax(&bench.device, view(&x), view(&x)).unwrap();
        assert_eq!(bench.values(&x), bench.values(&y));
    }
}

fn normal_rows(norm: Norm, x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let columns = weight.len();
    let mut out = Vec::new();
    for row in x.chunks(columns) {
        let n = columns as f64;
        let mean = match norm.kind {
            NormKind::Layer => row.iter().sum::<f64>() / n,
            NormKind::Rms => 0.0,
        };
        let spread = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let rstd = 1.0 / (spread + norm.epsilon).sqrt();
        out.extend((0..columns).map(|j| (row[j] - mean) * rstd * weight[j] + bias[j]));
    }
    out
}

#[test]
fn norms_with_residual_and_every_derivative() {
    for kind in [NormKind::Layer, NormKind::Rms] {
        for bench in Bench::all().map(coarse) {
            let norm = Norm { kind, epsilon: 1e-5 };
            let d = &bench.device;
            let [x, residual, dy, dsum] = [1, 2, 3, 4].map(|seed| bench.numbers(seed, 28));
            let [weight, bias] = [5, 6].map(|seed| bench.numbers(seed, 7));
            let (sum, out, statistics) = (bench.empty(28), bench.empty(28), bench.wide(8));
            let view = |b| shaped(b, &[2, 2, 7]);
            let operands = NormOperands {
                x: view(&x),
                residual: Some(view(&residual)),
                weight: Some(View::whole(&weight)),
                bias: Some(View::whole(&bias)),
            };
            let rows = shaped(&statistics, &[2, 4]);
            provided::norm::normalize(d, norm, operands, Some(view(&sum)), rows, view(&out))
                .unwrap();
            let (a, b) = (bench.values(&x), bench.values(&residual));
            let total: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            bench.agrees("sum", &sum, &total);
            let input = bench.values(&sum);
            let (w, b) = (bench.values(&weight), bench.values(&bias));
            bench.agrees("out", &out, &normal_rows(norm, &input, &w, &b));

            let (dweight, dbias) = (bench.numbers(7, 7), bench.empty(7));
            let (before, through) = (bench.values(&dweight), bench.values(&dsum));
            provided::norm::normalize_backward(
                d,
                norm,
                view(&sum),
                Some(View::whole(&weight)),
                rows,
                view(&dy),
                Some(view(&dsum)),
                view(&dsum),
                Some((View::whole(&dweight), Store::Add)),
                Some((View::whole(&dbias), Store::Overwrite)),
            )
            .unwrap();
            let dy = bench.values(&dy);
            let of = |x: &[f64], w: &[f64], b: &[f64]| dot(&normal_rows(norm, x, w, b), &dy);
            let want = slopes(&input, |x| of(x, &w, &b));
            let want: Vec<f64> = want.iter().zip(&through).map(|(a, b)| a + b).collect();
            bench.agrees("dx over dsum", &dsum, &want);
            let want = slopes(&w, |w| of(&input, w, &b));
            let want: Vec<f64> = want.iter().zip(&before).map(|(a, b)| a + b).collect();
            bench.agrees("dweight", &dweight, &want);
            bench.agrees("dbias", &dbias, &slopes(&b, |b| of(&input, &w, b)));
        }
    }
}

#[test]
fn num_02_layer_norm_of_constant_and_of_large_values() {
    let bench = Bench::all().nth(1).unwrap();
    for (row, want) in [
        ([5.0, 5.0, 5.0, 5.0], [0.0; 4]),
        ([10000.0, 10001.0, 10002.0, 10003.0], [-1.341636, -0.447212, 0.447212, 1.341636]),
    ] {
        let x = bench.device.upload(HostVec::from_f64(DType::F32, &row).as_slice()).unwrap();
        let (out, statistics) = (bench.empty(4), bench.wide(2));
        let norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };
        let x = shaped(&x, &[1, 4]);
        let operands = NormOperands { x, residual: None, weight: None, bias: None };
        let (rows, y) = (shaped(&statistics, &[2, 1]), shaped(&out, &[1, 4]));
        provided::norm::normalize(&bench.device, norm, operands, None, rows, y).unwrap();
        bench.agrees("out", &out, &want);
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

#[test]
fn activations_with_bias_and_with_gate() {
    for bench in Bench::all().map(coarse) {
        let d = &bench.device;
        let [x, up, dy] = [1, 2, 3].map(|seed| bench.numbers(seed, 12));
        let bias = bench.numbers(4, 4);
        let (out, dbias) = (bench.empty(12), bench.numbers(5, 4));
        let (view, silu_op) = (|b| shaped(b, &[3, 4]), Some(Activation::Silu));
        let bias_view = Some(View::whole(&bias));
        let of =
            |x: &[f64], bias: &[f64]| (0..12).map(|i| silu(x[i] + bias[i % 4])).collect::<Vec<_>>();
        let [a, u, g, b, old] = [&x, &up, &dy, &bias, &dbias].map(|v| bench.values(v));
        provided::activation::bias_activation(d, silu_op, view(&x), bias_view, view(&out)).unwrap();
        bench.agrees("biased", &out, &of(&a, &b));
        let gradient = bench.device.upload(bench.device.download(&dy).unwrap().as_slice()).unwrap();
        provided::activation::bias_activation_backward(
            d,
            silu_op,
            view(&x),
            bias_view,
            view(&gradient),
            view(&gradient),
            Some((View::whole(&dbias), Store::Add)),
        )
        .unwrap();
        bench.agrees("dx over dy", &gradient, &slopes(&a, |a| dot(&of(a, &b), &g)));
        let want = slopes(&b, |b| dot(&of(&a, b), &g));
        let want: Vec<f64> = want.iter().zip(&old).map(|(a, b)| a + b).collect();
        bench.agrees("dbias", &dbias, &want);

        let gated = |x: &[f64], u: &[f64]| (0..12).map(|i| silu(x[i]) * u[i]).collect::<Vec<_>>();
        let op = Activation::Silu;
        provided::activation::gated_activation(d, op, view(&x), view(&up), view(&out)).unwrap();
        bench.agrees("gated", &out, &gated(&a, &u));
        provided::activation::gated_activation_backward(
            d,
            op,
            view(&x),
            view(&up),
            view(&dy),
            view(&x),
            view(&up),
        )
        .unwrap();
        bench.agrees("dgate over gate", &x, &slopes(&a, |a| dot(&gated(a, &u), &g)));
        bench.agrees("dup over up", &up, &slopes(&u, |u| dot(&gated(&a, u), &g)));
    }
}

#[test]
fn rotary_turns_pairs_and_back() {
    for bench in Bench::all() {
        let (x, out) = (bench.numbers(1, 2 * 3 * 4), bench.empty(24));
        let angles: Vec<f64> = (0..6).map(|i| 0.3 * i as f64).collect();
        let table = |f: fn(f64) -> f64| {
            let values: Vec<f64> = angles.iter().map(|&a| f(a)).collect();
            let host = HostVec::from_f64(bench.dtype.accumulator(), &values);
            bench.device.upload(host.as_slice()).unwrap()
        };
        let (cos, sin) = (table(f64::cos), table(f64::sin));
        let view = |b| shaped(b, &[2, 3, 4]);
        let turn = |rotation, x, out| {
            let (cos, sin) = (shaped(&cos, &[3, 2]), shaped(&sin, &[3, 2]));
            provided::rotary::rotary(&bench.device, rotation, x, cos, sin, out).unwrap();
        };
        turn(Rotation::Forward, view(&x), view(&out));
        let input = bench.values(&x);
        let mut want = vec![0.0; 24];
        for (row, angles) in (0..6).map(|row| (row, &angles[row % 3 * 2..])) {
            for j in 0..2 {
                let (a, b) = (input[4 * row + j], input[4 * row + 2 + j]);
                want[4 * row + j] = a * angles[j].cos() - b * angles[j].sin();
                want[4 * row + 2 + j] = b * angles[j].cos() + a * angles[j].sin();
            }
        }
        bench.agrees("turned", &out, &want);
        turn(Rotation::Backward, view(&out), view(&out));
        bench.agrees("turned back in place", &out, &input);
    }
}

fn row_losses(spec: CrossEntropy, logits: &[f64], targets: &[i64]) -> Vec<f64> {
    let classes = logits.len() / targets.len();
    let probabilities = softmax_rows(logits, classes);
    let loss = |(row, &target): (&[f64], &i64)| {
        if target == spec.ignore_index {
            return 0.0;
        }
        let uniform = row.iter().map(|p| -p.ln()).sum::<f64>() / classes as f64;
        let e = spec.label_smoothing;
        (1.0 - e) * -row[target as usize].ln() + e * uniform
    };
    probabilities.chunks(classes).zip(targets).map(loss).collect()
}

#[test]
fn ce_01_and_04_ignored_rows_and_smoothing() {
    let logits = [2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0, -1.0, -1.0, 0.0, 2.0];
    let targets = [2i64, -100, 1, 0];
    for bench in Bench::all().map(coarse) {
        for (label_smoothing, sum) in
            [(0.0, 5.7203836125), (0.1, 5.6870502792), (0.2, 5.6537169458)]
        {
            let spec = CrossEntropy { ignore_index: -100, label_smoothing };
            let host = HostVec::from_f64(bench.dtype, &logits);
            let x = bench.device.upload(host.as_slice()).unwrap();
            let t = bench.device.upload(HostSlice::I64(&targets)).unwrap();
            let (losses, lse) = (bench.wide(4), bench.wide(4));
            let (view, t) = (shaped(&x, &[4, 3]), View::whole(&t));
            let (loss_view, lse_view) = (View::whole(&losses), View::whole(&lse));
            let d = &bench.device;
            provided::loss::cross_entropy(d, spec, view, t, loss_view, lse_view).unwrap();
            bench.agrees("losses", &losses, &row_losses(spec, &logits, &targets));
            let total: f64 = bench.values(&losses).iter().sum();
            assert!((total - sum).abs() < 1e-6, "{total} for {label_smoothing}");
            bench.device.fill(1.0, loss_view).unwrap();
            provided::loss::cross_entropy_backward(d, spec, view, t, lse_view, loss_view, view)
                .unwrap();
            let of = |x: &[f64]| row_losses(spec, x, &targets).iter().sum();
            bench.agrees("dlogits over logits", &x, &slopes(&logits, of));
            assert_eq!(bench.values(&x)[3..6], [0.0; 3], "an ignored row");
        }
    }
}

#[test]
fn ce_03_a_bad_label_is_named_with_its_row() {
    let bench = Bench::all().next().unwrap();
    let x = bench.numbers(1, 12);
    let (losses, lse) = (bench.wide(4), bench.wide(4));
    let spec = CrossEntropy { ignore_index: -100, label_smoothing: 0.0 };
    for bad in [3, -1, -4, 2_147_483_648] {
        let t = bench.device.upload(HostSlice::I64(&[0, 1, 2, bad])).unwrap();
        let (view, t) = (shaped(&x, &[4, 3]), View::whole(&t));
        let (losses, lse) = (View::whole(&losses), View::whole(&lse));
        let result = provided::loss::cross_entropy(&bench.device, spec, view, t, losses, lse);
        match result.unwrap_err() {
            Error::IndexOutOfRange { index, position, bound, .. } => {
                assert_eq!((index, position, bound), (bad, 3, 3));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn ce_05_huge_logits_lose_nothing() {
    let bench = Bench::all().nth(1).unwrap();
    let spec = CrossEntropy { ignore_index: -100, label_smoothing: 0.0 };
    let cases: [(&[f32], u32, f64); 5] = [
        (&[1e8, 1e8], 1, 0.69314718),
        (&[1000.0, 0.0, -1000.0], 2, 2000.0),
        (&[1000.0, 1001.0], 0, 1.31326169),
        (&[-1000.0, -999.0], 0, 1.31326169),
        (&[0.0, -300.0, -300.0, -300.0], 3, 300.0),
    ];
    for (logits, target, want) in cases {
        let x = bench.device.upload(HostSlice::F32(logits)).unwrap();
        let t = bench.device.upload(HostSlice::U32(&[target])).unwrap();
        let (losses, lse) = (bench.wide(1), bench.wide(1));
        let (view, t) = (shaped(&x, &[1, logits.len()]), View::whole(&t));
        let (loss_view, lse_view) = (View::whole(&losses), View::whole(&lse));
        let d = &bench.device;
        provided::loss::cross_entropy(d, spec, view, t, loss_view, lse_view).unwrap();
        bench.agrees("loss", &losses, &[want]);
        bench.device.fill(1.0, loss_view).unwrap();
        provided::loss::cross_entropy_backward(d, spec, view, t, lse_view, loss_view, view)
            .unwrap();
        let wide: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
        let mut gradient = softmax_rows(&wide, wide.len());
        gradient[target as usize] -= 1.0;
        bench.agrees("gradient", &x, &gradient);
    }
}

/// Sizes of an attention problem and which keys are visible.
struct Heads<'a> {
    spec: Attention,
    /// Batch, query heads, key heads, queries, keys, head size, value size.
    sizes: [usize; 7],
    mask: Option<&'a [u8]>,
}

impl Heads<'_> {
    fn apply(&self, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
        let [batch, heads, groups, queries, keys, size, value_size] = self.sizes;
        let mut out = vec![0.0; batch * heads * queries * value_size];
        for row in 0..batch * heads * queries {
            let (head, query) = (row / queries, row % queries);
            let group = head / heads * groups + head % heads / (heads / groups);
            let key = |s: usize| &k[(group * keys + s) * size..][..size];
            let seen = |&s: &usize| {
                let causal = self.spec.visibility == Visibility::All || s + queries <= query + keys;
                causal && self.mask.is_none_or(|mask| mask[row * keys + s] != 0)
            };
            let places: Vec<usize> = (0..keys).filter(seen).collect();
            let score = |&s: &usize| self.spec.scale * dot(&q[row * size..][..size], key(s));
            let scores: Vec<f64> = places.iter().map(score).collect();
            let weights = softmax_rows(&scores, scores.len().max(1));
            for (weight, s) in weights.iter().zip(places) {
                for e in 0..value_size {
                    let value = v[(group * keys + s) * value_size + e];
                    out[row * value_size + e] += weight * value;
                }
            }
        }
        out
    }

    fn check(&self, bench: &Bench, q: &CpuBuffer, k: &CpuBuffer, v: &CpuBuffer) -> [Vec<f64>; 4] {
        let [b, h, g, t, s, d, e] = self.sizes;
        let device = &bench.device;
        let (out, lse) = (bench.empty(b * h * t * e), bench.wide(b * h * t));
        let mask = self.mask.map(|mask| device.upload(HostSlice::U8(mask)).unwrap());
        let mask = mask.as_ref().map(|mask| shaped(mask, &[b, h, t, s]));
        let (qv, kv) = (shaped(q, &[b, h, t, d]), shaped(k, &[b, g, s, d]));
        let (vv, outv) = (shaped(v, &[b, g, s, e]), shaped(&out, &[b, h, t, e]));
        let lsev = shaped(&lse, &[b, h, t]);
        provided::attention::attention(device, self.spec, qv, kv, vv, mask, outv, lsev).unwrap();
        let (x, y, z) = (bench.values(q), bench.values(k), bench.values(v));
        bench.agrees("attention", &out, &self.apply(&x, &y, &z));

        let dout = bench.numbers(9, b * h * t * e);
        let gradients = [q, k, v].map(|of| bench.empty(bench.values(of).len()));
        let [dq, dk, dv] = &gradients;
        provided::attention::attention_backward(
            device,
            self.spec,
            qv,
            kv,
            vv,
            mask,
            outv,
            lsev,
            shaped(&dout, &[b, h, t, e]),
            shaped(dq, &[b, h, t, d]),
            shaped(dk, &[b, g, s, d]),
            shaped(dv, &[b, g, s, e]),
        )
        .unwrap();
        let w = bench.values(&dout);
        bench.agrees("dq", dq, &slopes(&x, |x| dot(&self.apply(x, &y, &z), &w)));
        bench.agrees("dk", dk, &slopes(&y, |y| dot(&self.apply(&x, y, &z), &w)));
        bench.agrees("dv", dv, &slopes(&z, |z| dot(&self.apply(&x, &y, z), &w)));
        [&out, dq, dk, dv].map(|of| bench.values(of))
    }
}

#[test]
fn attention_of_grouped_heads_and_of_every_visibility() {
    for bench in Bench::all().map(coarse) {
        for visibility in [Visibility::All, Visibility::Causal] {
            for (queries, keys) in [(3, 3), (2, 4), (4, 2)] {
                let sizes = [2, 4, 2, queries, keys, 3, 2];
                let mask: Vec<u8> = (0..8 * queries * keys).map(|i| u8::from(i % 5 != 0)).collect();
                for mask in [None, Some(&mask[..])] {
                    let spec = Attention { scale: 0.7, visibility };
                    let q = bench.numbers(1, 8 * queries * 3);
                    let (k, v) = (bench.numbers(2, 4 * keys * 3), bench.numbers(3, 4 * keys * 2));
                    Heads { spec, sizes, mask }.check(&bench, &q, &k, &v);
                }
            }
        }
    }
}

#[test]
fn attn_01_a_row_that_sees_nothing_gives_zeros() {
    let bench = coarse(Bench::all().next().unwrap());
    let up = |values: &[f64]| bench.device.upload(HostSlice::F64(values)).unwrap();
    let q = up(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let k = up(&[1.0, 0.0, 0.0, 1.0, 1.0, -1.0]);
    let v = up(&[1.0, 10.0, 2.0, 20.0, 4.0, 40.0]);
    let spec = Attention { scale: 0.5f64.sqrt(), visibility: Visibility::All };
    let mask = [1, 1, 0, 0, 0, 0, 1, 1, 1];
    let heads = Heads { spec, sizes: [1, 1, 1, 3, 3, 2, 2], mask: Some(&mask) };
    let [out, dq, ..] = heads.check(&bench, &q, &k, &v);
    let want = [1.3302384507, 13.3023845067, 0.0, 0.0, 1.9944395366, 19.9443953660];
    assert!(out.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-9), "{out:?}");
    assert_eq!((out[2..4].to_vec(), dq[2..4].to_vec()), (vec![0.0; 2], vec![0.0; 2]));
}

#[test]
fn optimizer_steps_follow_their_formulas() {
    for bench in Bench::all() {
        let [param, grad] = [1, 2].map(|seed| bench.numbers(seed, 9));
        let (m, v) = (bench.wide(9), bench.wide(9));
        bench.device.fill(0.0, View::whole(&m)).unwrap();
        bench.device.fill(0.0, View::whole(&v)).unwrap();
        let (mut p, g) = (bench.values(&param), bench.values(&grad));
        let (mut first, mut second) = (vec![0.0; 9], vec![0.0; 9]);
        for step in 1..=3 {
            let spec = AdamWStep {
                learning_rate: 0.1,
                beta1: 0.9,
                beta2: 0.99,
                epsilon: 1e-8,
                weight_decay: 0.1,
                step,
                gradient_scale: 0.5,
            };
            let [a, b, c, d] = [&param, &grad, &m, &v].map(View::whole);
            provided::optim::adamw_step(&bench.device, spec, a, b, c, d).unwrap();
            for i in 0..9 {
                let g = 0.5 * g[i];
                first[i] = 0.9 * first[i] + 0.1 * g;
                second[i] = 0.99 * second[i] + 0.01 * g * g;
                let root = (second[i] / (1.0 - 0.99f64.powi(step as i32))).sqrt();
                p[i] *= 0.99;
                p[i] -= 0.1 / (1.0 - 0.9f64.powi(step as i32)) * first[i] / (root + 1e-8);
            }
            bench.agrees("parameters", &param, &p);
            bench.agrees("first moment", &m, &first);
            bench.agrees("second moment", &v, &second);
        }
    }
}

#[test]
fn sgd_with_momentum_follows_its_formula() {
    for (nesterov, dampening) in [(false, 0.0), (false, 0.3), (true, 0.0)] {
        let bench = Bench::all().next().unwrap();
        let [param, grad] = [1, 2].map(|seed| bench.numbers(seed, 9));
        let buffer = bench.wide(9);
        let (mut p, g) = (bench.values(&param), bench.values(&grad));
        let mut momentum = vec![0.0; 9];
        for step in 1..=3 {
            let spec = SgdStep {
                learning_rate: 0.1,
                momentum: 0.9,
                dampening,
                nesterov,
                weight_decay: 0.01,
                step,
                gradient_scale: 2.0,
            };
            let [a, b, c] = [&param, &grad, &buffer].map(View::whole);
            provided::optim::sgd_step(&bench.device, spec, a, b, Some(c)).unwrap();
            for i in 0..9 {
                let g = 2.0 * g[i] + 0.01 * p[i];
                let old = momentum[i];
                momentum[i] = if step == 1 { g } else { 0.9 * old + (1.0 - dampening) * g };
                p[i] -= 0.1 * if nesterov { g + 0.9 * momentum[i] } else { momentum[i] };
            }
            bench.agrees("parameters", &param, &p);
            bench.agrees("momentum", &buffer, &momentum);
        }
    }
}

#[test]
fn sums_the_finite_check_and_the_tree() {
    for bench in Bench::all() {
        let d = &bench.device;
        let len = 2 * SUM_BLOCK + 5;
        let (x, sums) = (bench.numbers(1, len), bench.wide(3));
        provided::sums::sums_of_squares(d, View::whole(&x), View::whole(&sums)).unwrap();
        let values = bench.values(&x);
        let want: Vec<f64> = values.chunks(SUM_BLOCK).map(|block| dot(block, block)).collect();
        bench.agrees("sums of squares", &sums, &want);

        let verdict = d.alloc(DType::U8, 1).unwrap();
        for (bad, want) in [(None, 1.0), (Some(f64::NAN), 0.0), (Some(f64::NEG_INFINITY), 0.0)] {
            if let Some(bad) = bad {
                d.fill(bad, View::new(&x, Layout::flat(len - 1, 1))).unwrap();
            }
            provided::sums::all_finite(d, View::whole(&x), View::whole(&verdict)).unwrap();
            assert_eq!(d.download(&verdict).unwrap().to_f64(), [want], "{bad:?}");
        }

        for count in [1, 2, 3, 5, 8] {
            let nodes: Vec<_> = (0..count).map(|seed| bench.numbers(seed, 6)).collect();
            let views: Vec<_> = nodes.iter().map(View::whole).collect();
            let out = bench.empty(6);
            provided::sums::tree_sum(d, &views, View::whole(&out)).unwrap();
            let all: Vec<_> = nodes.iter().map(|node| bench.values(node)).collect();
            let want: Vec<f64> = (0..6).map(|i| all.iter().map(|node| node[i]).sum()).collect();
            bench.agrees("tree", &out, &want);
        }
        let out = bench.empty(6);
        assert!(provided::sums::tree_sum(d, &[], View::whole(&out)).is_err());
    }
}

#[test]
fn dropout_keeps_the_elements_that_the_generator_names() {
    for bench in Bench::all() {
        let (x, out) = (bench.numbers(1, 40), bench.empty(40));
        let key = RandomKey::from_seed(3);
        for probability in [0.0, 0.3, 1.0] {
            let (from, to) = (View::whole(&x), View::whole(&out));
            provided::elementwise::dropout(&bench.device, probability, key, 7, from, to).unwrap();
            let kept = |i: usize| f64::from(rng::uniform(key.word(7 + i as u64))) >= probability;
            let one = |(i, &x): (usize, &f64)| {
                if kept(i) { x / (1.0 - probability) } else { 0.0 }
            };
            let want: Vec<f64> = bench.values(&x).iter().enumerate().map(one).collect();
            bench.agrees("dropout", &out, &want);
        }
        let bad = provided::elementwise::dropout(
            &bench.device,
            f64::NAN,
            key,
            0,
            View::whole(&x),
            View::whole(&out),
        );
        assert!(bad.unwrap_err().to_string().contains("NaN"));
    }
}
