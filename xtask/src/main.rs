//! Tasks for people who work on Sneppx; `cargo xtask help` lists them.
//!
//! Each task is one file. What they share: [`process`] runs commands under a time limit,
//! [`needs`] finds and installs what the machine must have, [`workspace`] knows where things lie.

#![forbid(unsafe_code)]

mod workspace;

mod process;

mod needs;

mod bench;
mod golden;
mod peers;
mod table;
mod test;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::process::Runner;

const HELP: &str = "\
cargo xtask TASK [OPTIONS]

  test [--limit SECONDS] [CARGO TEST OPTIONS]
      Installs what the tests need, builds them and runs every one that this machine can run.
      Options that cargo test knows are handed on: `cargo xtask test --test tidy`.
      REQUIRE_BACKENDS=cpu,... makes a backend that is missing a failure.
  setup
      Installs what the tests need and does no more.
  bench [--quick] [--threads N] [--rounds N] [--only WORK] [--data FILE]
      Trains the same models with eager PyTorch and with Sneppx in turn and prints ratios.
      WORK is tutorial, gpt2-small or shakespeare-char; the last needs --data, a text file.
  golden [--check]
      Writes the golden files of tests/golden again, or compares them with a new computation.
";

fn main() -> ExitCode {
    match task(env::args_os().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn task(mut arguments: Vec<OsString>) -> Result<()> {
    if arguments.is_empty() {
        bail!("name a task\n\n{HELP}");
    }
    let name = arguments.remove(0);
    let runner = Runner::new()?;
    match name.to_str() {
        Some("test") => test::run(&runner, arguments),
        Some("setup") => test::setup(&runner, arguments),
        Some("bench") => bench::run(&runner, arguments),
        Some("golden") => golden::run(&runner, arguments),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(())
        }
        _ => bail!("there is no task {name:?}\n\n{HELP}"),
    }
}
