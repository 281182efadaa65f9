//! `cargo xtask bench`: the same work by eager PyTorch and by Sneppx, in turn.
//!
//! Machines drift: they heat up, and neighbours come and go. So the two sides alternate, each
//! round is judged by itself, and what is printed is the median over the rounds.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::peers;
use crate::process::{Runner, shown};
use crate::table::{Figure, Round, Target, compare};
use crate::workspace;

/// How long one run of one side may take.
const LIMIT: Duration = Duration::from_secs(1200);

/// Steps that PyTorch runs before it measures; ours runs them too.
const WARMUP_STEPS: usize = 3;

/// Rounds, where `--rounds` does not say.
const ROUNDS: usize = 3;

/// What both sides are asked to do.
struct Work {
    /// Our preset, and PyTorch's unless it is the recipe.
    name: &'static str,
    /// Measured steps; none for the recipe, which runs to its end.
    steps: Option<usize>,
    /// The same with `--quick`.
    quick_steps: Option<usize>,
    figures: &'static [Figure],
}

const WORKS: &[Work] = &[
    Work {
        name: "tutorial",
        steps: Some(40),
        quick_steps: Some(10),
        figures: &[
            speed(),
            step_time(),
            memory(Target::AtMost(0.35)),
            figure("start to first step", "start_to_first_step_s", write_seconds, Target::None),
        ],
    },
    Work {
        name: "gpt2-small",
        steps: Some(8),
        quick_steps: Some(3),
        figures: &[
            speed(),
            step_time(),
            memory(Target::AtMost(0.7)),
            figure("start to first step", "start_to_first_step_s", write_seconds, Target::None),
        ],
    },
    Work {
        name: "shakespeare-char",
        steps: None,
        quick_steps: None,
        figures: &[
            // PyTorch reports the time to its last evaluation; ours includes writing the weights.
            Figure {
                name: "whole run",
                peer: "total_seconds",
                ours: "elapsed_s",
                write: write_seconds,
                target: Target::AtMost(0.5),
            },
            figure("validation loss", "val_loss", write_loss, Target::AtMostInItself(1.9)),
            memory(Target::None),
        ],
    },
];

const fn figure(
    name: &'static str,
    key: &'static str,
    write: fn(f64) -> String,
    target: Target,
) -> Figure {
    Figure { name, peer: key, ours: key, write, target }
}

const fn speed() -> Figure {
    figure("tokens/s", "tokens_per_second", write_count, Target::AtLeast(1.25))
}

const fn step_time() -> Figure {
    figure("step, median", "step_ms_median", write_milliseconds, Target::None)
}

const fn memory(target: Target) -> Figure {
    figure("resident peak", "resident_peak_bytes", write_bytes, target)
}

/// What the command line says.
#[derive(Debug, PartialEq)]
struct Options {
    quick: bool,
    threads: usize,
    rounds: usize,
    only: Option<String>,
    data: Option<PathBuf>,
}

/// Where the two sides are and what they share.
struct Setting<'a> {
    runner: &'a Runner,
    options: &'a Options,
    python: PathBuf,
    program: PathBuf,
    /// Where our runs write and the reports are kept.
    folder: PathBuf,
}

/// Installs PyTorch, builds the program, runs the works and prints a table for each.
///
/// # Errors
/// Bad options; either side fails or reports no JSON. A missed target is no error.
pub fn run(runner: &Runner, arguments: Vec<OsString>) -> Result<()> {
    let options = parse(arguments)?;
    let works = chosen(&options)?;
    let folder = workspace::target_folder(runner)?.join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let python = peers::python(runner, &[])?;
    let program = workspace::release_program(runner)?;
    let setting = Setting { runner, options: &options, python, program, folder };
    let (mut targets, mut met) = (0, 0);
    for work in works {
        let rounds = setting.rounds(work)?;
        let table = compare(&setting.title(work, rounds.len()), work.figures, &rounds);
        println!("{}", table.text);
        targets += table.targets;
        met += table.met;
    }
    println!("{met} of {targets} targets met");
    Ok(())
}

fn parse(arguments: Vec<OsString>) -> Result<Options> {
    use lexopt::prelude::*;
    let cores = thread::available_parallelism().context("the number of cores")?.get();
    let mut options =
        Options { quick: false, threads: cores, rounds: ROUNDS, only: None, data: None };
    let mut rounds = None;
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("quick") => options.quick = true,
            Long("threads") => options.threads = parser.value()?.parse().context("--threads")?,
            Long("rounds") => rounds = Some(parser.value()?.parse().context("--rounds")?),
            Long("only") => options.only = Some(parser.value()?.string()?),
            Long("data") => options.data = Some(parser.value()?.into()),
            _ => return Err(argument.unexpected().into()),
        }
    }
    options.rounds = rounds.unwrap_or(if options.quick { 1 } else { ROUNDS });
    if options.threads == 0 || options.rounds == 0 {
        bail!("--threads and --rounds must be at least 1");
    }
    Ok(options)
}

/// The works to do. The recipe needs a text, so it is left out where no `--data` is given.
fn chosen(options: &Options) -> Result<Vec<&'static Work>> {
    let is_recipe = |work: &Work| work.steps.is_none();
    if let Some(data) = &options.data
        && !data.is_file()
    {
        bail!("--data {} is not a file", data.display());
    }
    let Some(only) = &options.only else {
        let works = WORKS.iter().filter(|work| !is_recipe(work) || options.data.is_some());
        return Ok(works.collect());
    };
    let Some(work) = WORKS.iter().find(|work| work.name == only) else {
        let names: Vec<&str> = WORKS.iter().map(|work| work.name).collect();
        bail!("--only {only}: the works are {}", names.join(", "));
    };
    if is_recipe(work) && options.data.is_none() {
        bail!("{only} needs --data FILE, a text to learn");
    }
    Ok(vec![work])
}

impl Setting<'_> {
    /// Both sides in turn, as often as the options say. Every report is kept on disk.
    fn rounds(&self, work: &Work) -> Result<Vec<Round>> {
        let mut rounds = Vec::new();
        let mut kept = String::new();
        for _ in 0..self.options.rounds {
            let peer = self.report(&mut self.peer_command(work))?;
            let ours = self.report(&mut self.our_command(work)?)?;
            kept.push_str(&format!("{peer}\n{ours}\n"));
            rounds.push(Round { peer, ours });
        }
        let path = self.folder.join(format!("{}.jsonl", work.name));
        fs::write(&path, kept).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(rounds)
    }

    fn peer_command(&self, work: &Work) -> Command {
        let mut command = workspace::command(&self.python.to_string_lossy());
        match self.steps(work) {
            Some(steps) => command
                .args(["benches/peers/pytorch_step.py", "--preset", work.name])
                .args(["--steps", &steps.to_string(), "--warmup", &WARMUP_STEPS.to_string()]),
            None => command.arg("benches/peers/nanogpt_recipe.py").arg("--data").arg(self.data()),
        };
        command.args(["--threads", &self.options.threads.to_string(), "--json"]);
        command
    }

    fn our_command(&self, work: &Work) -> Result<Command> {
        let out = self.folder.join(work.name);
        if out.exists() {
            fs::remove_dir_all(&out).with_context(|| format!("cannot clear {}", out.display()))?;
        }
        let mut command = workspace::command(&self.program.to_string_lossy());
        command.args(["train", "--preset", work.name]);
        match self.steps(work) {
            Some(steps) => command.args(["--steps", &(steps + WARMUP_STEPS).to_string()]),
            None => command.arg("--data").arg(self.data()),
        };
        command.args(["--threads", &self.options.threads.to_string(), "--json", "--out"]);
        command.arg(out);
        Ok(command)
    }

    fn steps(&self, work: &Work) -> Option<usize> {
        if self.options.quick { work.quick_steps } else { work.steps }
    }

    /// The text of the recipe. Commands run at the root, so the path has to be absolute.
    fn data(&self) -> PathBuf {
        let data = self.options.data.as_deref().expect("chosen() asks for the data");
        std::path::absolute(data).unwrap_or_else(|_| data.to_owned())
    }

    /// The JSON object on the last line of what `command` prints, and how long it ran.
    fn report(&self, command: &mut Command) -> Result<Value> {
        let output = self.runner.capture(command, LIMIT)?;
        let report = last_object(&output.stdout);
        let mut report = report.with_context(|| format!("`{}`", shown(command)))?;
        report["elapsed_s"] = json!(output.elapsed.as_secs_f64());
        Ok(report)
    }

    fn title(&self, work: &Work, rounds: usize) -> String {
        let steps =
            self.steps(work).map_or("to its end".to_owned(), |steps| format!("{steps} steps"));
        let threads = self.options.threads;
        let name = work.name;
        format!("{name}: {threads} threads, {steps}, median of {rounds} alternating rounds")
    }
}

/// The last line of `output`, which must be a JSON object.
fn last_object(output: &str) -> Result<Value> {
    let line = output.lines().next_back().context("printed nothing")?;
    let value: Value = serde_json::from_str(line)
        .with_context(|| format!("the last line printed is no JSON object: {line}"))?;
    match value.is_object() {
        true => Ok(value),
        false => bail!("the last line printed is no JSON object: {line}"),
    }
}

fn write_count(number: f64) -> String {
    format!("{number:.0}")
}

fn write_milliseconds(number: f64) -> String {
    format!("{number:.1} ms")
}

fn write_seconds(number: f64) -> String {
    format!("{number:.2} s")
}

fn write_bytes(number: f64) -> String {
    format!("{:.1} MiB", number / f64::from(1 << 20))
}

fn write_loss(number: f64) -> String {
    format!("{number:.4}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parsed(text: &str) -> Result<Options> {
        parse(text.split_whitespace().map(OsString::from).collect())
    }

    fn names(text: &str) -> Result<Vec<&'static str>> {
        Ok(chosen(&parsed(text)?)?.iter().map(|work| work.name).collect())
    }

    #[test]
    fn the_recipe_is_run_where_there_is_a_text() {
        assert_eq!(names("").unwrap(), ["tutorial", "gpt2-small"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        let with_data = format!("--data {}", file.path().display());
        assert_eq!(names(&with_data).unwrap().len(), WORKS.len());
        assert_eq!(names("--only tutorial").unwrap(), ["tutorial"]);
    }

    #[test]
    fn bad_options_are_refused_with_their_names() {
        let cases = [
            ("--only abacus", "the works are tutorial, gpt2-small, shakespeare-char"),
            ("--only shakespeare-char", "needs --data"),
            ("--data no/such/file", "no/such/file is not a file"),
            ("--threads 0", "at least 1"),
            ("--rounds many", "--rounds"),
            ("--fast", "--fast"),
        ];
        for (text, part) in cases {
            let error = format!("{:#}", names(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn quick_means_one_round_unless_rounds_are_given() {
        assert_eq!(parsed("--quick").unwrap().rounds, 1);
        assert_eq!(parsed("--rounds 5 --quick --threads=1").unwrap().rounds, 5);
        assert_eq!(parsed("").unwrap().rounds, ROUNDS);
    }

    #[test]
    fn a_report_is_the_last_line() {
        assert_eq!(last_object("step 1\n{\"steps\": 3}\n").unwrap()["steps"], 3);
        for bad in ["", "done", "{\"steps\": 3}\nbye", "3"] {
            assert!(last_object(bad).is_err(), "{bad}");
        }
    }

    /// A program that notes its name and arguments and reports `number` as its speed.
    fn stand_in(folder: &Path, name: &str, number: usize) -> PathBuf {
        let path = folder.join(name);
        let log = folder.join("log");
        let script = format!(
            "#!/bin/sh\necho \"{name} $*\" >> {}\necho working\n\
             echo '{{\"tokens_per_second\": {number}}}'\n",
            log.display()
        );
        // Written by a child: a file that this process holds open for writing, or a process forked
        // meanwhile by another test, cannot be executed.
        let mut write = Command::new("sh");
        write.args(["-c", "printf '%s' \"$1\" > \"$2\" && chmod +x \"$2\"", "sh", &script]);
        assert!(write.arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn the_sides_alternate_and_their_reports_are_kept() {
        let runner = Runner::new().unwrap();
        let options = parsed("--quick --rounds 2 --threads 1 --only tutorial").unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().to_owned();
        let (python, program) = (stand_in(&folder, "peer", 2), stand_in(&folder, "ours", 3));
        let work = chosen(&options).unwrap()[0];
        let setting =
            Setting { runner: &runner, options: &options, python, program, folder: folder.clone() };
        let rounds = setting.rounds(work).unwrap();
        let log = fs::read_to_string(folder.join("log")).unwrap();
        let ours = format!(
            "ours train --preset tutorial --steps 13 --threads 1 --json --out {}",
            folder.join("tutorial").display()
        );
        let peer = "peer benches/peers/pytorch_step.py --preset tutorial --steps 10 --warmup 3 \
                    --threads 1 --json";
        assert_eq!(log.lines().collect::<Vec<_>>(), [peer, &ours, peer, &ours]);
        let table = compare(&setting.title(work, rounds.len()), work.figures, &rounds);
        let speed = "| tokens/s | 2 | 3 | 1.500 | 1.500 to 1.500 | ≥ 1.25 × | yes |";
        assert!(table.text.lines().any(|line| line == speed), "{}", table.text);
        assert_eq!((table.targets, table.met), (2, 1));
        let kept = fs::read_to_string(folder.join("tutorial.jsonl")).unwrap();
        assert_eq!(kept.lines().count(), 4);
    }
}
