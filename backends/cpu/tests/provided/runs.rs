//! Optimizer steps and sums over flat runs.

use sneppx_contract::{
    AdamWStep, DType, Kernels, Layout, Memory, SUM_BLOCK, SgdStep, View, provided,
};

use crate::bench::{Bench, dot};

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
