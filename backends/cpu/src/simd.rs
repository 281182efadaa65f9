//! One loop, compiled for several instruction sets, the best of which is chosen at run time.
//!
//! A body is ordinary Rust over slices, written so that the compiler turns it into vector code.
//! [`vectorized!`] compiles it for AVX-512, for AVX2 with FMA, and for whatever the target has
//! anyway (NEON on aarch64), and calls the best one that the processor knows. Inside a body, `S`
//! names the instruction set; [`Isa::mul_add`] rounds once where the set can do that at full speed
//! and twice elsewhere, where the fused form would be a slow library call.
//!
//! Functions called from a body must be `#[inline(always)]`: only what is inlined is compiled for
//! the instruction set.

use std::sync::OnceLock;

use crate::element::Real;

/// The instruction sets that bodies are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// AVX-512 F, BW, CD, DQ and VL, with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What every processor of the target has.
    Baseline,
}

impl Level {
    /// The name for messages and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            Level::Baseline if cfg!(target_arch = "aarch64") => "neon",
            Level::Baseline => "baseline",
        }
    }
}

/// The best instruction set of this processor, found once.
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    macro_rules! has {
        ($($feature:tt)*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
    }
    if !has!("avx2" "fma" "f16c" "bmi1" "bmi2") {
        Level::Baseline
    } else if has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl") {
        Level::Avx512
    } else {
        Level::Avx2
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Baseline
}

/// An instruction set, as a type that a body is generic over.
pub(crate) trait Isa: Copy + 'static {
    /// Whether a fused multiplication and addition is one instruction.
    const FUSED: bool;

    /// `a * b + c`, rounded once if [`Isa::FUSED`].
    #[inline(always)]
    fn mul_add<T: Real>(a: T, b: T, c: T) -> T {
        if Self::FUSED { a.fused_mul_add(b, c) } else { a * b + c }
    }
}

/// AVX-512, or AVX2 with FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Fma;

#[cfg(target_arch = "x86_64")]
impl Isa for Fma {
    const FUSED: bool = true;
}

/// What every processor of the target has.
#[derive(Clone, Copy)]
pub(crate) struct Baseline;

impl Isa for Baseline {
    const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
}

/// Defines functions that are compiled for every instruction set:
/// `fn name[S, T: Bound, ...](arguments) -> Result { body }`. The first name in the brackets stands
/// for the instruction set inside the body; the caller names only the others, if any.
macro_rules! vectorized {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident[$isa:ident $(, $generic:ident: $bound:path)* $(,)?](
            $($arg:ident: $ty:ty),* $(,)?
        ) $(-> $ret:ty)? $body:block
    )*) => { $(
        $(#[$meta])*
        $vis fn $name<$($generic: $bound),*>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$isa: $crate::simd::Isa $(, $generic: $bound)*>(
                $($arg: $ty),*
            ) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(
                enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2"
            )]
            fn avx512<$($generic: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                body::<$crate::simd::Fma $(, $generic)*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
            fn avx2<$($generic: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                body::<$crate::simd::Fma $(, $generic)*>($($arg),*)
            }

            match $crate::simd::level() {
                // SAFETY: `level` found these features on this processor.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => unsafe { avx512::<$($generic),*>($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => unsafe { avx2::<$($generic),*>($($arg),*) },
                $crate::simd::Level::Baseline => {
                    body::<$crate::simd::Baseline $(, $generic)*>($($arg),*)
                }
            }
        }
    )* };
}

pub(crate) use vectorized;

#[cfg(test)]
mod tests {
    use super::*;

    vectorized! {
        fn dot[S, T: Real](x: &[T], y: &[T]) -> T {
            x.iter().zip(y).fold(T::ZERO, |sum, (&x, &y)| S::mul_add(x, y, sum))
        }
    }

    #[test]
    fn a_vectorized_function_computes_what_its_body_says() {
        let x: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(dot(&x, &x), 328_350.0);
        assert_eq!(dot::<f32>(&[1.0, 2.0], &[3.0, 4.0]), 11.0);
    }
}
