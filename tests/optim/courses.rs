//! Laws of every course, its written form, and its independence from micro-batches.

use proptest::prelude::*;
use sneppx::DType::F64;
use sneppx::optim::{AdamW, AdamWOptions, DecayForm, Optimizer, Schedule};

use crate::leaves::{grad, leaf, message};

fn table_b() -> Schedule {
    Schedule::cosine(1.0, 0.1, 4, 10).unwrap()
}

#[test]
fn a_schedule_is_checked_when_it_is_read() {
    let wsd = Schedule::wsd(1.0, 0.1, 2, 10, 3).unwrap();
    let schedules = [
        Schedule::constant(0.5, 3).unwrap(),
        Schedule::linear(1.0, 0.0, 2, 10).unwrap().with_rise_from_zero(),
        table_b(),
        wsd.with_decay_form(DecayForm::OneMinusSqrt).unwrap(),
    ];
    for schedule in schedules {
        let json = serde_json::to_string(&schedule).unwrap();
        assert_eq!(serde_json::from_str::<Schedule>(&json).unwrap(), schedule);
        let toml = toml::to_string(&schedule).unwrap();
        assert_eq!(toml::from_str::<Schedule>(&toml).unwrap(), schedule);
    }
    let json = serde_json::to_string(&table_b()).unwrap();
    let longer = json.replace("\"warmup\":4", "\"warmup\":40");
    assert_ne!(json, longer);
    let text = serde_json::from_str::<Schedule>(&longer).unwrap_err().to_string();
    assert!(text.contains("warmup = 40"), "{text}");
}

#[test]
fn lr_03_micro_batches_do_not_move_the_schedule() {
    let leaf = leaf("p", F64, &[0.0]);
    let mut optimizer = AdamW::of(vec![leaf.clone()], AdamWOptions::default()).unwrap();
    let steps = |optimizer: &AdamW<_>| optimizer.state().first().map_or(0, |state| state.step);
    let mut used = Vec::new();
    for micro_batch in 1..=16 {
        let step = steps(&optimizer);
        optimizer.set_learning_rate(table_b().learning_rate(step)).unwrap();
        let value = leaf.tensor().unwrap();
        value.sum_all().unwrap().backward().unwrap();
        if micro_batch % 4 == 0 {
            assert_eq!(grad(&leaf), [4.0]);
            optimizer.step().unwrap();
            optimizer.zero_grad();
            used.push(optimizer.learning_rate());
        }
    }
    assert_eq!(used.len(), 4);
    assert!(used.iter().zip([0.2, 0.4, 0.6, 0.8]).all(|(a, b)| (a - b).abs() < 1e-9), "{used:?}");
    assert_eq!(table_b().learning_rate(steps(&optimizer)), 1.0);
}

#[test]
fn the_form_of_decay_belongs_to_wsd_alone() {
    assert!(message(table_b().with_decay_form(DecayForm::Linear)).starts_with("decay form"));
    let edge = Schedule::constant(1.0, u64::MAX).unwrap();
    assert!(edge.learning_rate(u64::MAX - 1) <= 1.0);
    assert_eq!(Schedule::linear(1.0, 0.5, 0, 0).unwrap().learning_rate(0), 0.5);
}

proptest! {
    #[test]
    fn lr_01_laws_hold_for_every_course(
        peak in 1e-6..10.0f64,
        share in 0.0..1.0f64,
        warmup in 0..50u64,
        rest in 1..100u64,
        late in 0.0..1.0f64,
        from_zero: bool,
    ) {
        let (min, total) = (peak * share, warmup + rest);
        let decay = (late * rest as f64) as u64;
        let wsd = Schedule::wsd(peak, min, warmup, total, decay).unwrap();
        let courses = [
            (Schedule::cosine(peak, min, warmup, total).unwrap(), true),
            (Schedule::linear(peak, min, warmup, total).unwrap(), true),
            (wsd, false),
            (wsd.with_decay_form(DecayForm::OneMinusSqrt).unwrap(), false),
        ];
        for (schedule, peaks_once) in courses {
            let schedule = if from_zero { schedule.with_rise_from_zero() } else { schedule };
            let rates: Vec<f64> = (0..total + 5).map(|step| schedule.learning_rate(step)).collect();
            prop_assert!(rates.iter().all(|rate| (0.0..=peak * (1.0 + 1e-12)).contains(rate)));
            let (rise, fall) = rates.split_at(warmup as usize);
            prop_assert!(rise.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(rise.iter().all(|rate| *rate < peak));
            prop_assert!((fall[0] - peak).abs() <= peak * 1e-12);
            prop_assert!(fall.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-12)));
            if peaks_once && share < 0.999 {
                prop_assert!(fall[1..].iter().all(|rate| *rate < peak));
            }
            prop_assert!(rates[total as usize..].iter().all(|rate| *rate == min));
        }
    }
}
