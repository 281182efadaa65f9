//! Element types: what a buffer holds and in what a sum of it is formed.

use std::fmt;

use half::{bf16, f16};

/// The type of every element of a buffer.
///
/// There is no implicit promotion: operations that get two dtypes where one is expected return
/// [`Error::DType`](crate::Error::DType).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// 32-bit IEEE float, the default of training.
    F32,
    /// 64-bit IEEE float, used by gradient checks.
    F64,
    /// The upper half of an `f32`; arithmetic happens in `f32`.
    BF16,
    /// 16-bit IEEE float; arithmetic happens in `f32`.
    F16,
    /// Unsigned 32-bit integer, the usual type of tokens.
    U32,
    /// Signed 64-bit integer, for labels with negative sentinels.
    I64,
    /// Unsigned byte; masks and results of comparisons are 0 or 1.
    U8,
}

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 7] =
        [DType::F32, DType::F64, DType::BF16, DType::F16, DType::U32, DType::I64, DType::U8];

    /// The dtypes that gradients may have.
    pub const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::BF16, DType::F16];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::U32 => 4,
            DType::BF16 | DType::F16 => 2,
            DType::U8 => 1,
        }
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::BF16 | DType::F16)
    }

    /// The type in which sums, statistics and arithmetic of this type are formed: `F32` for the
    /// 16-bit floats, itself otherwise.
    pub const fn accumulator(self) -> DType {
        match self {
            DType::BF16 | DType::F16 => DType::F32,
            other => other,
        }
    }

    /// The name used in files and messages, as in `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U8 => "u8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that a buffer can hold.
///
/// Sealed: the set of dtypes is part of the contract.
pub trait Element: bytemuck::Pod + Send + Sync + fmt::Debug + PartialEq + sealed::Sealed {
    /// The dtype that stands for this type.
    const DTYPE: DType;
    /// Wraps a slice for [`Memory::upload`](crate::Memory::upload).
    fn host_slice(values: &[Self]) -> HostSlice<'_>;
    /// Unwraps what [`Memory::download`](crate::Memory::download) gave, if the dtype matches.
    fn from_host(values: HostVec) -> Option<Vec<Self>>;
    /// The nearest `f64`; exact for every float type.
    fn to_f64(self) -> f64;
    /// Rounds to nearest, ties to even, for floats; truncates for integers.
    fn from_f64(value: f64) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($ty:ty, $variant:ident, $to:expr, $from:expr;)*) => {
        /// A borrowed run of host values.
        #[derive(Clone, Copy, Debug)]
        pub enum HostSlice<'a> {
            $(#[doc = concat!("Values of type `", stringify!($ty), "`.")] $variant(&'a [$ty]),)*
        }

        /// An owned run of host values.
        #[derive(Clone, Debug, PartialEq)]
        pub enum HostVec {
            $(#[doc = concat!("Values of type `", stringify!($ty), "`.")] $variant(Vec<$ty>),)*
        }

        impl HostSlice<'_> {
            /// The dtype of the values.
            pub fn dtype(&self) -> DType {
                match self { $(HostSlice::$variant(_) => DType::$variant,)* }
            }

            /// How many values there are.
            pub fn len(&self) -> usize {
                match self { $(HostSlice::$variant(values) => values.len(),)* }
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// The values as native-endian bytes.
            pub fn bytes(&self) -> &[u8] {
                match self { $(HostSlice::$variant(values) => bytemuck::cast_slice(values),)* }
            }
        }

        impl HostVec {
            /// `len` zeros.
            pub fn zeros(dtype: DType, len: usize) -> Self {
                match dtype {
                    $(DType::$variant => {
                        HostVec::$variant(vec![bytemuck::Zeroable::zeroed(); len])
                    })*
                }
            }

            /// The values, borrowed.
            pub fn as_slice(&self) -> HostSlice<'_> {
                match self { $(HostVec::$variant(values) => HostSlice::$variant(values),)* }
            }

            /// The values as native-endian bytes, to be overwritten.
            pub fn bytes_mut(&mut self) -> &mut [u8] {
                match self {
                    $(HostVec::$variant(values) => {
                        bytemuck::cast_slice_mut(values.as_mut_slice())
                    })*
                }
            }

            /// Every value as the nearest `f64`.
            pub fn to_f64(&self) -> Vec<f64> {
                match self {
                    $(HostVec::$variant(values) => values.iter().map(|v| v.to_f64()).collect(),)*
                }
            }

            /// Values of `dtype` nearest to `values`.
            pub fn from_f64(dtype: DType, values: &[f64]) -> Self {
                match dtype {
                    $(DType::$variant => HostVec::$variant(
                        values.iter().map(|v| <$ty as Element>::from_f64(*v)).collect(),
                    ),)*
                }
            }
        }

        $(
            impl sealed::Sealed for $ty {}
            impl Element for $ty {
                const DTYPE: DType = DType::$variant;
                fn host_slice(values: &[Self]) -> HostSlice<'_> {
                    HostSlice::$variant(values)
                }
                fn from_host(values: HostVec) -> Option<Vec<Self>> {
                    match values { HostVec::$variant(values) => Some(values), _ => None }
                }
                fn to_f64(self) -> f64 { ($to)(self) }
                fn from_f64(value: f64) -> Self { ($from)(value) }
            }
        )*
    };
}

elements! {
    f32, F32, f64::from, |v| v as f32;
    f64, F64, |v| v, |v| v;
    bf16, BF16, |v: bf16| f64::from(v.to_f32()), bf16_from_f64;
    f16, F16, |v: f16| f64::from(v.to_f32()), f16::from_f64;
    u32, U32, f64::from, |v| v as u32;
    i64, I64, |v| v as f64, |v| v as i64;
    u8, U8, f64::from, |v| v as u8;
}

impl HostVec {
    /// The dtype of the values.
    pub fn dtype(&self) -> DType {
        self.as_slice().dtype()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Goes through `f32` because that is what every kernel does; a second rounding can differ from a
/// direct one in the last place, and equal paths are worth more than that.
fn bf16_from_f64(value: f64) -> bf16 {
    bf16::from_f32(value as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn num_01_f32_to_bf16_rounds_to_nearest_even_and_keeps_nan() {
        let table: [(u32, u16); 18] = [
            (0x3F808000, 0x3F80),
            (0x3F808001, 0x3F81),
            (0x3F818000, 0x3F82),
            (0x3F817FFF, 0x3F81),
            (0x3E89CCD5, 0x3E8A),
            (0x4048F5C3, 0x4049),
            (0x3FFF8000, 0x4000),
            (0x7F7F7FFF, 0x7F7F),
            (0x7F7F8000, 0x7F80),
            (0x7F800000, 0x7F80),
            (0xFF800000, 0xFF80),
            (0x80000000, 0x8000),
            (0x00008000, 0x0000),
            (0x00008001, 0x0001),
            (0x00018000, 0x0002),
            (0x007FFFFF, 0x0080),
            (0x43808000, 0x4380),
            (0xC3818000, 0xC382),
        ];
        for (from, want) in table {
            let got = bf16::from_f32(f32::from_bits(from)).to_bits();
            assert_eq!(got, want, "{from:08X} gave {got:04X}, want {want:04X}");
        }
        for nan in [0x7F800001u32, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF] {
            assert!(bf16::from_f32(f32::from_bits(nan)).is_nan(), "{nan:08X}");
        }
    }

    #[test]
    fn host_values_know_their_dtype_and_length() {
        for dtype in DType::ALL {
            let zeros = HostVec::zeros(dtype, 3);
            assert_eq!((zeros.dtype(), zeros.len()), (dtype, 3));
            assert_eq!(zeros.as_slice().bytes().len(), 3 * dtype.size());
        }
    }
}
