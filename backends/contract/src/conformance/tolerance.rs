//! How close is close enough: one table for every backend.
//!
//! A result passes if `|got - want| <= tolerance * max(1, |want|, magnitude)`. The magnitude is 1
//! for elementwise functions and the sum of the absolute terms for sums and products, because that
//! is what rounding errors of a sum scale with.
//!
//! | dtype | tolerance | reason |
//! |---|---|---|
//! | `F64` | 1e-12 | some thousand units in the last place: functions of libraries differ by few |
//! | `F32` | 2e-6 | about 32 units of 2^-24: short chains of functions, sums in blocks |
//! | `BF16` | 2^-8 | the result is rounded once (2^-9); as much again for `f32` before a tie |
//! | `F16` | 2^-10 | the same with 11 bits: 2^-11 twice |
//! | integers | 0 | exact |

use crate::DType;

/// The factor of the table above.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 2e-6,
        DType::BF16 => 1.0 / 256.0,
        DType::F16 => 1.0 / 1024.0,
        DType::U32 | DType::I64 | DType::U8 => 0.0,
    }
}

/// Whether `got` is close to `want`; NaN is close to NaN, an infinity only to itself.
pub fn is_close(dtype: DType, got: f64, want: f64, magnitude: f64) -> bool {
    if want.is_nan() || want.is_infinite() {
        return got == want || (got.is_nan() && want.is_nan());
    }
    (got - want).abs() <= tolerance(dtype) * want.abs().max(magnitude).max(1.0)
}

/// Every element of `got` is close to that of `want`.
///
/// # Panics
/// Naming `what`, the first element that is not close, and how many there are.
#[track_caller]
pub fn assert_close(what: &str, dtype: DType, got: &[f64], want: &[f64], magnitude: f64) {
    assert_each_close(what, dtype, got, want, &vec![magnitude; want.len()]);
}

/// [`assert_close`] with a magnitude for each element.
///
/// # Panics
/// As [`assert_close`].
#[track_caller]
pub fn assert_each_close(what: &str, dtype: DType, got: &[f64], want: &[f64], magnitude: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what} ({dtype}): wrong number of elements");
    let far = |&i: &usize| !is_close(dtype, got[i], want[i], magnitude[i]);
    let wrong: Vec<usize> = (0..want.len()).filter(far).collect();
    if let Some(&first) = wrong.first() {
        panic!(
            "{what} ({dtype}): element {first} is {}, want {} ± {:e}; {} of {} elements are wrong",
            got[first],
            want[first],
            tolerance(dtype) * want[first].abs().max(magnitude[first]).max(1.0),
            wrong.len(),
            want.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closeness_scales_and_keeps_special_values_apart() {
        assert!(is_close(DType::F32, 1.000001, 1.0, 1.0));
        assert!(!is_close(DType::F32, 1.00001, 1.0, 1.0));
        assert!(is_close(DType::F32, 1.00001, 1.0, 100.0));
        assert!(is_close(DType::F64, f64::NAN, f64::NAN, 1.0));
        assert!(!is_close(DType::F32, f64::NAN, 0.0, 1.0));
        assert!(!is_close(DType::F32, 0.0, f64::NAN, 1.0));
        assert!(!is_close(DType::F32, f64::INFINITY, f64::NEG_INFINITY, 1.0));
        assert!(!is_close(DType::F32, f64::INFINITY, 1.0, f64::MAX));
        assert!(!is_close(DType::I64, 3.0, 4.0, 100.0));
    }

    #[test]
    #[should_panic(expected = "element 1 is 3, want 2")]
    fn the_first_wrong_element_is_named() {
        assert_close("sum", DType::F32, &[1.0, 3.0], &[1.0, 2.0], 1.0);
    }
}
