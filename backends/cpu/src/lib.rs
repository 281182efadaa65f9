//! The CPU device of Sneppx.
//!
//! [`Cpu`] owns a thread pool and a pool of memory; clones share both. Kernels are plain loops,
//! compiled once per instruction set and chosen when the first of them runs; products go through
//! the gemm crate.
//!
//! Equal inputs give equal bits, whatever the number of threads: work is cut at borders that
//! depend on sizes alone, and no two threads add into one place. Another instruction set may differ
//! in the last bits, because it fuses a multiplication with an addition where it can.
//!
//! ```
//! use sneppx_contract::{BinaryOp, DType, HostSlice, HostVec, Kernels, Memory, View};
//! use sneppx_cpu::{Cpu, CpuOptions};
//!
//! let device = Cpu::new(CpuOptions::default())?;
//! let x = device.upload(HostSlice::F32(&[1.0, 2.0, 3.0]))?;
//! let sum = device.alloc(DType::F32, 3)?;
//! device.binary(BinaryOp::Add, View::whole(&x), View::whole(&x), View::whole(&sum))?;
//! assert_eq!(device.download(&sum)?, HostVec::F32(vec![2.0, 4.0, 6.0]));
//! # Ok::<(), sneppx_contract::Error>(())
//! ```
//!
//! Reading order: `pool` and `buffer` (memory), `operands` (who may touch it), `parallel` and
//! `simd` (how loops run), `number`, `element` and `math` (what they compute on), then one file
//! per family.

mod activation;
mod attention;
mod attention_backward;
mod attention_blocks;
mod bias_activation;
mod blocks;
mod buffer;
mod column_sums;
mod copy;
mod device;
mod dropout;
mod element;
mod elementwise;
mod fold;
mod index;
mod kernels;
mod lanes;
mod loss;
mod map;
mod math;
mod matmul;
mod norm;
mod number;
mod operands;
mod optim;
mod parallel;
mod pool;
mod products;
mod random;
mod reduce;
mod rotary;
mod rows;
mod shared;
mod simd;
mod softmax;
mod sums;
mod unary;

pub use buffer::{CpuBuffer, ReadGuard, WriteGuard};
pub use device::{Cpu, CpuOptions};
