//! Where the workspace lies and how its cargo is called.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::Runner;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies below the root")
}

/// A command that runs at the root.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs this task.
pub fn cargo() -> Command {
    command(&env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
}

/// The folder of build outputs.
///
/// # Errors
/// `cargo metadata` fails.
pub fn target_folder(runner: &Runner) -> Result<PathBuf> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = runner.capture(&mut metadata, Duration::from_secs(120))?.stdout;
    let metadata: Value = serde_json::from_str(&output).context("cargo metadata")?;
    let folder = metadata["target_directory"].as_str();
    folder.map(PathBuf::from).context("cargo metadata names no target_directory")
}

/// Builds the program in the release profile and says where it is.
///
/// # Errors
/// The build fails.
pub fn release_program(runner: &Runner) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--release", "--package", "sneppx", "--bin", "sneppx"]);
    build.arg("--message-format=json-render-diagnostics");
    let messages = runner.capture(&mut build, Duration::from_secs(2400))?.stdout;
    executable(&messages).context("cargo build names no executable `sneppx`")
}

/// The path of the program `sneppx` in cargo's messages, one JSON object a line.
fn executable(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "sneppx")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_in_the_messages_of_cargo() {
        let messages = r#"
            {"reason":"compiler-artifact","target":{"name":"sneppx"},"executable":null}
            {"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/other"}
            {"reason":"compiler-artifact","target":{"name":"sneppx"},"executable":"/t/sneppx"}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages), Some(PathBuf::from("/t/sneppx")));
        assert_eq!(executable("no json"), None);
    }

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("xtask/Cargo.toml").is_file());
    }
}
