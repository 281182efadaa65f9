//! The CPU device keeps the contract.

use sneppx_cpu::Cpu;

sneppx_contract::device_conformance!("cpu", Cpu::with_threads(2));
