//! What this machine can do at best, measured, and how much memory the process took.

use std::time::Instant;

use sneppx_contract::{DType, Device, Distribution, RandomKey, Result};

use crate::tensor::Tensor;

/// Floating-point operations per second of plain matrix products `[rows, dim] · [dim, columns]`:
/// the best of several, about a tenth of a second in all.
///
/// # Errors
/// Whatever the device reports.
pub fn measure_product_rate<D: Device>(
    device: &D,
    dtype: DType,
    [rows, dim, columns]: [usize; 3],
) -> Result<f64> {
    let key = RandomKey::from_seed(0).with_text("product rate");
    let normal = Distribution::Normal { mean: 0.0, deviation: 1.0 };
    let a = Tensor::random(device, dtype, &[rows, dim], normal, key)?;
    let b = Tensor::random(device, dtype, &[dim, columns], normal, key.with_number(1))?;
    let out = a.matmul(&b)?;
    let operations = 2.0 * rows as f64 * dim as f64 * columns as f64;
    let started = Instant::now();
    let mut best = f64::INFINITY;
    while best.is_infinite() || started.elapsed().as_secs_f64() < 0.1 {
        let before = Instant::now();
        device.matmul(1.0, a.view(), b.view(), 0.0, out.view())?;
        device.synchronize()?;
        best = best.min(before.elapsed().as_secs_f64());
    }
    Ok(operations / best)
}

/// The most bytes this process had resident so far, where the system tells (Linux).
pub fn resident_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
