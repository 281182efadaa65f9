//! Element types as kernels see them.
//!
//! Arithmetic happens in [`Real`]: `f32` or `f64`. A [`Float`] is what a buffer holds; the 16-bit
//! ones are widened when they are loaded and rounded once when they are stored, so that one body
//! serves all of them.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use sneppx_contract::Element;

pub(crate) use crate::number::{Number, Real};
use crate::simd::vectorized;

/// A float that a buffer can hold.
pub(crate) trait Float: Stored<Acc: Real> {}

/// A number that a buffer can hold, and the type in which arithmetic on it happens.
pub(crate) trait Stored: Element {
    /// In what arithmetic on it happens.
    type Acc: Number;
    /// Whether that is the type itself.
    const NATIVE: bool;

    /// The same value, wider.
    fn widen(self) -> Self::Acc;
    /// The nearest value, ties to even.
    fn narrow(value: Self::Acc) -> Self;
    /// Widens a run; the lengths are equal.
    fn load(from: &[Self], to: &mut [Self::Acc]);
    /// Rounds a run; the lengths are equal.
    fn store(from: &[Self::Acc], to: &mut [Self]);
    /// The run itself, if it is its own accumulator type.
    fn native(run: &[Self]) -> Option<&[Self::Acc]>;
    /// The run itself, if it is its own accumulator type.
    fn native_mut(run: &mut [Self]) -> Option<&mut [Self::Acc]>;
}

macro_rules! stored_as_themselves {
    ($($ty:ident)*) => { $(
        impl Stored for $ty {
            type Acc = $ty;
            const NATIVE: bool = true;

            #[inline(always)]
            fn widen(self) -> $ty {
                self
            }

            #[inline(always)]
            fn narrow(value: $ty) -> $ty {
                value
            }

            fn load(from: &[$ty], to: &mut [$ty]) {
                to.copy_from_slice(from);
            }

            fn store(from: &[$ty], to: &mut [$ty]) {
                to.copy_from_slice(from);
            }

            #[inline(always)]
            fn native(run: &[$ty]) -> Option<&[$ty]> {
                Some(run)
            }

            #[inline(always)]
            fn native_mut(run: &mut [$ty]) -> Option<&mut [$ty]> {
                Some(run)
            }
        }
    )* };
}

stored_as_themselves! { f32 f64 u32 i64 u8 }

impl Float for f32 {}

impl Float for f64 {}

impl Float for bf16 {}

impl Stored for bf16 {
    type Acc = f32;
    const NATIVE: bool = false;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> bf16 {
        bf16::from_bits(bf16_bits(value))
    }

    fn load(from: &[bf16], to: &mut [f32]) {
        load_bf16(from, to);
    }

    fn store(from: &[f32], to: &mut [bf16]) {
        store_bf16(from, to);
    }

    fn native(_: &[bf16]) -> Option<&[f32]> {
        None
    }

    fn native_mut(_: &mut [bf16]) -> Option<&mut [f32]> {
        None
    }
}

impl Float for f16 {}

impl Stored for f16 {
    type Acc = f32;
    const NATIVE: bool = false;

    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    fn narrow(value: f32) -> f16 {
        f16::from_f32(value)
    }

    fn load(from: &[f16], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    fn store(from: &[f32], to: &mut [f16]) {
        to.convert_from_f32_slice(from);
    }

    fn native(_: &[f16]) -> Option<&[f32]> {
        None
    }

    fn native_mut(_: &mut [f16]) -> Option<&mut [f32]> {
        None
    }
}

/// The upper half of a float, rounded to nearest even without a branch, so that it vectorises.
#[inline(always)]
fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    // Rounding a NaN could carry into the sign; keep it, with a bit of the fraction set.
    let nan = (bits >> 16) | 0x40;
    (if bits & 0x7FFF_FFFF > 0x7F80_0000 { nan } else { rounded }) as u16
}

vectorized! {
    fn load_bf16[S](from: &[bf16], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.widen();
        }
    }

    fn store_bf16[S](from: &[f32], to: &mut [bf16]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = bf16::narrow(from);
        }
    }
}

/// Calls `$body` with `$T` standing for the float type of `$dtype`; an error for other dtypes.
macro_rules! with_float {
    ($operation:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            sneppx_contract::DType::F32 => {
                type $T = f32;
                $body
            }
            sneppx_contract::DType::F64 => {
                type $T = f64;
                $body
            }
            sneppx_contract::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            sneppx_contract::DType::F16 => {
                type $T = half::f16;
                $body
            }
            other => Err(sneppx_contract::Error::dtype($operation, "a float dtype", other)),
        }
    };
}

/// Calls `$body` with `$T` standing for the element type of `$dtype`.
macro_rules! with_element {
    ($operation:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            sneppx_contract::DType::U32 => { type $T = u32; $body }
            sneppx_contract::DType::I64 => { type $T = i64; $body }
            sneppx_contract::DType::U8 => { type $T = u8; $body }
            float => $crate::element::with_float!($operation, float, $T => $body),
        }
    };
}

/// Calls `$body` with `$T` standing for the index type of `$dtype`; an error for other dtypes.
macro_rules! with_index {
    ($operation:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            sneppx_contract::DType::U32 => {
                type $T = u32;
                $body
            }
            sneppx_contract::DType::I64 => {
                type $T = i64;
                $body
            }
            other => Err(sneppx_contract::Error::dtype($operation, "u32 or i64", other)),
        }
    };
}

pub(crate) use {with_element, with_float, with_index};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn num_01_runs_of_bf16_round_like_the_half_crate() {
        let values: Vec<f32> = (0..=0xFFFFu32)
            .flat_map(|high| [0, 1, 0x7FFF, 0x8000, 0x8001].map(|low| high << 16 | low))
            .map(f32::from_bits)
            .collect();
        let mut stored = vec![bf16::ZERO; values.len()];
        bf16::store(&values, &mut stored);
        let mut loaded = vec![0.0; values.len()];
        bf16::load(&stored, &mut loaded);
        for ((value, stored), loaded) in values.iter().zip(&stored).zip(&loaded) {
            let want = bf16::from_f32(*value);
            if value.is_nan() {
                assert!(stored.is_nan() && loaded.is_nan(), "{:08x}", value.to_bits());
            } else {
                assert_eq!(stored.to_bits(), want.to_bits(), "{:08x}", value.to_bits());
                assert_eq!(loaded.to_bits(), want.to_f32().to_bits());
            }
        }
    }

    #[test]
    fn runs_of_f16_convert_like_single_values() {
        let values: Vec<f32> = (-70_000..70_000).step_by(37).map(|i| i as f32 * 1.03).collect();
        let mut stored = vec![f16::ZERO; values.len()];
        f16::store(&values, &mut stored);
        let mut loaded = vec![0.0; values.len()];
        f16::load(&stored, &mut loaded);
        for ((value, stored), loaded) in values.iter().zip(&stored).zip(&loaded) {
            assert_eq!(stored.to_bits(), f16::narrow(*value).to_bits(), "{value}");
            assert_eq!(loaded.to_bits(), stored.widen().to_bits());
        }
    }
}
