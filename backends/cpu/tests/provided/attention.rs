//! Attention.

use sneppx_contract::{Attention, HostSlice, Memory, Visibility, provided};
use sneppx_cpu::CpuBuffer;

use crate::bench::{Bench, coarse, dot, shaped, slopes, softmax_rows};

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
