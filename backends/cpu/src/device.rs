//! The device: its threads, its memory, and the traffic with the host.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::available_parallelism;

use rayon::{ThreadPool, ThreadPoolBuilder};
use sneppx_contract::{
    Buffer, DType, Element, Error, HostSlice, HostVec, Memory, MemoryStats, Result,
};

use crate::buffer::CpuBuffer;
use crate::pool::Pool;
use crate::simd;

/// How a [`Cpu`] is set up.
#[derive(Clone, Debug, Default)]
pub struct CpuOptions {
    /// How many threads kernels run on; as many as the process may use if not given.
    pub threads: Option<usize>,
}

/// The CPU as a device. Clones share threads and memory.
#[derive(Clone)]
pub struct Cpu {
    shared: Arc<Shared>,
}

struct Shared {
    threads: ThreadPool,
    pool: Arc<Pool>,
}

impl Cpu {
    /// A device with its own threads and its own memory pool.
    ///
    /// # Errors
    /// `threads: Some(0)`; a system that refuses to start threads.
    pub fn new(options: CpuOptions) -> Result<Self> {
        let threads = match options.threads {
            Some(0) => {
                let reason = "a device needs at least one thread; leave it out to use all cores";
                return Err(Error::invalid("threads", 0, reason));
            }
            Some(threads) => threads,
            None => available_parallelism().map_or(1, usize::from),
        };
        let threads = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("sneppx-cpu-{index}"))
            .build()
            .map_err(|cause| Error::Device {
                device: "cpu".into(),
                detail: format!("{threads} threads could not be started: {cause}; ask for fewer"),
            })?;
        Ok(Cpu { shared: Arc::new(Shared { threads, pool: Arc::default() }) })
    }

    /// A device with `threads` threads.
    ///
    /// # Errors
    /// 0 threads; a system that refuses to start them.
    pub fn with_threads(threads: usize) -> Result<Self> {
        Cpu::new(CpuOptions { threads: Some(threads) })
    }

    /// How many threads kernels run on.
    pub fn threads(&self) -> usize {
        self.shared.threads.current_num_threads()
    }

    /// The instruction set that kernels use, as in `avx512`.
    pub fn instruction_set(&self) -> &'static str {
        simd::level().name()
    }

    /// Gives memory that is kept for reuse back to the system.
    pub fn trim(&self) {
        self.shared.pool.trim();
    }

    /// Runs `body` on the device's threads; at once if this thread is one of them.
    pub(crate) fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        self.shared.threads.install(body)
    }
}

impl fmt::Debug for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cpu").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Memory for Cpu {
    type Buffer = CpuBuffer;

    fn name(&self) -> String {
        format!("cpu ({} threads, {})", self.threads(), self.instruction_set())
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<CpuBuffer> {
        CpuBuffer::from_pool(&self.shared.pool, dtype, len).ok_or_else(|| Error::OutOfMemory {
            device: "cpu".into(),
            requested: len.saturating_mul(dtype.size()),
            live: self.memory().live_bytes,
        })
    }

    fn upload(&self, host: HostSlice<'_>) -> Result<CpuBuffer> {
        let buffer = self.alloc(host.dtype(), host.len())?;
        self.write(host, &buffer, 0)?;
        Ok(buffer)
    }

    fn write(&self, host: HostSlice<'_>, buffer: &CpuBuffer, offset: usize) -> Result<()> {
        if host.dtype() != buffer.dtype() {
            return Err(Error::dtype("write", buffer.dtype().name(), host.dtype()));
        }
        let end = offset.saturating_add(host.len());
        check_range("write", &(offset..end), buffer)?;
        match host {
            HostSlice::F32(values) => write_values(values, buffer, offset),
            HostSlice::F64(values) => write_values(values, buffer, offset),
            HostSlice::BF16(values) => write_values(values, buffer, offset),
            HostSlice::F16(values) => write_values(values, buffer, offset),
            HostSlice::U32(values) => write_values(values, buffer, offset),
            HostSlice::I64(values) => write_values(values, buffer, offset),
            HostSlice::U8(values) => write_values(values, buffer, offset),
        }
    }

    fn read(&self, buffer: &CpuBuffer, range: Range<usize>) -> Result<HostVec> {
        check_range("read", &range, buffer)?;
        Ok(match buffer.dtype() {
            DType::F32 => HostVec::F32(buffer.read::<f32>()?[range].to_vec()),
            DType::F64 => HostVec::F64(buffer.read::<f64>()?[range].to_vec()),
            DType::BF16 => HostVec::BF16(buffer.read::<half::bf16>()?[range].to_vec()),
            DType::F16 => HostVec::F16(buffer.read::<half::f16>()?[range].to_vec()),
            DType::U32 => HostVec::U32(buffer.read::<u32>()?[range].to_vec()),
            DType::I64 => HostVec::I64(buffer.read::<i64>()?[range].to_vec()),
            DType::U8 => HostVec::U8(buffer.read::<u8>()?[range].to_vec()),
            other => return Err(Error::dtype("read", "a dtype of the CPU", other)),
        })
    }

    /// Every call of this device is finished when it returns.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> MemoryStats {
        self.shared.pool.stats()
    }

    fn reset_peak(&self) {
        self.shared.pool.reset_peak();
    }

    fn enter<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        self.run(body)
    }
}

fn write_values<T: Element>(values: &[T], buffer: &CpuBuffer, offset: usize) -> Result<()> {
    buffer.write::<T>()?[offset..offset + values.len()].copy_from_slice(values);
    Ok(())
}

fn check_range(operation: &'static str, range: &Range<usize>, buffer: &CpuBuffer) -> Result<()> {
    if range.start <= range.end && range.end <= buffer.len() {
        return Ok(());
    }
    let detail = format!("{range:?} is outside a buffer of {} elements", buffer.len());
    Err(Error::shape(operation, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Cpu {
        Cpu::new(CpuOptions { threads: Some(2) }).unwrap()
    }

    #[test]
    fn no_threads_are_refused_and_two_are_two() {
        let error = Cpu::new(CpuOptions { threads: Some(0) }).unwrap_err().to_string();
        assert!(error.contains("threads = 0"), "{error}");
        assert_eq!(device().threads(), 2);
        assert!(device().name().starts_with("cpu (2 threads"));
    }

    #[test]
    fn values_go_in_and_come_out_for_every_dtype() {
        let device = device();
        for dtype in DType::ALL {
            let host = HostVec::from_f64(dtype, &[1.0, 2.0, 3.0]);
            let buffer = device.upload(host.as_slice()).unwrap();
            device.write(HostVec::from_f64(dtype, &[7.0]).as_slice(), &buffer, 1).unwrap();
            let want = HostVec::from_f64(dtype, &[1.0, 7.0, 3.0]);
            assert_eq!(device.download(&buffer).unwrap(), want);
            assert_eq!(device.read(&buffer, 1..2).unwrap(), HostVec::from_f64(dtype, &[7.0]));
        }
    }

    #[test]
    fn ranges_outside_a_buffer_and_other_dtypes_are_refused() {
        let device = device();
        let buffer = device.alloc(DType::F32, 4).unwrap();
        assert!(device.read(&buffer, 3..5).is_err());
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 3..2;
        assert!(device.read(&buffer, reversed).is_err());
        assert!(device.write(HostSlice::F32(&[1.0]), &buffer, 4).is_err());
        assert!(device.write(HostSlice::F32(&[1.0]), &buffer, usize::MAX).is_err());
        assert!(device.write(HostSlice::F64(&[1.0]), &buffer, 0).is_err());
    }

    #[test]
    fn more_memory_than_can_be_counted_is_an_error() {
        let error = device().alloc(DType::F64, usize::MAX / 4).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    }
}
