//! The backends of this build, and the one that leaf programs use.
//!
//! This is the only file that knows which features are on; nothing else in the framework imports
//! it. Libraries stay generic over [`Device`](crate::Device): a feature switched on elsewhere can
//! move the choice made here.

use sneppx_contract::Result;

use crate::launch::Launch;

#[cfg(feature = "cpu")]
mod selected {
    use super::{Launch, Result};

    /// The device of this build, by fixed priority: cpu.
    pub type Selected = sneppx_cpu::Cpu;

    /// Opens the device of this build for this process.
    ///
    /// # Errors
    /// The device cannot be used; the message says what to install or change.
    pub fn open(launch: &Launch) -> Result<Selected> {
        sneppx_cpu::Cpu::with_threads(launch.threads)
    }
}

#[cfg(feature = "cpu")]
pub use selected::{Selected, open};
