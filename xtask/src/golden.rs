//! `cargo xtask golden`: makes the golden files of the tests with PyTorch and transformers.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;

use crate::peers;
use crate::process::Runner;
use crate::workspace;

/// How long the computation may take.
const LIMIT: Duration = Duration::from_secs(1800);

/// Runs tests/golden/generate.py with `arguments`.
///
/// # Errors
/// The packages cannot be installed; the script fails.
pub fn run(runner: &Runner, arguments: Vec<OsString>) -> Result<()> {
    let python = peers::python(runner, &["tests/golden/requirements.txt"])?;
    let mut generate = workspace::command(&python.to_string_lossy());
    generate.arg("tests/golden/generate.py").args(arguments);
    runner.run(&mut generate, LIMIT)
}
