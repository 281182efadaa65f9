//! Functions of one and of two elements, their derivatives, comparisons and choices.

use super::elementwise::SHAPES;
use super::oracle;
use super::placed::{Lie, Placed, assert_same_bits, draw, drawn, repeated};
use super::refusal::{refused_dtype, refused_shape};
use super::tolerance::assert_close;
use crate::{
    Activation, BinaryOp, CompareOp, DType, Device, HostSlice, HostVec, Result, UnaryOp, View,
};

/// Every function with the range it is tried on.
const UNARY: [(UnaryOp, f64, f64); 19] = [
    (UnaryOp::Negate, -5.0, 5.0),
    (UnaryOp::Abs, -5.0, 5.0),
    (UnaryOp::Square, -5.0, 5.0),
    (UnaryOp::Sqrt, 0.25, 9.0),
    (UnaryOp::Reciprocal, 0.25, 9.0),
    (UnaryOp::Exp, -9.0, 3.0),
    (UnaryOp::Log, 0.25, 90.0),
    (UnaryOp::Sin, -7.0, 7.0),
    (UnaryOp::Cos, -7.0, 7.0),
    (UnaryOp::Tanh, -5.0, 5.0),
    (UnaryOp::Sigmoid, -9.0, 9.0),
    (UnaryOp::Affine { scale: -1.5, shift: 0.25 }, -5.0, 5.0),
    (UnaryOp::Power(3.0), -2.0, 2.0),
    (UnaryOp::Power(-0.5), 0.25, 9.0),
    (UnaryOp::Power(0.0), -2.0, 2.0),
    (UnaryOp::Activation(Activation::Gelu), -6.0, 6.0),
    (UnaryOp::Activation(Activation::GeluTanh), -6.0, 6.0),
    (UnaryOp::Activation(Activation::Silu), -9.0, 9.0),
    (UnaryOp::Activation(Activation::Relu), -2.0, 2.0),
];

const BINARY: [BinaryOp; 6] = [
    BinaryOp::Add,
    BinaryOp::Subtract,
    BinaryOp::Multiply,
    BinaryOp::Divide,
    BinaryOp::Maximum,
    BinaryOp::Minimum,
];

const COMPARE: [CompareOp; 6] = [
    CompareOp::Equal,
    CompareOp::NotEqual,
    CompareOp::Less,
    CompareOp::LessEqual,
    CompareOp::Greater,
    CompareOp::GreaterEqual,
];

/// Every function of one operand has its values, however the operands lie.
pub fn unary_functions_have_their_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for (op, low, high) in UNARY {
            for (seed, shape) in SHAPES.into_iter().enumerate() {
                let values = draw(dtype, seed as u64, shape.iter().product(), low, high);
                let x = Placed::new(device, dtype, shape, Lie::ALL[seed % 5], &values)?;
                let out = Placed::output(device, dtype, shape, Lie::ALL[(seed + 1) % 5])?;
                device.unary(op, x.view(), out.view())?;
                let want: Vec<f64> = values.iter().map(|&x| oracle::unary(op, x)).collect();
                assert_close(&format!("{op:?} {shape:?}"), dtype, &out.values()?, &want, 1.0);
                device.unary(op, x.view(), x.view())?;
                assert_close(&format!("{op:?} in place"), dtype, &x.values()?, &want, 1.0);
            }
        }
    }
    Ok(())
}

/// Far arguments give limits, not NaN; NaN gives NaN.
pub fn unary_functions_keep_their_limits<D: Device>(device: &D) -> Result<()> {
    let inf = f64::INFINITY;
    let cases = [
        (UnaryOp::Exp, [-2000.0, 2000.0, 0.0], [0.0, inf, 1.0]),
        (UnaryOp::Tanh, [-200.0, 200.0, 0.0], [-1.0, 1.0, 0.0]),
        (UnaryOp::Sigmoid, [-2000.0, 2000.0, 0.0], [0.0, 1.0, 0.5]),
        (UnaryOp::Log, [0.0, inf, 1.0], [-inf, inf, 0.0]),
        (UnaryOp::Log, [-1.0, -inf, 1.0], [f64::NAN, f64::NAN, 0.0]),
        (UnaryOp::Sqrt, [-1.0, inf, 0.0], [f64::NAN, inf, 0.0]),
        (UnaryOp::Reciprocal, [0.0, inf, -inf], [inf, 0.0, 0.0]),
        (UnaryOp::Activation(Activation::Gelu), [-60.0, 60.0, 0.0], [0.0, 60.0, 0.0]),
        (UnaryOp::Activation(Activation::GeluTanh), [-60.0, 60.0, 0.0], [0.0, 60.0, 0.0]),
        (UnaryOp::Activation(Activation::Silu), [-200.0, 60.0, 0.0], [0.0, 60.0, 0.0]),
        (UnaryOp::Activation(Activation::Relu), [-inf, inf, 0.0], [0.0, inf, 0.0]),
    ];
    for dtype in DType::FLOATS {
        for (op, values, want) in cases {
            let x = Placed::new(device, dtype, &[3], Lie::Whole, &values)?;
            device.unary(op, x.view(), x.view())?;
            assert_close(&format!("{op:?} of {values:?}"), dtype, &x.values()?, &want, 1.0);
        }
        for (op, ..) in UNARY {
            if matches!(op, UnaryOp::Power(0.0) | UnaryOp::Activation(Activation::Relu)) {
                continue;
            }
            let x = Placed::new(device, dtype, &[70], Lie::Whole, &[f64::NAN; 70])?;
            device.unary(op, x.view(), x.view())?;
            assert!(x.values()?.iter().all(|x| x.is_nan()), "{dtype}: {op:?} of NaN");
        }
    }
    Ok(())
}

/// Three functions take `I64` and wrap; the others and the other integers are refused.
pub fn integers_are_negated_squared_and_made_positive<D: Device>(device: &D) -> Result<()> {
    let values = [0, 3, -4, i64::MIN, (1 << 40) + 1];
    let run = |op| -> Result<HostVec> {
        let x = device.upload(HostSlice::I64(&values))?;
        device.unary(op, View::whole(&x), View::whole(&x))?;
        device.download(&x)
    };
    assert_eq!(run(UnaryOp::Negate)?, HostVec::I64(values.map(i64::wrapping_neg).to_vec()));
    assert_eq!(run(UnaryOp::Abs)?, HostVec::I64(values.map(i64::wrapping_abs).to_vec()));
    assert_eq!(run(UnaryOp::Square)?, HostVec::I64(values.map(|x| x.wrapping_mul(x)).to_vec()));
    refused_dtype("exp of i64", run(UnaryOp::Exp));
    for dtype in [DType::U32, DType::U8] {
        let x = device.alloc(dtype, 3)?;
        let x = View::whole(&x);
        refused_dtype("negated unsigned integers", device.unary(UnaryOp::Negate, x, x));
    }
    for dtype in [DType::U32, DType::I64, DType::U8] {
        let x = device.alloc(dtype, 3)?;
        let x = View::whole(&x);
        refused_dtype("derivative", device.unary_backward(UnaryOp::Square, x, x, x));
    }
    Ok(())
}

/// Every function of one operand has its derivative, also when it overwrites `dy` or `x`.
pub fn unary_functions_have_their_derivatives<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for (op, low, high) in UNARY {
            for (seed, shape) in SHAPES.into_iter().enumerate() {
                let count = shape.iter().product();
                let x_values = draw(dtype, seed as u64, count, low, high);
                let dy_values = draw(dtype, 50 + seed as u64, count, -2.0, 2.0);
                let place = |lie: usize, values: &[f64]| {
                    Placed::new(device, dtype, shape, Lie::ALL[(seed + lie) % 5], values)
                };
                let (x, dy) = (place(0, &x_values)?, place(1, &dy_values)?);
                let dx = Placed::output(device, dtype, shape, Lie::ALL[(seed + 2) % 5])?;
                device.unary_backward(op, x.view(), dy.view(), dx.view())?;
                let pairs = x_values.iter().zip(&dy_values);
                let want: Vec<f64> = pairs.map(|(&x, dy)| oracle::slope(op, x) * dy).collect();
                let magnitude = want.iter().fold(1.0, |most: f64, w| most.max(w.abs()));
                let check = |how: &str, got: &Placed<D>| -> Result<()> {
                    let what = format!("derivative of {op:?} {shape:?} {how}");
                    assert_close(&what, dtype, &got.values()?, &want, magnitude.min(8.0));
                    Ok(())
                };
                check("apart", &dx)?;
                device.unary_backward(op, x.view(), dy.view(), dy.view())?;
                check("over dy", &dy)?;
                let dy = place(3, &dy_values)?;
                device.unary_backward(op, x.view(), dy.view(), x.view())?;
                check("over x", &x)?;
            }
        }
    }
    Ok(())
}

/// Where a function has a corner, its derivative is 0.
pub fn the_derivative_at_a_corner_is_zero<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for op in [UnaryOp::Abs, UnaryOp::Activation(Activation::Relu)] {
            let x = Placed::new(device, dtype, &[2], Lie::Whole, &[0.0, -0.0])?;
            let dy = Placed::new(device, dtype, &[2], Lie::Whole, &[3.0, 3.0])?;
            device.unary_backward(op, x.view(), dy.view(), dy.view())?;
            assert_eq!(dy.values()?, [0.0, 0.0], "{dtype} {op:?}");
        }
    }
    Ok(())
}

/// Every function of two operands has its values, however the operands lie and in place.
pub fn binary_functions_have_their_values<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for op in BINARY {
            for (seed, shape) in SHAPES.into_iter().enumerate() {
                let count = shape.iter().product();
                let a_values = draw(dtype, seed as u64, count, -4.0, 4.0);
                let b_values = draw(dtype, 50 + seed as u64, count, 0.5, 4.0);
                let lie = |n: usize| Lie::ALL[(seed + n) % 5];
                let a = Placed::new(device, dtype, shape, lie(0), &a_values)?;
                let b = Placed::new(device, dtype, shape, lie(1), &b_values)?;
                let out = Placed::output(device, dtype, shape, lie(3))?;
                device.binary(op, a.view(), b.view(), out.view())?;
                let pairs = a_values.iter().zip(&b_values);
                let want: Vec<f64> = pairs.map(|(&a, &b)| oracle::binary(op, a, b)).collect();
                assert_close(&format!("{op:?} {shape:?}"), dtype, &out.values()?, &want, 1.0);
                device.binary(op, a.view(), b.view(), b.view())?;
                assert_close(&format!("{op:?} over b"), dtype, &b.values()?, &want, 1.0);
            }
        }
    }
    Ok(())
}

/// Operands with strides of 0 are broadcast.
pub fn binary_functions_broadcast<D: Device>(device: &D) -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::U32, DType::I64] {
        let row: Vec<f64> = (0..67).map(|i| f64::from(i % 9 + 1)).collect();
        let column: Vec<f64> = (0..33).map(|i| f64::from(i + 10)).collect();
        let row_memory = device.upload(HostVec::from_f64(dtype, &row).as_slice())?;
        let column_memory = device.upload(HostVec::from_f64(dtype, &column).as_slice())?;
        let a = View::new(&column_memory, crate::Layout::strided(&[33, 67], &[1, 0], 0)?);
        let b = View::new(&row_memory, repeated(&[33, 67], 0)?);
        let out = Placed::output(device, dtype, &[33, 67], Lie::Transposed)?;
        device.binary(BinaryOp::Subtract, a, b, out.view())?;
        let want = column.iter().flat_map(|a| row.iter().map(move |b| a - b));
        let want: Vec<f64> =
            want.map(|x| if dtype == DType::U32 { x as i64 as u32 as f64 } else { x }).collect();
        assert_eq!(out.values()?, want, "{dtype}");
    }
    Ok(())
}

/// Integers wrap, division by 0 gives 0, and the rest is exact.
pub fn integer_arithmetic_wraps<D: Device>(device: &D) -> Result<()> {
    let (a, b) = ([7i64, -7, i64::MAX, i64::MIN, 5], [2i64, 2, 1, -1, 0]);
    let (c, d) = ([7u32, 0, u32::MAX, 9, 5], [2u32, 1, 2, 4, 0]);
    for op in BINARY {
        let out = device.alloc(DType::I64, 5)?;
        let (x, y) = (device.upload(HostSlice::I64(&a))?, device.upload(HostSlice::I64(&b))?);
        device.binary(op, View::whole(&x), View::whole(&y), View::whole(&out))?;
        let want = a.iter().zip(&b).map(|(&a, &b)| match op {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Subtract => a.wrapping_sub(b),
            BinaryOp::Multiply => a.wrapping_mul(b),
            BinaryOp::Divide => {
                if b == 0 {
                    0
                } else {
                    a.wrapping_div(b)
                }
            }
            BinaryOp::Maximum => a.max(b),
            BinaryOp::Minimum => a.min(b),
        });
        assert_eq!(device.download(&out)?, HostVec::I64(want.collect()), "{op:?} of i64");

        let out = device.alloc(DType::U32, 5)?;
        let (x, y) = (device.upload(HostSlice::U32(&c))?, device.upload(HostSlice::U32(&d))?);
        device.binary(op, View::whole(&x), View::whole(&y), View::whole(&out))?;
        let want = c.iter().zip(&d).map(|(&a, &b)| match op {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Subtract => a.wrapping_sub(b),
            BinaryOp::Multiply => a.wrapping_mul(b),
            BinaryOp::Divide => a.checked_div(b).unwrap_or(0),
            BinaryOp::Maximum => a.max(b),
            BinaryOp::Minimum => a.min(b),
        });
        assert_eq!(device.download(&out)?, HostVec::U32(want.collect()), "{op:?} of u32");
    }
    Ok(())
}

/// The larger and the smaller of anything and NaN is NaN, on either side.
pub fn extremes_with_nan_are_nan<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::FLOATS {
        for op in [BinaryOp::Maximum, BinaryOp::Minimum] {
            let a = Placed::new(device, dtype, &[40, 2], Lie::Whole, &[f64::NAN, 1.0].repeat(40))?;
            let b = Placed::new(device, dtype, &[40, 2], Lie::Whole, &[1.0, f64::NAN].repeat(40))?;
            device.binary(op, a.view(), b.view(), a.view())?;
            assert!(a.values()?.iter().all(|x| x.is_nan()), "{dtype} {op:?}: {:?}", a.values()?);
        }
    }
    Ok(())
}

/// Comparisons of every dtype give 0 or 1 in bytes; NaN equals nothing.
pub fn comparisons_give_zero_or_one<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        for op in COMPARE {
            for (seed, shape) in SHAPES.into_iter().enumerate() {
                let count: usize = shape.iter().product();
                let values = |seed| draw(DType::I64, seed, count, 0.0, 3.0);
                let (mut a_values, b_values) = (values(seed as u64), values(50 + seed as u64));
                if dtype.is_float() && count > 2 {
                    a_values[1] = f64::NAN;
                }
                let lie = |n: usize| Lie::ALL[(seed + n) % 5];
                let a = Placed::new(device, dtype, shape, lie(0), &a_values)?;
                let b = Placed::new(device, dtype, shape, lie(1), &b_values)?;
                let out = Placed::output(device, DType::U8, shape, lie(2))?;
                device.compare(op, a.view(), b.view(), out.view())?;
                let pairs = a_values.iter().zip(&b_values);
                let want: Vec<f64> = pairs.map(|(&a, &b)| oracle::compare(op, a, b)).collect();
                assert_eq!(out.values()?, want, "{dtype} {op:?} {shape:?}");
            }
        }
    }
    Ok(())
}

/// Integers are compared as integers, not as floats that cannot tell them apart.
pub fn large_integers_are_told_apart<D: Device>(device: &D) -> Result<()> {
    let x = device.upload(HostSlice::I64(&[1 << 60, i64::MIN, -1]))?;
    let y = device.upload(HostSlice::I64(&[(1 << 60) + 1, i64::MAX, 0]))?;
    let out = device.alloc(DType::U8, 3)?;
    device.compare(CompareOp::Less, View::whole(&x), View::whole(&y), View::whole(&out))?;
    assert_eq!(device.download(&out)?, HostVec::U8(vec![1, 1, 1]));
    device.compare(CompareOp::Equal, View::whole(&x), View::whole(&y), View::whole(&out))?;
    assert_eq!(device.download(&out)?, HostVec::U8(vec![0, 0, 0]));
    Ok(())
}

/// Selection takes `a` where the condition is anything but 0, for every dtype and also in place.
pub fn selection_takes_one_or_the_other<D: Device>(device: &D) -> Result<()> {
    for dtype in DType::ALL {
        for (seed, shape) in SHAPES.into_iter().enumerate() {
            let count: usize = shape.iter().product();
            let choice: Vec<f64> = (0..count).map(|i| [0.0, 1.0, 255.0, 0.0][i * 7 % 4]).collect();
            let a_values = draw(dtype, 1, count, 0.0, 100.0);
            let b_values = draw(dtype, 2, count, 100.0, 200.0);
            let lie = |n: usize| Lie::ALL[(seed + n) % 5];
            let condition = Placed::new(device, DType::U8, shape, lie(0), &choice)?;
            let a = Placed::new(device, dtype, shape, lie(1), &a_values)?;
            let b = Placed::new(device, dtype, shape, lie(2), &b_values)?;
            let out = Placed::output(device, dtype, shape, lie(3))?;
            device.select(condition.view(), a.view(), b.view(), out.view())?;
            let pick = |i: usize| if choice[i] != 0.0 { a_values[i] } else { b_values[i] };
            let want: Vec<f64> = (0..count).map(pick).collect();
            assert_eq!(out.values()?, want, "{dtype} {shape:?}");
            device.select(condition.view(), a.view(), b.view(), a.view())?;
            assert_eq!(a.values()?, want, "{dtype} {shape:?} over a");
        }
    }
    Ok(())
}

/// NaN in what was not selected does not come through.
pub fn what_is_not_selected_does_not_matter<D: Device>(device: &D) -> Result<()> {
    let condition = Placed::new(device, DType::U8, &[2], Lie::Whole, &[1.0, 0.0])?;
    let a = Placed::new(device, DType::F32, &[2], Lie::Whole, &[1.0, f64::NAN])?;
    let b = Placed::new(device, DType::F32, &[2], Lie::Whole, &[f64::NAN, 2.0])?;
    device.select(condition.view(), a.view(), b.view(), b.view())?;
    assert_eq!(b.values()?, [1.0, 2.0]);
    Ok(())
}

/// Operands of other shapes or dtypes are refused by every function.
pub fn functions_of_operands_that_disagree_are_refused<D: Device>(device: &D) -> Result<()> {
    let (x, _) = drawn(device, DType::F32, 1, &[6])?;
    let (matrix, _) = drawn(device, DType::F32, 2, &[2, 3])?;
    let (double, _) = drawn(device, DType::F64, 3, &[6])?;
    let bytes = Placed::new(device, DType::U8, &[6], Lie::Whole, &[1.0; 6])?;
    let (x, matrix, double, bytes) = (x.view(), matrix.view(), double.view(), bytes.view());
    let (exp, add, less) = (UnaryOp::Exp, BinaryOp::Add, CompareOp::Less);
    refused_shape("unary", device.unary(exp, matrix, x));
    refused_dtype("unary", device.unary(exp, double, x));
    refused_shape("unary_backward", device.unary_backward(exp, x, matrix, x));
    refused_dtype("unary_backward", device.unary_backward(exp, x, double, x));
    refused_shape("binary", device.binary(add, x, matrix, x));
    refused_dtype("binary", device.binary(add, x, double, x));
    refused_dtype("binary of bytes", device.binary(add, bytes, bytes, bytes));
    refused_shape("compare", device.compare(less, x, matrix, bytes));
    refused_dtype("compare", device.compare(less, x, double, bytes));
    refused_dtype("compare into floats", device.compare(less, x, x, x));
    refused_shape("select", device.select(bytes, x, matrix, x));
    refused_dtype("select", device.select(bytes, x, double, x));
    refused_dtype("select by floats", device.select(x, x, x, x));
    Ok(())
}

/// Equal inputs give equal bits.
pub fn functions_give_the_same_bits_in_every_run<D: Device>(device: &D) -> Result<()> {
    let (x, _) = drawn(device, DType::F32, 1, &[33, 1000])?;
    for (op, ..) in UNARY {
        assert_same_bits(&format!("{op:?}"), || {
            let out = Placed::output(device, DType::F32, &[33, 1000], Lie::Whole)?;
            device.unary(op, x.view(), out.view())?;
            let mut bytes = out.bytes()?;
            device.unary_backward(op, x.view(), x.view(), out.view())?;
            bytes.extend(out.bytes()?);
            Ok(bytes)
        })?;
    }
    Ok(())
}
