//! Commands under a time limit, each in a process group of its own.
//!
//! A test that hangs often hangs in a grandchild of cargo. So the whole group is ended: at the
//! limit, when this program is told to stop, and when the command itself has ended and left
//! something behind.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How long a group may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Runs commands, and ends them when this program is told to stop.
pub struct Runner {
    stopped: Arc<AtomicBool>,
}

/// What a command wrote, and how long it took.
pub struct Output {
    /// Its standard output.
    pub stdout: String,
    /// From its start to its end.
    pub elapsed: Duration,
}

impl Runner {
    /// A runner that listens to the signals that end a program.
    ///
    /// # Errors
    /// The operating system refuses the handlers.
    pub fn new() -> Result<Runner> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stopped))
                .with_context(|| format!("cannot listen to signal {signal}"))?;
        }
        Ok(Runner { stopped })
    }

    /// Shows `command` and runs it; its output goes where ours goes.
    ///
    /// # Errors
    /// It cannot be started, fails, or takes longer than `limit`.
    pub fn run(&self, command: &mut Command, limit: Duration) -> Result<()> {
        eprintln!("+ {}", shown(command));
        let child = start(command)?;
        self.finish(child, &shown(command), limit)
    }

    /// Shows `command`, runs it and returns its standard output.
    ///
    /// # Errors
    /// As [`Runner::run`]; output that is not UTF-8.
    pub fn capture(&self, command: &mut Command, limit: Duration) -> Result<Output> {
        eprintln!("+ {}", shown(command));
        let begun = Instant::now();
        let mut child = start(command.stdout(Stdio::piped()))?;
        let mut pipe = child.stdout.take().expect("standard output was just piped");
        let reader = thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).map(|_| text)
        });
        self.finish(child, &shown(command), limit)?;
        let elapsed = begun.elapsed();
        let stdout = reader.join().expect("reading does not panic");
        let stdout = stdout.with_context(|| format!("the output of `{}`", shown(command)))?;
        Ok(Output { stdout, elapsed })
    }

    /// Waits for `child` and ends its group, whatever happens.
    fn finish(&self, mut child: Child, shown: &str, limit: Duration) -> Result<()> {
        let group = Pid::from_child(&child);
        let deadline = Instant::now() + limit;
        loop {
            if has_ended(group)? {
                // Not yet collected, so its number still names the group and no other.
                end(group, Signal::KILL);
                return verdict(child.wait()?, shown);
            }
            let stopped = self.stopped.load(Ordering::Relaxed);
            if stopped || Instant::now() >= deadline {
                end_gracefully(group)?;
                child.wait()?;
                let seconds = limit.as_secs_f64();
                match stopped {
                    true => bail!("`{shown}` was ended, because this task was told to stop"),
                    false => bail!(
                        "`{shown}` ran past its limit of {seconds} s; it was ended with all its \
                         processes"
                    ),
                }
            }
            thread::sleep(POLL);
        }
    }
}

/// Starts `command` as the head of a process group, without input.
fn start(command: &mut Command) -> Result<Child> {
    let child = command.stdin(Stdio::null()).process_group(0).spawn();
    child.with_context(|| format!("cannot start `{}`", shown(command)))
}

/// `command` as a person would type it; cargo is called by its full path and known by its name.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = if program.ends_with("cargo") { Path::new("cargo") } else { program };
    let mut words = vec![program.to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

/// Whether the head of `group` has ended; it is not collected.
fn has_ended(group: Pid) -> Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(group), options)?.is_some())
}

/// Asks the group to end, and forces it when the time of grace is over.
fn end_gracefully(group: Pid) -> Result<()> {
    end(group, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while !has_ended(group)? && Instant::now() < deadline {
        thread::sleep(POLL);
    }
    end(group, Signal::KILL);
    Ok(())
}

fn end(group: Pid, signal: Signal) {
    // The one failure possible is a group that is empty, which is what is wanted.
    let _ = kill_process_group(group, signal);
}

fn verdict(status: ExitStatus, shown: &str) -> Result<()> {
    match status.success() {
        true => Ok(()),
        false => bail!("`{shown}` failed: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn output_is_returned_and_failure_names_the_command() {
        let runner = Runner::new().unwrap();
        assert_eq!(runner.capture(&mut shell("echo one"), LONG).unwrap().stdout, "one\n");
        let error = runner.run(&mut shell("exit 3"), LONG).unwrap_err().to_string();
        assert!(error.contains("`sh -c exit 3` failed") && error.contains('3'), "{error}");
        let error = runner.run(&mut Command::new("no-such-program"), LONG).unwrap_err().to_string();
        assert!(error.contains("cannot start `no-such-program`"), "{error}");
    }

    #[test]
    fn the_limit_ends_grandchildren_too() {
        let runner = Runner::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        // The grandchild would write the mark long after the limit.
        let script = format!("(sleep 3; touch {}) & wait", mark.display());
        let begun = Instant::now();
        let limit = Duration::from_millis(300);
        let error = runner.run(&mut shell(&script), limit).unwrap_err().to_string();
        assert!(error.contains("ran past its limit of 0.3 s"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(3));
        thread::sleep(Duration::from_secs(4));
        assert!(!mark.exists());
    }

    #[test]
    fn what_a_command_leaves_behind_is_ended() {
        let runner = Runner::new().unwrap();
        let begun = Instant::now();
        // The background process holds the pipe open; reading it would take a minute.
        let output = runner.capture(&mut shell("sleep 60 & echo done"), LONG).unwrap();
        assert_eq!(output.stdout, "done\n");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_runner_told_to_stop_ends_its_command() {
        let runner = Runner { stopped: Arc::new(AtomicBool::new(true)) };
        let error = runner.run(&mut shell("sleep 60"), LONG).unwrap_err().to_string();
        assert!(error.contains("was told to stop"), "{error}");
    }
}
