//! Softmax and norms.

use sneppx_contract::{
    DType, HostVec, Memory, Norm, NormKind, NormOperands, Store, View, provided,
};

use crate::bench::{Bench, coarse, dot, shaped, slopes, softmax_rows};

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
