//! The command line of Sneppx.

#![forbid(unsafe_code)]

mod generate;
mod plot;
mod prepare;
mod progress;
mod train;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Trains Transformers on one process or on many.
#[derive(Parser)]
#[command(name = "sneppx", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model. Without arguments: a small one on the built-in corpus, for about a minute
    #[command(args_override_self = true)]
    Train(Box<train::TrainArguments>),
    /// Continue a text with a trained model
    Generate(generate::GenerateArguments),
    /// Turn text into a token file that is mapped into memory when it is read
    Prepare(prepare::PrepareArguments),
}

fn main() -> ExitCode {
    let started = Instant::now();
    let filter = EnvFilter::try_from_env("SNEPPX_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match Arguments::parse().command {
        Command::Train(arguments) => train::run(&arguments, started),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Prepare(arguments) => prepare::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
