//! Cross entropy, from logits and from hidden states.

use sneppx::autograd::rules::CrossEntropyOptions;
use sneppx::cpu::Cpu;
use sneppx::nn::{CrossEntropyLoss, LossReduction};
use sneppx::{DType, Result, Tensor};

use super::differences::{T, check, device};

const PLAIN: CrossEntropyOptions = CrossEntropyOptions { ignore_index: -100, label_smoothing: 0.0 };
const SMOOTHED: CrossEntropyOptions = CrossEntropyOptions { label_smoothing: 0.1, ..PLAIN };

fn ids(device: &Cpu, values: &[i64]) -> Result<T> {
    T::from_slice(device, values, &[values.len()])
}

#[test]
fn losses_from_logits() {
    for options in [PLAIN, SMOOTHED] {
        check("cross_entropy", &[&[4, 5]], |x| {
            x[0].cross_entropy(&ids(x[0].device(), &[4, -100, 0, 2])?, options)
        });
        check("cross_entropy", &[&[2, 70]], |x| {
            let targets = Tensor::from_slice(x[0].device(), &[69u32, 3], &[2])?;
            x[0].cross_entropy(&targets, options)
        });
        check("cross_entropy", &[&[0, 5]], |x| {
            x[0].cross_entropy(&ids(x[0].device(), &[])?, options)
        });
        for reduction in [LossReduction::None, LossReduction::Sum, LossReduction::Mean] {
            check("cross_entropy", &[&[4, 3]], |x| {
                let targets = ids(x[0].device(), &[2, -100, 1, 0])?;
                CrossEntropyLoss { options, reduction }.apply(&x[0], &targets)
            });
        }
    }
}

#[test]
fn losses_from_hidden_states_in_chunks_of_any_size() {
    for options in [PLAIN, SMOOTHED] {
        // Room for one row, for two, for all, and for less than one.
        for bytes in [5 * 8, 2 * 5 * 8 + 1, 1 << 20, 0] {
            check("linear_cross_entropy", &[&[5, 3], &[5, 3]], |x| {
                let targets = ids(x[0].device(), &[4, 0, -100, 2, 1])?;
                x[0].chunked_cross_entropy(&x[1], &targets, options, bytes)
            });
        }
    }
    check("linear_cross_entropy", &[&[4, 4]], |x| {
        x[0].linear_cross_entropy(&x[0], &ids(x[0].device(), &[3, 1, 2, 0])?, PLAIN)
    });
    check("linear_cross_entropy", &[&[0, 3], &[5, 3]], |x| {
        x[0].linear_cross_entropy(&x[1], &ids(x[0].device(), &[])?, PLAIN)
    });
}

#[test]
fn chunks_change_nothing_but_rounding() -> Result<()> {
    let device = device();
    let values = |len: usize| (0..len).map(|i| (i as f64 * 0.37).sin()).collect::<Vec<_>>();
    let targets = ids(&device, &[0, 6, -100, 3, 2, 5, 1])?;
    let run = |bytes: Option<usize>| -> Result<[Vec<f64>; 3]> {
        let hidden = T::from_slice(&device, &values(7 * 4), &[7, 4])?.requires_grad()?;
        let weight = T::from_slice(&device, &values(8 * 4), &[8, 4])?.requires_grad()?;
        let losses = match bytes {
            Some(bytes) => hidden.chunked_cross_entropy(&weight, &targets, SMOOTHED, bytes)?,
            None => hidden.linear(&weight, None)?.cross_entropy(&targets, SMOOTHED)?,
        };
        losses.mean_all()?.backward()?;
        let grads = [hidden.grad().unwrap(), weight.grad().unwrap()];
        Ok([losses.to_vec()?, grads[0].to_vec()?, grads[1].to_vec()?])
    };
    let want = run(None)?;
    for rows in 1..=8 {
        let got = run(Some(rows * 8 * 8))?;
        for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
            assert!((got - want).abs() < 1e-14, "{rows} rows: {got}, want {want}");
        }
    }
    Ok(())
}

const LOGITS: [f64; 12] = [2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0, -1.0, -1.0, 0.0, 2.0];
const TARGETS: [i64; 4] = [2, -100, 1, 0];

fn near(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= tolerance * (1.0 + w.abs()), "{what}: {got:?}, want {want:?}");
    }
}

fn loss_of(
    values: &[f64],
    targets: &[i64],
    loss: CrossEntropyLoss,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let device = device();
    let columns = values.len() / targets.len();
    let logits = T::from_slice(&device, values, &[targets.len(), columns])?.requires_grad()?;
    let out = loss.apply(&logits, &ids(&device, targets)?)?;
    out.sum_all()?.backward()?;
    Ok((out.to_vec()?, logits.grad().unwrap().to_vec()?))
}

#[test]
fn ce_01_the_mean_is_over_valid_rows_only() -> Result<()> {
    let with = |reduction| CrossEntropyLoss { options: PLAIN, reduction };
    let (rows, _) = loss_of(&LOGITS, &TARGETS, with(LossReduction::None))?;
    near("none", &rows, &[2.407_605_964_4, 0.0, 0.142_931_628_5, 3.169_846_019_6], 1e-9);
    let (sum, _) = loss_of(&LOGITS, &TARGETS, with(LossReduction::Sum))?;
    near("sum", &sum, &[5.720_383_612_5], 1e-9);
    let (mean, grad) = loss_of(&LOGITS, &TARGETS, with(LossReduction::Mean))?;
    near("mean (1.4300959031 divides by all rows)", &mean, &[1.906_794_537_5], 1e-9);
    let want = [
        [0.221_746_985, 0.081_576_157, -0.303_323_142],
        [0.0; 3],
        [0.039_103_476, -0.044_395_556, 0.005_292_080],
        [-0.319_329_978, 0.038_065_066, 0.281_264_911],
    ];
    near("gradient", &grad, &want.concat(), 1e-8);
    assert_eq!(grad[3..6], [0.0; 3]);
    Ok(())
}

/// The policy: the mean of no rows is NaN, as in PyTorch, and its gradient is exactly 0.
#[test]
fn ce_02_a_batch_without_labels_has_no_gradient() -> Result<()> {
    let values = [0.2, 1.0, 0.5, 0.1, 0.3, 0.6];
    for (reduction, want) in [
        (LossReduction::None, vec![0.0, 0.0]),
        (LossReduction::Sum, vec![0.0]),
        (LossReduction::Mean, vec![f64::NAN]),
    ] {
        for options in [PLAIN, SMOOTHED] {
            let loss = CrossEntropyLoss { options, reduction };
            let (got, grad) = loss_of(&values, &[-100, -100], loss)?;
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(&want) {
                assert!(got == want || (got.is_nan() && want.is_nan()), "{reduction:?}: {got}");
            }
            assert_eq!(grad, [0.0; 6], "{reduction:?}");
        }
    }
    Ok(())
}

#[test]
fn ce_03_a_label_outside_the_classes_is_an_error() -> Result<()> {
    let device = device();
    let logits = T::zeros(&device, DType::F64, &[4, 3])?.requires_grad()?;
    let hidden = T::zeros(&device, DType::F64, &[4, 2])?;
    let weight = T::zeros(&device, DType::F64, &[3, 2])?;
    for bad in [3, -1, -4, 2_147_483_648] {
        let targets = ids(&device, &[0, 1, 2, bad])?;
        for error in [
            CrossEntropyLoss::default().apply(&logits, &targets).unwrap_err(),
            hidden.linear_cross_entropy(&weight, &targets, PLAIN).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(text.contains(&format!("index {bad} at position 3")), "{text}");
        }
        // Cut into chunks, the row is still that of the whole batch.
        let chunked = hidden.chunked_cross_entropy(&weight, &targets, PLAIN, 2 * 3 * 8);
        let text = chunked.unwrap_err().to_string();
        assert!(text.contains(&format!("index {bad} at position 3")), "chunked: {text}");
    }
    Ok(())
}

#[test]
fn ce_04_label_smoothing_leaves_ignored_rows_out() -> Result<()> {
    let smoothed = |label_smoothing, reduction| CrossEntropyLoss {
        options: CrossEntropyOptions { label_smoothing, ..PLAIN },
        reduction,
    };
    for (smoothing, mean, sum) in
        [(0.1, 1.895_683_426_4, 5.687_050_279_2), (0.2, 1.884_572_315_3, 5.653_716_945_8)]
    {
        let (got, grad) = loss_of(&LOGITS, &TARGETS, smoothed(smoothing, LossReduction::Mean))?;
        near("mean (1.8497187584 counts the ignored row)", &got, &[mean], 1e-9);
        assert_eq!(grad[3..6], [0.0; 3]);
        let (got, _) = loss_of(&LOGITS, &TARGETS, smoothed(smoothing, LossReduction::Sum))?;
        near("sum", &got, &[sum], 1e-9);
        let valid = [&LOGITS[..3], &LOGITS[6..]].concat();
        let loss = smoothed(smoothing, LossReduction::Mean);
        let (got, _) = loss_of(&valid, &[2, 1, 0], loss)?;
        near("valid rows alone", &got, &[mean], 1e-9);
    }
    for bad in [1.0, -0.1, f64::NAN] {
        let loss = smoothed(bad, LossReduction::Mean);
        let error = loss_of(&LOGITS, &TARGETS, loss).unwrap_err().to_string();
        assert!(error.contains("label_smoothing"), "{error}");
    }
    Ok(())
}

#[test]
fn ce_05_huge_logits() -> Result<()> {
    let device = device();
    let far = [-300.0f32, -300.0, 0.0, -300.0];
    let cases: [(&[f32], &[i64], &[f32]); 4] = [
        (&[1e8, 1e8], &[1], &[std::f32::consts::LN_2]),
        (&[1000.0, 0.0, -1000.0], &[2], &[2000.0]),
        (&[1000.0, 1001.0, -1000.0, -999.0], &[0, 0], &[1.313_261_7, 1.313_261_7]),
        (&far, &[1], &[300.0]),
    ];
    for (values, targets, want) in cases {
        let columns = values.len() / targets.len();
        let logits = Tensor::from_slice(&device, values, &[targets.len(), columns])?;
        let logits = logits.requires_grad()?;
        let losses = logits.cross_entropy(&ids(&device, targets)?, PLAIN)?;
        losses.sum_all()?.backward()?;
        let got = losses.to_vec::<f32>()?;
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() <= 1e-6 * (1.0 + want), "{values:?}: {got}, want {want}");
        }
        let grad = logits.grad().unwrap().to_vec::<f32>()?;
        assert!(grad.iter().all(|value| value.is_finite()), "{values:?}: {grad:?}");
    }
    let exact = Tensor::from_slice(&device, &[1000.0f32, 0.0, -1000.0], &[1, 3])?;
    assert_eq!(exact.cross_entropy(&ids(&device, &[2])?, PLAIN)?.to_vec::<f32>()?, [2000.0]);
    Ok(())
}

#[test]
fn ce_07_a_big_vocabulary_in_half_precision() -> Result<()> {
    let device = device();
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        let logits = Tensor::zeros(&device, dtype, &[1, 50_257])?.requires_grad()?;
        let loss = CrossEntropyLoss::default().apply(&logits, &ids(&device, &[7])?)?;
        assert_eq!(loss.dtype(), DType::F32, "losses of {dtype} are formed in f32");
        let got = loss.item()?;
        assert!((got - 10.824_905_12).abs() < 1e-3, "{dtype}: {got} (5.545 is a stalled sum)");
        loss.backward()?;
        let grad = logits.grad().unwrap().cast(DType::F32)?.to_vec::<f32>()?;
        // One part in 256 is what bf16 can tell apart; the smallest f16 is 6e-8.
        assert!((grad[7] + 0.999_98).abs() < 4e-3, "{dtype}: {}", grad[7]);
        let other = grad[8];
        assert!((other / 1.989_77e-5 - 1.0).abs() < 1e-2, "{dtype}: {other}");
        assert!(grad.iter().skip(8).all(|&value| value == other), "{dtype}");
    }
    Ok(())
}
