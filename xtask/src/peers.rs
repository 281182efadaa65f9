//! The Python environment that the peers and the golden files are made with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::needs::{self, PYTHON};
use crate::process::Runner;
use crate::workspace;

/// How long downloading and unpacking some gigabytes of packages may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(3600);

/// Installs PyTorch and the packages of `more` files below the target folder and returns the
/// path of the interpreter.
///
/// # Errors
/// Python is missing and cannot be installed; the packages cannot be installed.
pub fn python(runner: &Runner, more: &[&str]) -> Result<PathBuf> {
    let version = needs::ensure(runner, &PYTHON).context("PyTorch needs Python")?;
    let folder = workspace::target_folder(runner)?.join("peers");
    eprintln!("python {version}: PyTorch goes to {} unless it is there", folder.display());
    let mut install = workspace::command("bash");
    install.arg("benches/peers/install.sh").arg(&folder).args(more);
    let output = runner.capture(&mut install, INSTALL_LIMIT)?.stdout;
    let line = output.lines().next_back().context("benches/peers/install.sh printed no path")?;
    Ok(Path::new(line).to_owned())
}
