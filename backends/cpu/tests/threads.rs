//! The number of threads changes no bit of any kernel.

use sneppx_contract::{
    Activation, BinaryOp, CompareOp, DType, Distribution, HostVec, Kernels, Layout, Memory,
    RandomKey, ReduceKind, Result, Shape, Store, UnaryOp, View,
};
use sneppx_cpu::{Cpu, CpuBuffer, CpuOptions};

/// Runs `body` on devices of one, two, three and five threads and compares what they give.
fn same_bits(what: &str, body: impl Fn(&Cpu) -> Result<CpuBuffer>) {
    let run = |threads| {
        let device = Cpu::new(CpuOptions { threads: Some(threads) }).unwrap();
        let out = body(&device).unwrap_or_else(|error| panic!("{what}: {error}"));
        device.download(&out).unwrap()
    };
    let want = run(1);
    for threads in [2, 3, 5] {
        let got = run(threads);
        assert!(got.as_slice().bytes() == want.as_slice().bytes(), "{what} on {threads} threads");
    }
}

fn numbers(device: &Cpu, dtype: DType, len: usize, stream: u64) -> CpuBuffer {
    let buffer = device.alloc(dtype, len).unwrap();
    let spread = Distribution::Uniform { low: -2.0, high: 2.0 };
    device.random(spread, RandomKey::from_seed(stream), 0, View::whole(&buffer)).unwrap();
    buffer
}

fn shaped<'a>(buffer: &'a CpuBuffer, shape: &[usize]) -> View<'a, CpuBuffer> {
    View::new(buffer, Layout::contiguous(Shape::new(shape).unwrap()))
}

const ODD: usize = 100_003;

#[test]
fn random_fill_copy_and_cast() {
    for dtype in DType::FLOATS {
        same_bits("random", |device| Ok(numbers(device, dtype, ODD, 1)));
        same_bits("fill", |device| {
            let out = device.alloc(dtype, ODD)?;
            device.fill(0.1, View::whole(&out))?;
            Ok(out)
        });
        same_bits("copy", |device| {
            let x = numbers(device, dtype, 301 * 307, 2);
            let out = device.alloc(dtype, 301 * 307)?;
            let turned = shaped(&x, &[301, 307]).layout.permute(&[1, 0])?;
            device.copy(View::new(&x, turned), shaped(&out, &[307, 301]))?;
            Ok(out)
        });
        same_bits("cast", |device| {
            let x = numbers(device, dtype, ODD, 3);
            let out = device.alloc(DType::BF16, ODD)?;
            device.cast(View::whole(&x), View::whole(&out))?;
            Ok(out)
        });
    }
}

#[test]
fn elementwise_functions_and_their_derivatives() {
    let ops = [
        UnaryOp::Exp,
        UnaryOp::Tanh,
        UnaryOp::Activation(Activation::Gelu),
        UnaryOp::Activation(Activation::GeluTanh),
        UnaryOp::Activation(Activation::Silu),
    ];
    for dtype in DType::FLOATS {
        for op in ops {
            same_bits("unary", |device| {
                let x = numbers(device, dtype, ODD, 4);
                device.unary(op, View::whole(&x), View::whole(&x))?;
                Ok(x)
            });
            same_bits("unary_backward", |device| {
                let x = numbers(device, dtype, ODD, 4);
                let dy = numbers(device, dtype, ODD, 5);
                device.unary_backward(op, View::whole(&x), View::whole(&dy), View::whole(&dy))?;
                Ok(dy)
            });
        }
    }
}

#[test]
fn arithmetic_comparison_and_selection() {
    same_bits("binary", |device| {
        let x = numbers(device, DType::F32, 701 * 97, 6);
        let row = numbers(device, DType::F32, 97, 7);
        let rows = shaped(&row, &[97]).layout.broadcast_to(&Shape::new(&[701, 97])?)?;
        let x_view = shaped(&x, &[701, 97]);
        device.binary(BinaryOp::Divide, x_view, View::new(&row, rows), x_view)?;
        Ok(x)
    });
    same_bits("scaled_add", |device| {
        let (x, out) = (numbers(device, DType::BF16, ODD, 6), numbers(device, DType::BF16, ODD, 7));
        device.scaled_add(0.3, View::whole(&x), 0.7, View::whole(&out))?;
        Ok(out)
    });
    same_bits("compare and select", |device| {
        let (a, b) = (numbers(device, DType::F32, ODD, 8), numbers(device, DType::F32, ODD, 9));
        let less = device.alloc(DType::U8, ODD)?;
        device.compare(CompareOp::Less, View::whole(&a), View::whole(&b), View::whole(&less))?;
        let (a_view, b_view) = (View::whole(&a), View::whole(&b));
        device.select(View::whole(&less), a_view, b_view, a_view)?;
        Ok(a)
    });
}

#[test]
fn reductions() {
    let cases: [(&[usize], &[usize]); 6] = [
        (&[517, 771], &[517, 1]),
        (&[517, 771], &[1, 771]),
        (&[40_003, 3], &[1, 3]),
        (&[7, 513, 65], &[7, 1, 65]),
        (&[7, 513, 65], &[1, 513, 1]),
        (&[300_001], &[1]),
    ];
    for (from, to) in cases {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            for kind in [ReduceKind::Sum, ReduceKind::Max] {
                same_bits("reduce", |device| {
                    let x = numbers(device, dtype, from.iter().product(), 10);
                    let out = device.alloc(dtype, to.iter().product())?;
                    device.reduce(kind, shaped(&x, from), Store::Overwrite, shaped(&out, to))?;
                    Ok(out)
                });
            }
        }
    }
}

#[test]
fn products() {
    let sizes = [
        (1, 7, 5, 3),
        (1, 65, 300, 65),
        (1, 129, 777, 333),
        (1, 2048, 256, 256),
        (1, 333, 2048, 97),
        (1, 96, 1000, 1000),
        (1, 1, 768, 5003),
        (1, 5003, 768, 1),
        (1, 47, 600, 5003),
        (1, 3, 600, 5003),
        (2, 200, 130, 310),
        (24, 33, 17, 65),
        (5, 1, 64, 300),
    ];
    for (batch, m, k, n) in sizes {
        for (turn_a, turn_b) in [(false, false), (false, true), (true, false), (true, true)] {
            // The cut is the same for every dtype; one form of the others is enough.
            let others = if turn_b && !turn_a { &[DType::F64, DType::BF16][..] } else { &[] };
            for &dtype in [DType::F32].iter().chain(others) {
                let what = format!("{batch} x [{m}, {k}]·[{k}, {n}] {turn_a} {turn_b} {dtype}");
                same_bits(&what, |device| product(device, dtype, (batch, m, k, n), turn_a, turn_b));
            }
        }
    }
}

fn product(
    device: &Cpu,
    dtype: DType,
    (batch, m, k, n): (usize, usize, usize, usize),
    turn_a: bool,
    turn_b: bool,
) -> Result<CpuBuffer> {
    let operand = |stream, rows, columns, turn: bool| {
        let buffer = numbers(device, dtype, batch * rows * columns, stream);
        let layout = match turn {
            true => shaped(&buffer, &[batch, columns, rows]).layout.permute(&[0, 2, 1]).unwrap(),
            false => shaped(&buffer, &[batch, rows, columns]).layout,
        };
        (buffer, layout)
    };
    let (a, a_layout) = operand(11, m, k, turn_a);
    let (b, b_layout) = operand(12, k, n, turn_b);
    let out = numbers(device, dtype, batch * m * n, 13);
    let (a, b) = (View::new(&a, a_layout), View::new(&b, b_layout));
    device.matmul(0.7, a, b, 1.0, shaped(&out, &[batch, m, n]))?;
    Ok(out)
}

#[test]
fn rows_by_index() {
    for dtype in [DType::F32, DType::BF16] {
        same_bits("index_select and index_add", |device| {
            let table = numbers(device, dtype, 211 * 1500, 14);
            let picks: Vec<i64> = (0..977).map(|i| (i * i) % 211).collect();
            let picks = device.upload(HostVec::I64(picks).as_slice())?;
            let rows = device.alloc(dtype, 977 * 1500)?;
            let (table_view, rows_view) =
                (shaped(&table, &[211, 1500]), shaped(&rows, &[977, 1500]));
            device.index_select(table_view, View::whole(&picks), rows_view)?;
            device.index_add(View::whole(&picks), rows_view, table_view)?;
            Ok(table)
        });
    }
}
