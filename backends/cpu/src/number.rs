//! What numbers can do, whichever of them a kernel computes on.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::element::Stored;

/// A type in which arithmetic happens: a [`Real`] or an integer, which wraps.
pub(crate) trait Number: Stored<Acc = Self> + PartialOrd {
    /// 0
    const ZERO: Self;

    /// `self + other`; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// `self - other`; integers wrap.
    fn minus(self, other: Self) -> Self;
    /// `self * other`; integers wrap.
    fn times(self, other: Self) -> Self;
    /// `self / other`; an integer divided by 0 is 0.
    fn over(self, other: Self) -> Self;
    /// The larger; NaN if either is.
    fn larger(self, other: Self) -> Self;
    /// The smaller; NaN if either is.
    fn smaller(self, other: Self) -> Self;
}

/// A type in which floating-point arithmetic happens: `f32` or `f64`.
pub(crate) trait Real:
    Number
    + Sum
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// 1
    const ONE: Self;
    /// The largest value, above every number.
    const INFINITY: Self;

    /// The nearest value.
    fn real(value: f64) -> Self;
    /// `self * b + c`, rounded once; use [`Isa::mul_add`](crate::simd::Isa::mul_add) instead.
    fn fused_mul_add(self, b: Self, c: Self) -> Self;
    /// The square root.
    fn square_root(self) -> Self;
    /// The absolute value.
    fn magnitude(self) -> Self;
    /// Whether this is not a number.
    #[inline(always)]
    fn not_a_number(self) -> bool {
        // The one value that differs from itself.
        #[allow(clippy::eq_op)]
        {
            self != self
        }
    }
}

macro_rules! reals {
    ($($ty:ident)*) => { $(
        impl Number for $ty {
            const ZERO: Self = 0.0;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self / other
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if self > other || self.is_nan() { self } else { other }
            }

            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                if self < other || self.is_nan() { self } else { other }
            }
        }

        impl Real for $ty {
            const ONE: Self = 1.0;
            const INFINITY: Self = $ty::INFINITY;

            #[inline(always)]
            fn real(value: f64) -> Self {
                value as $ty
            }

            #[inline(always)]
            fn fused_mul_add(self, b: Self, c: Self) -> Self {
                self.mul_add(b, c)
            }

            #[inline(always)]
            fn square_root(self) -> Self {
                self.sqrt()
            }

            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
        }
    )* };
}

reals! { f32 f64 }

macro_rules! integers {
    ($($ty:ident)*) => { $(
        impl Number for $ty {
            const ZERO: Self = 0;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }

            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
        }
    )* };
}

integers! { u32 i64 u8 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_and_the_smaller_of_nan_and_anything_are_nan() {
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(a.larger(b).is_nan() && a.smaller(b).is_nan());
        }
        assert_eq!((1.0f64.larger(2.0), 1.0f64.smaller(2.0)), (2.0, 1.0));
    }

    #[test]
    fn integers_wrap_and_do_not_divide_by_zero() {
        assert_eq!((i64::MAX.plus(1), 0u32.minus(1)), (i64::MIN, u32::MAX));
        assert_eq!((i64::MIN.over(-1), 5u32.over(0), 7i64.over(2)), (i64::MIN, 0, 3));
    }
}
