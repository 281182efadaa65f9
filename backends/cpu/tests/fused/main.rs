//! The fused kernels: values against plain loops, derivatives against differences, and the same
//! results for any dtype, any strides and any number of threads.

mod cases;
mod derivatives;
mod rig;
mod values;

use rig::{Rig, Style};
use sneppx_contract::DType;

/// How far results may be from those in `f64`, relative to the largest of them.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 0.0,
    }
}

#[test]
fn every_dtype_gives_the_results_of_f64_within_its_rounding() {
    for (name, case) in cases::ALL {
        let want = case(&Rig::new(2, DType::F64, Style::Dense), 1);
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let got = case(&Rig::new(2, dtype, Style::Dense), 1);
            for (part, (got, want)) in got.iter().zip(&want).enumerate() {
                let size = want.iter().fold(1.0f64, |size, value| size.max(value.abs()));
                for (at, (got, want)) in got.iter().zip(want).enumerate() {
                    let error = (got - want).abs() / size;
                    let message = format!("{name} {dtype}, result {part}[{at}]: {got}, {want}");
                    assert!(error <= tolerance(dtype), "{message}");
                }
            }
        }
    }
}

#[test]
fn strides_change_no_bit() {
    for (name, case) in cases::ALL {
        for dtype in DType::FLOATS {
            let want = case(&Rig::new(2, dtype, Style::Dense), 1);
            for style in [Style::Rows, Style::Columns] {
                let got = case(&Rig::new(2, dtype, style), 1);
                assert!(same(&got, &want), "{name} {dtype} {style:?}");
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for (name, case) in cases::ALL {
        for dtype in [DType::F32, DType::BF16] {
            let want = case(&Rig::new(1, dtype, Style::Dense), 9);
            for threads in [2, 3] {
                let got = case(&Rig::new(threads, dtype, Style::Dense), 9);
                assert!(same(&got, &want), "{name} {dtype} on {threads} threads");
            }
        }
    }
}

#[test]
fn nothing_is_computed_of_nothing() {
    for (name, case) in cases::ALL {
        for part in case(&Rig::new(2, DType::F32, Style::Dense), 0) {
            assert!(part.iter().all(|value| *value == 0.0), "{name}: {part:?}");
        }
    }
}

fn same(got: &[Vec<f64>], want: &[Vec<f64>]) -> bool {
    let bits = |parts: &[Vec<f64>]| -> Vec<Vec<u64>> {
        parts.iter().map(|part| part.iter().map(|value| value.to_bits()).collect()).collect()
    };
    bits(got) == bits(want)
}
