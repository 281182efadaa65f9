//! The activation functions and their derivatives, one number at a time, to be inlined into loops.

use sneppx_contract::Activation;

use crate::math::Math;
use crate::simd::Isa;

/// `activation(x)`
#[inline(always)]
pub(crate) fn value<S: Isa, T: Math>(activation: Activation, x: T) -> T {
    match activation {
        Activation::Gelu => x * normal_distribution::<S, T>(x),
        Activation::GeluTanh => {
            let half = T::real(0.5) * x;
            S::mul_add(half, T::tanh::<S>(tanh_argument::<S, T>(x)), half)
        }
        Activation::Silu => x * T::sigmoid::<S>(x),
        Activation::Relu => {
            if x < T::ZERO {
                T::ZERO
            } else {
                x
            }
        }
    }
}

/// The derivative of `activation` at `x`.
#[inline(always)]
pub(crate) fn slope<S: Isa, T: Math>(activation: Activation, x: T) -> T {
    let one = T::ONE;
    match activation {
        Activation::Gelu => {
            // Φ(x) + x φ(x)
            let density = T::real(INVERSE_ROOT_TAU) * T::exp::<S>(T::real(-0.5) * x * x);
            S::mul_add(x, density, normal_distribution::<S, T>(x))
        }
        Activation::GeluTanh => {
            // With u the argument and t = tanh u: (1 + t) / 2 + x / 2 (1 - t²) u'
            let t = T::tanh::<S>(tanh_argument::<S, T>(x));
            let inner =
                T::real(ROOT_TWO_OVER_PI) * S::mul_add(T::real(3.0 * CUBE_FACTOR) * x, x, one);
            let half = T::real(0.5);
            S::mul_add(half * x * (one - t * t), inner, S::mul_add(half, t, half))
        }
        Activation::Silu => {
            let s = T::sigmoid::<S>(x);
            s * S::mul_add(x, one - s, one)
        }
        Activation::Relu => {
            if x > T::ZERO {
                one
            } else if x.not_a_number() {
                x
            } else {
                T::ZERO
            }
        }
    }
}

/// Φ, the distribution function of the standard normal distribution.
#[inline(always)]
fn normal_distribution<S: Isa, T: Math>(x: T) -> T {
    let half = T::real(0.5);
    S::mul_add(half, T::erf::<S>(x * T::real(std::f64::consts::FRAC_1_SQRT_2)), half)
}

/// `sqrt(2/π) (x + 0.044715 x³)`
#[inline(always)]
fn tanh_argument<S: Isa, T: Math>(x: T) -> T {
    T::real(ROOT_TWO_OVER_PI) * x * S::mul_add(T::real(CUBE_FACTOR) * x, x, T::ONE)
}

/// `sqrt(2/π)`
const ROOT_TWO_OVER_PI: f64 = 0.797_884_560_802_865_4;

/// `1/sqrt(2π)`
const INVERSE_ROOT_TAU: f64 = 0.398_942_280_401_432_7;

/// The coefficient of the tanh form of GELU.
const CUBE_FACTOR: f64 = 0.044_715;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Baseline;

    const ALL: [Activation; 4] =
        [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu];

    #[test]
    fn slopes_are_the_slopes_of_the_values() {
        for activation in ALL {
            for step in -40..40 {
                let x = f64::from(step) * 0.2 + 0.05;
                let at = |x| value::<Baseline, f64>(activation, x);
                let want = (at(x + 1e-5) - at(x - 1e-5)) / 2e-5;
                let got = slope::<Baseline, f64>(activation, x);
                assert!((got - want).abs() < 1e-8, "{activation:?} at {x}: {got}, want {want}");
            }
        }
    }

    #[test]
    fn values_at_known_points() {
        let at = |activation, x| value::<Baseline, f64>(activation, x);
        assert!((at(Activation::Gelu, 1.0) - 0.841_344_746_068_543).abs() < 1e-12);
        assert!((at(Activation::GeluTanh, 1.0) - 0.841_191_990_607_477).abs() < 1e-12);
        assert!((at(Activation::Silu, 1.0) - 0.731_058_578_630_005).abs() < 1e-12);
        assert_eq!((at(Activation::Relu, -1.0), at(Activation::Relu, 2.0)), (0.0, 2.0));
    }

    #[test]
    fn nan_stays_nan() {
        for activation in ALL {
            assert!(value::<Baseline, f32>(activation, f32::NAN).is_nan(), "{activation:?}");
            assert!(slope::<Baseline, f32>(activation, f32::NAN).is_nan(), "{activation:?}");
        }
    }
}
