//! Rates of the required kernels at the sizes of two models: `cargo bench -p sneppx-cpu`.
//!
//! Products are printed in GFLOP/s, everything else in GB/s of memory read and written. Arguments
//! choose lines whose name contains one of them. Each number is the best of several runs.

use std::time::{Duration, Instant};

use sneppx_contract::{
    Activation, BinaryOp, DType, Kernels, Layout, Memory, ReduceKind, Result, Shape, Store,
    UnaryOp, View,
};
use sneppx_cpu::{Cpu, CpuBuffer, CpuOptions};

/// Name, `[M, K, N]`, and whether the left and the right operand are transposed views.
const PRODUCTS: [(&str, [usize; 3], bool, bool); 18] = [
    ("tutorial qkv", [2048, 256, 768], false, false),
    ("tutorial qkv, stored transposed", [2048, 256, 768], false, true),
    ("tutorial up", [2048, 256, 1024], false, false),
    ("tutorial up, stored transposed", [2048, 256, 1024], false, true),
    ("tutorial down", [2048, 1024, 256], false, false),
    ("tutorial down, stored transposed", [2048, 1024, 256], false, true),
    ("tutorial head", [2048, 256, 800], false, false),
    ("tutorial head, stored transposed", [2048, 256, 800], false, true),
    ("tutorial qkv gradient", [256, 2048, 768], true, false),
    ("tutorial qkv gradient, transposed", [768, 2048, 256], true, false),
    ("tutorial up gradient", [1024, 2048, 256], true, false),
    ("tutorial head gradient", [800, 2048, 256], true, false),
    ("gpt2 up", [512, 768, 3072], false, false),
    ("gpt2 up, stored transposed", [512, 768, 3072], false, true),
    ("gpt2 up gradient", [3072, 512, 768], true, false),
    ("gpt2 head, stored transposed", [512, 768, 50304], false, true),
    ("gpt2 head to input", [512, 50304, 768], false, false),
    ("gpt2 head gradient", [50304, 512, 768], true, false),
];

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let devices = [1, 2].map(|threads| Cpu::new(CpuOptions { threads: Some(threads) }));
    let devices = [devices[0].clone()?, devices[1].clone()?];
    println!("{:<40} {:>10} {:>10}", devices[0].instruction_set(), "1 thread", "2 threads");
    for (name, sizes, turn_a, turn_b) in PRODUCTS {
        if wanted(name) {
            print_rates(name, "GFLOP/s", &devices, |device| product(device, sizes, turn_a, turn_b));
        }
    }
    for (name, run) in OTHERS {
        if wanted(name) {
            print_rates(name, "GB/s", &devices, run);
        }
    }
    Ok(())
}

fn print_rates(
    name: &str,
    unit: &str,
    devices: &[Cpu; 2],
    run: impl Fn(&Cpu) -> Result<f64> + Sync,
) {
    let rate = |device: &Cpu| device.enter(|| run(device)).unwrap_or(f64::NAN);
    println!("{name:<40} {:>10.1} {:>10.1} {unit}", rate(&devices[0]), rate(&devices[1]));
}

fn shaped<'a>(buffer: &'a CpuBuffer, shape: &[usize], turn: bool) -> Result<View<'a, CpuBuffer>> {
    let layout = Layout::contiguous(Shape::new(shape)?);
    Ok(View::new(buffer, if turn { layout.permute(&[1, 0])? } else { layout }))
}

fn filled(device: &Cpu, len: usize) -> Result<CpuBuffer> {
    let buffer = device.alloc(DType::F32, len)?;
    device.fill(0.5, View::whole(&buffer))?;
    Ok(buffer)
}

/// Units of work (`amount` per call) a second, in thousands of millions.
fn rate(amount: usize, run: impl Fn() -> Result<()>) -> Result<f64> {
    run()?;
    let (start, mut best) = (Instant::now(), Duration::MAX);
    for call in 0..200 {
        let before = Instant::now();
        run()?;
        best = best.min(before.elapsed());
        if call >= 5 && start.elapsed() > Duration::from_millis(400) {
            break;
        }
    }
    Ok(amount as f64 / best.as_secs_f64() / 1e9)
}

fn product(device: &Cpu, [m, k, n]: [usize; 3], turn_a: bool, turn_b: bool) -> Result<f64> {
    let (a, b, out) = (filled(device, m * k)?, filled(device, k * n)?, filled(device, m * n)?);
    let a = shaped(&a, &if turn_a { [k, m] } else { [m, k] }, turn_a)?;
    let b = shaped(&b, &if turn_b { [n, k] } else { [k, n] }, turn_b)?;
    let out = shaped(&out, &[m, n], false)?;
    rate(2 * m * k * n, || device.matmul(1.0, a, b, 0.0, out))
}

type Run = fn(&Cpu) -> Result<f64>;

const ROWS: usize = 2048;
const COLUMNS: usize = 1024;
const BYTES: usize = 4 * ROWS * COLUMNS;

const OTHERS: [(&str, Run); 10] = [
    ("fill", |device| {
        let out = filled(device, ROWS * COLUMNS)?;
        rate(BYTES, || device.fill(0.0, View::whole(&out)))
    }),
    ("copy", |device| pair(device, |x, out| device.copy(x, out))),
    ("copy, transposed", |device| {
        pair(device, |x, out| {
            let turned = Layout::contiguous(Shape::new(&[COLUMNS, ROWS])?).permute(&[1, 0])?;
            device.copy(View::new(x.buffer, turned), out)
        })
    }),
    ("copy, heads", |device| {
        pair(device, |x, out| {
            let heads =
                Layout::contiguous(Shape::new(&[32, 64, 16, 64])?).permute(&[0, 2, 1, 3])?;
            let to = Layout::contiguous(*heads.shape());
            device.copy(View::new(x.buffer, heads), View::new(out.buffer, to))
        })
    }),
    ("add in place", |device| pair(device, |x, out| device.binary(BinaryOp::Add, out, x, out))),
    ("add a row", |device| {
        let row = filled(device, COLUMNS)?;
        pair(device, |x, out| {
            let row = View::new(&row, Layout::flat(0, COLUMNS).broadcast_to(x.layout.shape())?);
            device.binary(BinaryOp::Add, x, row, out)
        })
    }),
    ("exp", |device| pair(device, |x, out| device.unary(UnaryOp::Exp, x, out))),
    ("gelu, tanh form", |device| {
        let gelu = UnaryOp::Activation(Activation::GeluTanh);
        pair(device, |x, out| device.unary(gelu, x, out))
    }),
    ("sum over columns", |device| sum(device, &[ROWS, 1])),
    ("sum over rows", |device| sum(device, &[1, COLUMNS])),
];

fn pair(
    device: &Cpu,
    run: impl Fn(View<'_, CpuBuffer>, View<'_, CpuBuffer>) -> Result<()>,
) -> Result<f64> {
    let (x, out) = (filled(device, ROWS * COLUMNS)?, filled(device, ROWS * COLUMNS)?);
    let shape = [ROWS, COLUMNS];
    let (x, out) = (shaped(&x, &shape, false)?, shaped(&out, &shape, false)?);
    rate(2 * BYTES, || run(x, out))
}

fn sum(device: &Cpu, to: &[usize]) -> Result<f64> {
    let (x, out) = (filled(device, ROWS * COLUMNS)?, filled(device, to.iter().product())?);
    let (x, out) = (shaped(&x, &[ROWS, COLUMNS], false)?, shaped(&out, to, false)?);
    rate(BYTES, || device.reduce(ReduceKind::Sum, x, Store::Overwrite, out))
}
