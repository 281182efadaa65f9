//! Functions of one number, written so that loops over them vectorise.

use crate::element::Real;
use crate::simd::Isa;

/// The functions that elementwise kernels are built from.
pub(crate) trait Math: Real {
    /// The natural exponential.
    fn exp<S: Isa>(self) -> Self;
    /// The natural logarithm.
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

macro_rules! math {
    ($($ty:ident)*) => { $(
        impl Math for $ty {
            #[inline(always)]
            fn exp<S: Isa>(self) -> Self {
                self.exp()
            }

            #[inline(always)]
            fn ln<S: Isa>(self) -> Self {
                self.ln()
            }

            #[inline(always)]
            fn tanh<S: Isa>(self) -> Self {
                self.tanh()
            }

            #[inline(always)]
            fn erf<S: Isa>(self) -> Self {
                erf(f64::from(self)) as $ty
            }

            #[inline(always)]
            fn sin(self) -> Self {
                self.sin()
            }

            #[inline(always)]
            fn cos(self) -> Self {
                self.cos()
            }

            #[inline(always)]
            fn pow(self, exponent: Self) -> Self {
                self.powf(exponent)
            }
        }
    )* };
}

math! { f32 f64 }

/// The error function: its power series near 0, the continued fraction of its complement beyond.
fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size.is_nan() {
        return x;
    }
    if size < 2.5 {
        let (mut term, mut sum) = (size, size);
        for n in 1..80 {
            let n = f64::from(n);
            term *= -size * size / n;
            sum += term / (2.0 * n + 1.0);
        }
        return (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    let mut fraction = size;
    for n in (1..60).rev() {
        fraction = size + f64::from(n) / 2.0 / fraction;
    }
    let root = std::f64::consts::FRAC_2_SQRT_PI / 2.0;
    (1.0 - (-size * size).exp() * root / fraction).copysign(x)
}
