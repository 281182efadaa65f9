//! The course of the learning rate.

use sneppx::DType;
use sneppx::cpu::Cpu;
use sneppx::optim::{AdamW, DecayForm, Optimizer, Schedule};

use crate::golden::{assert_close, json};
use crate::leaves::{CpuLeaf, adamw, leaf, step_with, value};

#[test]
fn lr_01_every_step_of_the_tables() {
    let tables = json("schedules.json");
    let mut tried = 0;
    for table in tables.as_array().unwrap() {
        let (name, number) = (table["name"].as_str().unwrap(), |key: &str| table[key].as_f64());
        let count = |key: &str| table[key].as_u64().unwrap();
        let peak = number("base").unwrap();
        let min = peak * number("min_factor").unwrap();
        let (warmup, total) = (count("warmup_steps"), count("total_steps"));
        let schedule = match table["shape"].as_str().unwrap() {
            "cosine" => Schedule::cosine(peak, min, warmup, total),
            "linear" => Schedule::linear(peak, min, warmup, total),
            "constant" => Schedule::constant(peak, warmup),
            "wsd_linear" => Schedule::wsd(peak, min, warmup, total, count("decay_steps")),
            "wsd_sqrt" => Schedule::wsd(peak, min, warmup, total, count("decay_steps"))
                .and_then(|schedule| schedule.with_decay_form(DecayForm::OneMinusSqrt)),
            other => panic!("{name} has shape {other}"),
        };
        let mut schedule = schedule.unwrap();
        if table["warmup_formula"].as_str().unwrap().starts_with("s / w") {
            schedule = schedule.with_rise_from_zero();
        }
        let steps = table["steps"].as_array().unwrap();
        let rate = |step: &serde_json::Value| schedule.learning_rate(step.as_u64().unwrap());
        let got: Vec<f64> = steps.iter().map(rate).collect();
        let values = table["values"].as_array().unwrap();
        let want: Vec<f64> = values.iter().map(|value| value.as_f64().unwrap()).collect();
        assert_close(name, &got, &want, 1e-12);
        assert!(got.iter().all(|&rate| (0.0..=peak).contains(&rate)), "{name}: {got:?}");
        tried += 1;
    }
    assert_eq!(tried, 9);
}

#[test]
fn lr_01_schedules_refuse_settings_that_make_no_sense() {
    for (result, word) in [
        (Schedule::cosine(-1.0, 0.0, 1, 2), "learning rate"),
        (Schedule::cosine(f64::NAN, 0.0, 1, 2), "NaN"),
        (Schedule::linear(0.1, 0.2, 1, 2), "0.2"),
        (Schedule::linear(1.0, 0.0, 3, 2), "warmup"),
        (Schedule::wsd(1.0, 0.0, 2, 4, 3), "decay"),
    ] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(word), "{error} has no {word}");
    }
}

#[test]
fn lr_02_a_resumed_run_repeats_and_skips_no_rate() {
    let schedule = Schedule::cosine(1.0, 0.1, 4, 10).unwrap();
    let p = leaf("p", DType::F64, &[0.0]);
    let mut optimizer = AdamW::of(vec![p.clone()], adamw(0.0, 0.0)).unwrap();
    let update = |optimizer: &mut AdamW<Cpu>, leaf: &CpuLeaf| {
        let taken = optimizer.state().first().map_or(0, |state| state.step);
        optimizer.set_learning_rate(schedule.learning_rate(taken)).unwrap();
        step_with(optimizer, leaf, 1.0);
        optimizer.learning_rate()
    };
    let before: Vec<f64> = (0..5).map(|_| update(&mut optimizer, &p)).collect();
    assert_close("before", &before, &[0.2, 0.4, 0.6, 0.8, 1.0], 1e-9);
    let fresh = leaf("p", DType::F64, &value(&p));
    let mut resumed = AdamW::of(vec![fresh.clone()], adamw(0.0, 0.0)).unwrap();
    resumed.load_state(optimizer.state()).unwrap();
    let after: Vec<f64> = (0..3).map(|_| update(&mut resumed, &fresh)).collect();
    assert_close("after", &after, &[0.9397114317, 0.775, 0.55], 1e-9);
}
