//! `cargo xtask test` and `cargo xtask setup`.

use std::env;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::needs::{self, BACKENDS, Backend};
use crate::process::Runner;
use crate::workspace;

/// How long building the tests and how long running them may take, unless `--limit` says.
const LIMIT: Duration = Duration::from_secs(1800);

/// Features that the tests are built with besides the default ones; none excludes a test, so one
/// run covers them all.
const FEATURES: &[&str] = &["sneppx/tokenizers"];

/// Installs what is missing, builds all tests, runs them.
///
/// # Errors
/// A required backend is missing; a test fails; a limit is reached.
pub fn run(runner: &Runner, arguments: Vec<OsString>) -> Result<()> {
    let (limit, forwarded) = options(arguments)?;
    let backends = needs::backends(runner, BACKENDS, &required()?)?;
    let has = |option: &str| forwarded.iter().any(|argument| argument == option);
    // Built first and on its own, so that the second limit is about the tests alone; cargo
    // cannot build documentation tests without running them.
    if !has("--doc") && !has("--no-run") {
        runner.run(&mut cargo_test(&backends, &forwarded, &["--no-run"]), limit)?;
    }
    let keep_going: &[&str] = if has("--no-run") { &[] } else { &["--no-fail-fast"] };
    runner.run(&mut cargo_test(&backends, &forwarded, keep_going), limit)
}

/// Installs what is missing.
///
/// # Errors
/// A required backend is missing, even then; any argument.
pub fn setup(runner: &Runner, arguments: Vec<OsString>) -> Result<()> {
    if let Some(argument) = arguments.first() {
        bail!("setup takes no options, got {argument:?}");
    }
    needs::backends(runner, BACKENDS, &required()?).map(|_| ())
}

fn required() -> Result<String> {
    match env::var(needs::REQUIRE) {
        Ok(required) => Ok(required),
        Err(env::VarError::NotPresent) => Ok(String::new()),
        Err(error) => Err(error).context(needs::REQUIRE),
    }
}

/// The limit of each command, and what is left for cargo.
fn options(mut arguments: Vec<OsString>) -> Result<(Duration, Vec<OsString>)> {
    if arguments.first().is_none_or(|first| first != "--limit") {
        return Ok((LIMIT, arguments));
    }
    let value = arguments.get(1).map(|value| value.to_string_lossy().into_owned());
    let seconds = value.as_deref().and_then(|value| value.parse::<u64>().ok());
    let Some(seconds) = seconds.filter(|seconds| *seconds > 0) else {
        let given = value.as_deref().unwrap_or("nothing");
        bail!("--limit takes whole seconds, at least 1, got {given}");
    };
    Ok((Duration::from_secs(seconds), arguments.split_off(2)))
}

/// `cargo test` with the features of `backends`, `options`, and what the caller hands on.
fn cargo_test(backends: &[&Backend], forwarded: &[OsString], options: &[&str]) -> Command {
    let border = forwarded.iter().position(|argument| argument == "--");
    let (for_cargo, for_tests) = forwarded.split_at(border.unwrap_or(forwarded.len()));
    let mut command = workspace::cargo();
    command.arg("test");
    if !for_cargo.iter().any(|argument| chooses_a_package(&argument.to_string_lossy())) {
        let features = FEATURES.iter().chain(backends.iter().flat_map(|backend| backend.features));
        let features: Vec<&str> = features.copied().collect();
        command.args(["--workspace", "--features", &features.join(",")]);
    }
    command.args(options).args(for_cargo).args(for_tests);
    command
}

fn chooses_a_package(argument: &str) -> bool {
    argument.starts_with("--package") || (argument.starts_with("-p") && !argument.starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shown;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn forwarded(text: &str) -> String {
        let shown = shown(&cargo_test(&[], &words(text), &["--no-run"]));
        shown.strip_prefix("cargo test ").unwrap().to_owned()
    }

    #[test]
    fn options_of_cargo_are_handed_on() {
        let all = "--workspace --features sneppx/tokenizers --no-run";
        assert_eq!(forwarded(""), all);
        let chosen = "--test tidy -- --nocapture";
        assert_eq!(forwarded(chosen), format!("{all} {chosen}"));
        assert_eq!(forwarded("-p sneppx-cpu"), "--no-run -p sneppx-cpu");
        assert_eq!(forwarded("-- -p"), format!("{all} -- -p"));
    }

    #[test]
    fn the_limit_is_read_and_bad_ones_are_refused() {
        let (limit, rest) = options(words("--limit 5 --test tidy")).unwrap();
        assert_eq!((limit, rest), (Duration::from_secs(5), words("--test tidy")));
        assert_eq!(options(words("--lib")).unwrap(), (LIMIT, words("--lib")));
        for bad in ["--limit", "--limit 0", "--limit soon", "--limit -1"] {
            let error = options(words(bad)).unwrap_err().to_string();
            assert!(error.starts_with("--limit takes whole seconds"), "{error}");
        }
    }
}
