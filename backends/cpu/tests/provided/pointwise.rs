//! Activations, rotary embedding and dropout.

use sneppx_contract::{
    Activation, HostVec, Memory, RandomKey, Rotation, Store, View, provided, rng,
};

use crate::bench::{Bench, coarse, dot, shaped, slopes};

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
