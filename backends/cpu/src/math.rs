//! Functions of one number, written so that loops over them vectorise.
//!
//! The `f32` forms have no branch and no table: an argument is reduced, a polynomial evaluated, and
//! the edges are chosen by selects. The polynomials are minimax fits of our own, computed with the
//! Remez exchange in 40 digits; their error lies below a third of an `f32` rounding. Against the
//! exact value, `exp` and `ln` are off by at most 1.5 units in the last place, `tanh`, `erf` and
//! `sigmoid` by at most 4e-7 of the value.
//!
//! The `f64` forms are the accurate ones of the standard library and of libm: gradient checks run
//! in `f64`, and nothing there needs speed.

use crate::element::Real;
use crate::simd::Isa;

/// The functions that kernels are built from.
pub(crate) trait Math: Real {
    /// The natural exponential: 0 at `-inf`, `inf` above the range.
    fn exp<S: Isa>(self) -> Self;
    /// The natural logarithm: `-inf` at 0, NaN below.
    fn ln<S: Isa>(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh<S: Isa>(self) -> Self;
    /// The error function.
    fn erf<S: Isa>(self) -> Self;
    /// Sine, radians.
    fn sin(self) -> Self;
    /// Cosine, radians.
    fn cos(self) -> Self;
    /// `self` raised to `exponent`.
    fn pow(self, exponent: Self) -> Self;
    /// `1 / (1 + exp(-x))`
    #[inline(always)]
    fn sigmoid<S: Isa>(self) -> Self {
        Self::ONE / (Self::ONE + Math::exp::<S>(-self))
    }
}

impl Math for f32 {
    #[inline(always)]
    fn exp<S: Isa>(self) -> f32 {
        // Beyond these the result is 0 or infinite whatever the argument.
        let reduced = reduce::<S>(clamp(self, -105.0, 89.0));
        let mantissa = S::mul_add(reduced.square, reduced.tail, reduced.rest) + 1.0;
        // Two factors, so that results below the normal numbers are rounded once, and infinity
        // appears only where it should.
        let half = reduced.power >> 1;
        mantissa * power_of_two(half) * power_of_two(reduced.power.wrapping_sub(half))
    }

    #[inline(always)]
    fn ln<S: Isa>(self) -> f32 {
        const SMALLEST_NORMAL: f32 = f32::MIN_POSITIVE;
        const TWO_TO_23: f32 = 8_388_608.0;
        let tiny = self < SMALLEST_NORMAL;
        let scaled = if tiny { self * TWO_TO_23 } else { self };
        // The exponent that brings the mantissa into [sqrt(1/2), sqrt(2)).
        let offset = scaled.to_bits().wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits());
        let power = (offset as i32) >> 23;
        let mantissa = f32::from_bits(scaled.to_bits().wrapping_sub((power << 23) as u32));
        let exponent = power as f32 - if tiny { 23.0 } else { 0.0 };
        let f = mantissa - 1.0;
        let square = f * f;
        let tail = polynomial::<S, 9>(f, &LN) * f * square;
        let low = S::mul_add(exponent, LN2_LOW, S::mul_add(square, -0.5, tail));
        let value = S::mul_add(exponent, LN2_HIGH, f + low);
        let value = if self == 0.0 { f32::NEG_INFINITY } else { value };
        let value = if self == f32::INFINITY { f32::INFINITY } else { value };
        // Negative numbers and NaN fail the comparison.
        if self >= 0.0 { value } else { f32::NAN }
    }

    #[inline(always)]
    fn tanh<S: Isa>(self) -> f32 {
        // With t = exp(-2|x|) - 1, exact to a rounding for small x too: tanh |x| = -t / (t + 2).
        let size = clamp(self.abs(), 0.0, 10.0);
        let reduced = reduce::<S>(-2.0 * size);
        let small = S::mul_add(reduced.square, reduced.tail, reduced.rest);
        let scale = power_of_two(reduced.power);
        let t = S::mul_add(small, scale, scale - 1.0);
        (-t / (t + 2.0)).copysign(self)
    }

    #[inline(always)]
    fn erf<S: Isa>(self) -> f32 {
        let size = clamp(self.abs(), 0.0, 3.95);
        let small = size * polynomial::<S, 7>(size * size, &ERF_SMALL);
        // erf = 1 - exp(-q): the fit is of q = -ln(1 - erf).
        let large = 1.0 - Math::exp::<S>(-polynomial::<S, 7>(size, &ERF_LARGE));
        // NaN fails the comparison and comes through the exponential.
        (if size < 1.0 { small } else { large }).copysign(self)
    }

    #[inline(always)]
    fn sin(self) -> f32 {
        self.sin()
    }

    #[inline(always)]
    fn cos(self) -> f32 {
        self.cos()
    }

    #[inline(always)]
    fn pow(self, exponent: f32) -> f32 {
        self.powf(exponent)
    }
}

impl Math for f64 {
    #[inline(always)]
    fn exp<S: Isa>(self) -> f64 {
        self.exp()
    }

    #[inline(always)]
    fn ln<S: Isa>(self) -> f64 {
        self.ln()
    }

    #[inline(always)]
    fn tanh<S: Isa>(self) -> f64 {
        self.tanh()
    }

    #[inline(always)]
    fn erf<S: Isa>(self) -> f64 {
        libm::erf(self)
    }

    #[inline(always)]
    fn sin(self) -> f64 {
        self.sin()
    }

    #[inline(always)]
    fn cos(self) -> f64 {
        self.cos()
    }

    #[inline(always)]
    fn pow(self, exponent: f64) -> f64 {
        self.powf(exponent)
    }
}

/// ln 2 in two parts; the first has so few bits that its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// `(exp(r) - 1 - r) / r²` on |r| <= 0.347.
const EXP: [f32; 5] = [0.5, 0.166_665_77, 0.041_666_374, 0.008_363_249, 0.001_394_124_4];

/// `(ln(1 + f) - f + f² / 2) / f³` on [sqrt(1/2) - 1, sqrt(2) - 1].
const LN: [f32; 9] = [
    0.333_333_3,
    -0.249_999_8,
    0.200_006_88,
    -0.166_691_51,
    0.142_511_56,
    -0.123_967,
    0.116_346_62,
    -0.116_599_29,
    0.073_325_32,
];

/// `erf(sqrt(z)) / sqrt(z)` on [0, 1].
const ERF_SMALL: [f32; 7] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    -0.376_126_27,
    0.112_836,
    -0.026_854_445,
    0.005_189_535_5,
    -8.020_843e-4,
    7.889_124_4e-5,
];

/// `-ln(1 - erf(x))` on [1, 3.95], the error weighted by `1 - erf(x)`.
const ERF_LARGE: [f32; 7] = [
    3.537_228_7e-4,
    1.127_04,
    0.638_225_7,
    0.103_037_35,
    -0.021_805_309,
    0.002_939_605,
    -1.855_737_7e-4,
];

/// `x = power * ln 2 + rest` with |rest| <= ln 2 / 2, and what `exp(rest)` is made of.
struct Reduced {
    power: i32,
    rest: f32,
    square: f32,
    tail: f32,
}

#[inline(always)]
fn reduce<S: Isa>(x: f32) -> Reduced {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = S::mul_add(x, std::f32::consts::LOG2_E, ROUND);
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let whole = shifted - ROUND;
    let rest = S::mul_add(whole, -LN2_LOW, S::mul_add(whole, -LN2_HIGH, x));
    Reduced { power, rest, square: rest * rest, tail: polynomial::<S, 5>(rest, &EXP) }
}

/// `2^power` for powers of normal numbers.
#[inline(always)]
fn power_of_two(power: i32) -> f32 {
    f32::from_bits((power.wrapping_add(127) as u32) << 23)
}

/// Horner's scheme, lowest coefficient first.
#[inline(always)]
fn polynomial<S: Isa, const N: usize>(x: f32, coefficients: &[f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    for at in (0..N - 1).rev() {
        sum = S::mul_add(sum, x, coefficients[at]);
    }
    sum
}

/// Between the bounds; NaN stays.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vectorized;

    vectorized! {
        fn all[S](x: &[f32], out: &mut [[f32; 5]]) {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = [
                    Math::exp::<S>(x),
                    Math::ln::<S>(x),
                    Math::tanh::<S>(x),
                    Math::erf::<S>(x),
                    x.sigmoid::<S>(),
                ];
            }
        }
    }

    fn exact(x: f64) -> [f64; 5] {
        [x.exp(), x.ln(), x.tanh(), libm::erf(x), 1.0 / (1.0 + (-x).exp())]
    }

    /// The distance in units of the last place of `want` as an `f32`.
    fn ulps(got: f32, want: f64) -> f64 {
        let spacing = 2f64.powi((want.abs().log2().floor().max(-126.0) as i32) - 23);
        (f64::from(got) - want).abs() / spacing
    }

    /// Every 487th bit pattern of both signs: all exponents, 4.4 million numbers per sign.
    #[test]
    fn functions_are_close_to_exact_over_the_whole_range() {
        let patterns = (0..0x7F80_0000u32).step_by(487);
        let x: Vec<f32> = patterns
            .flat_map(|bits| [f32::from_bits(bits), f32::from_bits(bits | 0x8000_0000)])
            .collect();
        for lanes in [false, true] {
            let mut got = vec![[0.0; 5]; x.len()];
            if lanes {
                all(&x, &mut got);
            } else {
                portable(&x, &mut got);
            }
            for (&x, got) in x.iter().zip(&got) {
                check(x, got);
            }
        }
    }

    fn portable(x: &[f32], out: &mut [[f32; 5]]) {
        type S = crate::simd::Baseline;
        for (out, &x) in out.iter_mut().zip(x) {
            *out = [
                Math::exp::<S>(x),
                Math::ln::<S>(x),
                Math::tanh::<S>(x),
                Math::erf::<S>(x),
                x.sigmoid::<S>(),
            ];
        }
    }

    fn check(x: f32, got: &[f32; 5]) {
        let want = exact(f64::from(x));
        if want[0] > f64::from(f32::MAX) {
            assert!(got[0] >= f32::MAX, "exp({x:e}) = {:e}", got[0]);
        } else {
            assert!(ulps(got[0], want[0]) <= 1.5, "exp({x:e}) = {:e}", got[0]);
        }
        if x >= f32::from_bits(1) {
            let near_one = (f64::from(got[1]) - want[1]).abs() < 1e-9;
            assert!(near_one || ulps(got[1], want[1]) <= 1.5, "ln({x:e}) = {:e}", got[1]);
        } else {
            assert!(if x == 0.0 { got[1] == f32::NEG_INFINITY } else { got[1].is_nan() });
        }
        for at in 2..5 {
            let error = (f64::from(got[at]) - want[at]).abs();
            // The sigmoid of very negative numbers leaves the normal range.
            let bound = 4e-7 * want[at].abs() + 1.2e-38;
            assert!(error <= bound, "function {at} of {x:e} = {:e}, {:e}", got[at], want[at]);
        }
    }

    #[test]
    fn edges_have_their_limits() {
        let x = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0, -0.0, 1e-42];
        let mut got = vec![[0.0; 5]; x.len()];
        all(&x, &mut got);
        assert_eq!([got[0][0], got[0][2], got[0][3], got[0][4]], [0.0, -1.0, -1.0, 0.0]);
        assert!(got[0][1].is_nan());
        assert_eq!(got[1], [f32::INFINITY, f32::INFINITY, 1.0, 1.0, 1.0]);
        assert!(got[2].iter().all(|value| value.is_nan()), "{:?}", got[2]);
        assert_eq!(got[3], [1.0, f32::NEG_INFINITY, 0.0, 0.0, 0.5]);
        assert!(got[4][2].is_sign_negative() && got[4][3].is_sign_negative());
        assert_eq!(got[5][0], 1.0);
        // Below the normal numbers, where the exponential still has some bits.
        let x = [-88.0, -95.0, -103.0, -103.9, -104.1];
        let mut got = vec![[0.0; 5]; x.len()];
        all(&x, &mut got);
        for (x, got) in x.iter().zip(&got) {
            assert_eq!(got[0], f64::from(*x).exp() as f32, "exp({x})");
        }
    }
}
