//! What the required kernels compute, against plain loops over `f64`, on views of every kind.

use sneppx_contract::{
    BinaryOp, CompareOp, DType, Distribution, Error, HostSlice, HostVec, Kernels, Layout, Memory,
    RandomKey, ReduceKind, Shape, Store, UnaryOp, View, rng,
};
use sneppx_cpu::{Cpu, CpuBuffer, CpuOptions};

fn device() -> Cpu {
    Cpu::new(CpuOptions { threads: Some(2) }).unwrap()
}

/// Small whole numbers: exact in every dtype, and so are sums and products of a few.
fn pattern(device: &Cpu, dtype: DType, len: usize) -> CpuBuffer {
    let values: Vec<f64> = (0..len).map(|i| ((i * 7 + 3) % 11) as f64 - 5.0).collect();
    device.upload(HostVec::from_f64(dtype, &values).as_slice()).unwrap()
}

fn values(device: &Cpu, view: View<'_, CpuBuffer>) -> Vec<f64> {
    let all = device.download(view.buffer).unwrap().to_f64();
    (0..view.numel()).map(|index| all[view.layout.position(index)]).collect()
}

fn contiguous(shape: &[usize]) -> Layout {
    Layout::contiguous(Shape::new(shape).unwrap())
}

/// Views of shape `[6, 5, 8]` in buffers of 500 elements.
fn views() -> Vec<Layout> {
    vec![
        contiguous(&[6, 5, 8]),
        contiguous(&[6, 5, 8]).with_offset(13),
        contiguous(&[8, 5, 6]).permute(&[2, 1, 0]).unwrap(),
        contiguous(&[5, 6, 8]).permute(&[1, 0, 2]).unwrap(),
        Layout::strided(&[6, 5, 8], &[80, 16, 2], 1).unwrap(),
        Layout::strided(&[6, 5, 8], &[45, 9, 1], 2).unwrap(),
    ]
}

fn broadcasts() -> Vec<Layout> {
    let shape = Shape::new(&[6, 5, 8]).unwrap();
    let from = |shape: &[usize]| contiguous(shape);
    let small = [from(&[8]), from(&[5, 1]), from(&[6, 1, 8]), from(&[1])];
    small.iter().map(|layout| layout.broadcast_to(&shape).unwrap()).collect()
}

#[test]
fn copies_between_all_kinds_of_views() {
    let device = device();
    for dtype in DType::ALL {
        let x = pattern(&device, dtype, 500);
        for from in views().into_iter().chain(broadcasts()) {
            for to in views() {
                let out = device.alloc(dtype, 500).unwrap();
                device.fill(1.0, View::whole(&out)).unwrap();
                device.copy(View::new(&x, from), View::new(&out, to)).unwrap();
                let want = values(&device, View::new(&x, from));
                assert_eq!(values(&device, View::new(&out, to)), want, "{from:?} to {to:?}");
                let written: Vec<usize> = (0..240).map(|index| to.position(index)).collect();
                let all = device.download(&out).unwrap().to_f64();
                let untouched = (0..500).filter(|place| !written.contains(place));
                assert!(untouched.map(|place| all[place]).all(|v| v == 1.0), "{to:?} spilled");
            }
        }
    }
}

#[test]
fn large_transposes_and_pieces_of_heads() {
    let device = device();
    let x = pattern(&device, DType::F32, 3 * 70 * 131);
    for order in [[0, 2, 1], [2, 1, 0], [1, 0, 2], [1, 2, 0], [2, 0, 1]] {
        let turned = contiguous(&[3, 70, 131]).permute(&order).unwrap();
        let out = device.alloc(DType::F32, 3 * 70 * 131).unwrap();
        let to = Layout::contiguous(*turned.shape());
        device.copy(View::new(&x, turned), View::new(&out, to)).unwrap();
        assert_eq!(
            values(&device, View::new(&out, to)),
            values(&device, View::new(&x, turned)),
            "{order:?}"
        );
    }
}

#[test]
fn arithmetic_on_views_and_broadcasts() {
    let device = device();
    let dtypes = [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64];
    for dtype in dtypes {
        let a = pattern(&device, dtype, 500);
        let b = pattern(&device, dtype, 450);
        for left in views() {
            for right in views().into_iter().take(4).chain(broadcasts()) {
                let to = views()[2];
                let out = device.alloc(dtype, 500).unwrap();
                let (a_view, b_view) = (View::new(&a, left), View::new(&b, right));
                device.binary(BinaryOp::Multiply, a_view, b_view, View::new(&out, to)).unwrap();
                let pairs = values(&device, a_view).into_iter().zip(values(&device, b_view));
                let want: Vec<f64> = pairs.map(|(a, b)| a * b).collect();
                assert_eq!(values(&device, View::new(&out, to)), want, "{left:?} {right:?}");
            }
        }
    }
}

#[test]
fn integers_wrap_and_division_by_zero_gives_zero() {
    let device = device();
    let a = device.upload(HostSlice::I64(&[i64::MAX, i64::MIN, 7, 7])).unwrap();
    let b = device.upload(HostSlice::I64(&[1, -1, 0, 2])).unwrap();
    let out = device.alloc(DType::I64, 4).unwrap();
    let run = |op| {
        device.binary(op, View::whole(&a), View::whole(&b), View::whole(&out)).unwrap();
        device.download(&out).unwrap()
    };
    assert_eq!(run(BinaryOp::Add), HostVec::I64(vec![i64::MIN, i64::MAX, 7, 9]));
    assert_eq!(run(BinaryOp::Divide), HostVec::I64(vec![i64::MAX, i64::MIN, 0, 3]));
    assert_eq!(run(BinaryOp::Maximum), HostVec::I64(vec![i64::MAX, -1, 7, 7]));
    device.unary(UnaryOp::Square, View::whole(&b), View::whole(&out)).unwrap();
    assert_eq!(device.download(&out).unwrap(), HostVec::I64(vec![1, 1, 0, 4]));
    assert!(device.unary(UnaryOp::Exp, View::whole(&b), View::whole(&out)).is_err());
    let bytes = device.alloc(DType::U8, 4).unwrap();
    let view = View::whole(&bytes);
    assert!(matches!(device.binary(BinaryOp::Add, view, view, view), Err(Error::DType { .. })));
}

#[test]
fn comparisons_and_selection() {
    let device = device();
    let a = device.upload(HostSlice::F32(&[1.0, 2.0, f32::NAN])).unwrap();
    let b = device.upload(HostSlice::F32(&[2.0, 2.0, 2.0])).unwrap();
    let flags = device.alloc(DType::U8, 3).unwrap();
    let cases = [
        (CompareOp::Equal, [0, 1, 0]),
        (CompareOp::NotEqual, [1, 0, 1]),
        (CompareOp::Less, [1, 0, 0]),
        (CompareOp::LessEqual, [1, 1, 0]),
        (CompareOp::Greater, [0, 0, 0]),
        (CompareOp::GreaterEqual, [0, 1, 0]),
    ];
    for (op, want) in cases {
        device.compare(op, View::whole(&a), View::whole(&b), View::whole(&flags)).unwrap();
        assert_eq!(device.download(&flags).unwrap(), HostVec::U8(want.to_vec()), "{op:?}");
    }
    device.write(HostSlice::U8(&[0, 7, 0]), &flags, 0).unwrap();
    let (a_view, b_view) = (View::whole(&a), View::whole(&b));
    device.select(View::whole(&flags), a_view, b_view, a_view).unwrap();
    assert_eq!(device.download(&a).unwrap(), HostVec::F32(vec![2.0, 2.0, 2.0]));
}

#[test]
fn reductions_over_any_dimensions_of_any_view() {
    let device = device();
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64] {
        let x = pattern(&device, dtype, 500);
        for from in views().into_iter().chain(broadcasts()) {
            for keep in 0..8usize {
                let shape: Vec<usize> =
                    (0..3).map(|d| if keep >> d & 1 == 1 { [6, 5, 8][d] } else { 1 }).collect();
                let to = contiguous(&shape);
                let x_view = View::new(&x, from);
                for kind in [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min] {
                    let out = device.alloc(dtype, to.numel()).unwrap();
                    device.reduce(kind, x_view, Store::Overwrite, View::new(&out, to)).unwrap();
                    let want = reduced(&values(&device, x_view), kind, to);
                    let got = values(&device, View::new(&out, to));
                    assert_eq!(got, want, "{kind:?} {dtype} {from:?} to {shape:?}");
                }
            }
        }
    }
}

fn reduced(x: &[f64], kind: ReduceKind, to: Layout) -> Vec<f64> {
    let spread = to.broadcast_to(&Shape::new(&[6, 5, 8]).unwrap()).unwrap();
    let mut want: Vec<Option<f64>> = vec![None; to.numel()];
    for (index, &value) in x.iter().enumerate() {
        let slot = &mut want[spread.position(index)];
        *slot = Some(match (*slot, kind) {
            (None, _) => value,
            (Some(old), ReduceKind::Sum) => old + value,
            (Some(old), ReduceKind::Max) => old.max(value),
            (Some(old), ReduceKind::Min) => old.min(value),
        });
    }
    want.into_iter().map(Option::unwrap).collect()
}

#[test]
fn sums_are_added_where_asked_and_empty_ones_are_zero() {
    let device = device();
    let x = device.upload(HostSlice::F32(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    let out = device.upload(HostSlice::F32(&[10.0, 20.0])).unwrap();
    let (from, to) = (contiguous(&[2, 2]), contiguous(&[1, 2]));
    let (x_view, out_view) = (View::new(&x, from), View::new(&out, to));
    device.reduce(ReduceKind::Sum, x_view, Store::Add, out_view).unwrap();
    assert_eq!(device.download(&out).unwrap(), HostVec::F32(vec![14.0, 26.0]));
    let nothing = View::new(&x, contiguous(&[0, 2]));
    device.reduce(ReduceKind::Sum, nothing, Store::Add, out_view).unwrap();
    assert_eq!(device.download(&out).unwrap(), HostVec::F32(vec![14.0, 26.0]));
    device.reduce(ReduceKind::Sum, nothing, Store::Overwrite, out_view).unwrap();
    assert_eq!(device.download(&out).unwrap(), HostVec::F32(vec![0.0, 0.0]));
    assert!(device.reduce(ReduceKind::Max, nothing, Store::Overwrite, out_view).is_err());
}

#[test]
fn extremes_of_nan_are_nan() {
    let device = device();
    for at in [0, 63, 64, 100, 1030, 4999] {
        let mut values = vec![1f32; 5000];
        values[at] = f32::NAN;
        let x = device.upload(HostSlice::F32(&values)).unwrap();
        let out = device.alloc(DType::F32, 1).unwrap();
        for kind in [ReduceKind::Max, ReduceKind::Min] {
            device.reduce(kind, View::whole(&x), Store::Overwrite, View::whole(&out)).unwrap();
            assert!(device.download(&out).unwrap().to_f64()[0].is_nan(), "{kind:?} at {at}");
        }
    }
}

#[test]
fn a_long_sum_in_f32_loses_little() {
    let device = device();
    let x = device.alloc(DType::F32, 1_000_000).unwrap();
    device.fill(0.1, View::whole(&x)).unwrap();
    let out = device.alloc(DType::F32, 1).unwrap();
    device.reduce(ReduceKind::Sum, View::whole(&x), Store::Overwrite, View::whole(&out)).unwrap();
    let got = device.download(&out).unwrap().to_f64()[0];
    let want = f64::from(0.1f32) * 1e6;
    assert!((got - want).abs() <= want * 1e-6, "{got}, want {want}");
}

#[test]
fn products_of_views_in_every_float_dtype() {
    let device = device();
    for dtype in DType::FLOATS {
        for (batch, m, k, n) in [(1, 3, 4, 5), (2, 17, 9, 33), (3, 1, 8, 6), (2, 6, 8, 1)] {
            for turned in 0..8 {
                check_product(&device, dtype, [batch, m, k, n], turned);
            }
        }
    }
}

fn check_product(device: &Cpu, dtype: DType, [batch, m, k, n]: [usize; 4], turned: usize) {
    let operand = |rows: usize, columns: usize, bit: usize| match turned >> bit & 1 {
        0 => contiguous(&[batch, rows, columns]),
        _ => contiguous(&[batch, columns, rows]).permute(&[0, 2, 1]).unwrap(),
    };
    let (a_layout, b_layout) = (operand(m, k, 0), operand(k, n, 1));
    let shared = contiguous(&[k, n]).broadcast_to(&Shape::new(&[batch, k, n]).unwrap()).unwrap();
    let a = pattern(device, dtype, batch * m * k);
    let b = pattern(device, dtype, batch * k * n);
    for b_layout in [b_layout, shared] {
        for (alpha, beta) in [(1.0, 0.0), (2.0, 0.0), (0.5, 1.0), (1.0, -2.0)] {
            let out = pattern(device, dtype, batch * m * n);
            let (a, b) = (View::new(&a, a_layout), View::new(&b, b_layout));
            let out = View::new(&out, operand(m, n, 2));
            let old = values(device, out);
            device.matmul(alpha, a, b, beta, out).unwrap();
            let (a, b) = (values(device, a), values(device, b));
            for (index, got) in values(device, out).into_iter().enumerate() {
                let (matrix, row, column) = (index / (m * n), index / n % m, index % n);
                let sum: f64 = (0..k)
                    .map(|i| a[(matrix * m + row) * k + i] * b[(matrix * k + i) * n + column])
                    .sum();
                // Within 256 every whole and half number is exact in the 16-bit floats.
                let want = alpha * sum + beta * old[index];
                let slack = if want.abs() <= 128.0 { 0.0 } else { want.abs() / 128.0 };
                let slack = if dtype.size() == 2 { slack } else { 0.0 };
                assert!((got - want).abs() <= slack, "{dtype} {index}: {got}, want {want}");
            }
        }
    }
}

#[test]
fn beta_zero_does_not_read_and_an_empty_inner_dimension_leaves_beta_times_out() {
    let device = device();
    for dtype in DType::FLOATS {
        let nan = HostVec::from_f64(dtype, &[f64::NAN; 4]);
        let out = device.upload(nan.as_slice()).unwrap();
        let ones = device.upload(HostVec::from_f64(dtype, &[1.0; 4]).as_slice()).unwrap();
        let square = contiguous(&[2, 2]);
        let (a, to) = (View::new(&ones, square), View::new(&out, square));
        device.matmul(1.0, a, a, 0.0, to).unwrap();
        assert_eq!(device.download(&out).unwrap().to_f64(), [2.0; 4]);
        device.write(nan.as_slice(), &out, 0).unwrap();
        device.scaled_add(3.0, a, 0.0, to).unwrap();
        assert_eq!(device.download(&out).unwrap().to_f64(), [3.0; 4]);
        let (tall, flat) = (contiguous(&[2, 0]), contiguous(&[0, 2]));
        let (tall, flat) = (View::new(&ones, tall), View::new(&ones, flat));
        device.matmul(1.0, tall, flat, 2.0, to).unwrap();
        assert_eq!(device.download(&out).unwrap().to_f64(), [6.0; 4]);
        device.matmul(1.0, tall, flat, 0.0, to).unwrap();
        assert_eq!(device.download(&out).unwrap().to_f64(), [0.0; 4]);
    }
}

#[test]
fn rows_are_gathered_and_added_in_order() {
    let device = device();
    let table = pattern(&device, DType::F32, 4 * 3);
    let picks = device.upload(HostSlice::U32(&[3, 0, 3])).unwrap();
    let rows = device.alloc(DType::F32, 9).unwrap();
    let (t, r) = (View::new(&table, contiguous(&[4, 3])), View::new(&rows, contiguous(&[3, 3])));
    device.index_select(t, View::whole(&picks), r).unwrap();
    let all = device.download(&table).unwrap().to_f64();
    let want = [&all[9..12], &all[0..3], &all[9..12]].concat();
    assert_eq!(device.download(&rows).unwrap().to_f64(), want);

    // Summed in f32: adding 2^-8 to 1 in bf16 would round each time and stay at 1.
    let table = device.upload(HostVec::from_f64(DType::BF16, &[0.0, 1.0]).as_slice()).unwrap();
    let small = device.upload(HostVec::from_f64(DType::BF16, &[0.00390625; 3]).as_slice()).unwrap();
    let ones = device.upload(HostSlice::I64(&[1, 1, 1])).unwrap();
    device.index_add(View::whole(&ones), View::whole(&small), View::whole(&table)).unwrap();
    assert_eq!(device.download(&table).unwrap().to_f64(), [0.0, 1.015625]);
}

#[test]
fn an_index_outside_the_table_is_named_and_nothing_is_written() {
    let device = device();
    let table = pattern(&device, DType::F32, 12);
    let rows = pattern(&device, DType::F32, 6);
    let (t, r) = (View::new(&table, contiguous(&[4, 3])), View::new(&rows, contiguous(&[2, 3])));
    for (wrong, at) in [(HostVec::I64(vec![0, -1]), -1), (HostVec::U32(vec![1, 4]), 4)] {
        let picks = device.upload(wrong.as_slice()).unwrap();
        let before = (device.download(&table).unwrap(), device.download(&rows).unwrap());
        for result in [
            device.index_select(t, View::whole(&picks), r),
            device.index_add(View::whole(&picks), r, t),
        ] {
            let Err(Error::IndexOutOfRange { index, position, bound, .. }) = result else {
                panic!("{at} was accepted");
            };
            assert_eq!((index, position, bound), (at, 1, 4));
        }
        let after = (device.download(&table).unwrap(), device.download(&rows).unwrap());
        assert_eq!(before, after);
    }
}

#[test]
fn random_numbers_are_those_of_the_contract_in_every_float_dtype() {
    let device = device();
    let key = RandomKey::from_seed(5);
    let uniform = Distribution::Uniform { low: -1.0, high: 3.0 };
    let want: Vec<f64> =
        (0..40_000).map(|i| -1.0 + 4.0 * f64::from(rng::uniform(key.word(7 + i)))).collect();
    for dtype in DType::FLOATS {
        let out = device.alloc(dtype, 40_000).unwrap();
        // Numbered in row-major order of the view, whatever lies next to what in memory.
        let turned = contiguous(&[200, 200]).permute(&[1, 0]).unwrap();
        device.random(uniform, key, 7, View::new(&out, turned)).unwrap();
        let got = values(&device, View::new(&out, turned));
        assert_eq!(got, HostVec::from_f64(dtype, &want).to_f64(), "{dtype}");
    }
}
