//! Cross entropy.

use sneppx_contract::{CrossEntropy, Error, HostSlice, HostVec, Kernels, Memory, View, provided};

use crate::bench::{Bench, coarse, shaped, slopes, softmax_rows};

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
        (&[1e8, 1e8], 1, std::f64::consts::LN_2),
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
