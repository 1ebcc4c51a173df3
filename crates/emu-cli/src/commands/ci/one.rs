//! One run of the command, by `emu run` in a process group of its own.

use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use emu_core::as_ns::nanos;
use emu_core::{Delivered, Error, ErrorKind, Pid, Result, Roots, SlowCommand, Speed, Stdio};
use nix::sys::signal::{Signal, killpg};
use serde::Deserialize;
use tempfile::NamedTempFile;

use super::result::{Outcome, Run};
use crate::exit::{Exit, Failure};
use crate::reporter::Reporter;
use crate::signals::{Signals, stop_self, until};
use crate::supervise::{Child, News, descendants, own_group};
use crate::zone::record::ExitRecord;

const LOOK: Duration = Duration::from_secs(1);

/// How long a run that is asked to end may take for it.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) speed: Speed,
    /// Options of `emu run` beside the speed.
    pub(super) options: &'a [String],
    pub(super) command: &'a [OsString],
    /// How long it may take at this speed.
    pub(super) limit: Option<Duration>,
}

/// What is read of the JSON of `emu run`.
#[derive(Debug, Deserialize)]
struct Record {
    method: String,
    delivered: Option<Delivered>,
    exit: Option<ExitRecord>,
}

/// Kills what the command leaves behind, which would go on at full speed beside the next run (see [`emu_core::adopt_orphans`]).
pub(super) fn run(case: &Case<'_>, signals: &Signals, reporter: Reporter) -> Result<Run, Failure> {
    let failed = |what: &str, cause| Error::io(format!("cannot {what} a run at {}", case.speed), cause);
    let record = NamedTempFile::new().map_err(|e| {
        failed("make a file for the result of", e).hint("name a folder that can be written in TMPDIR")
    })?;
    let program = std::env::current_exe().map_err(|e| failed("find emu itself for", e))?;
    let mut command = SlowCommand::new(program);
    command
        .args(["run", "--ends-with", &std::process::id().to_string(), "--speed", &case.speed.to_string()])
        .args(case.options)
        .arg("--json")
        .arg(record.path())
        .arg("--")
        .args(case.command)
        .stdin(Stdio::Null)
        .signal_mask(signals.original());
    let begin = Instant::now();
    let mut gated = command.gate()?;
    own_group(&gated)?;
    let child = Child::open(&Roots::system(), gated.pid())?;
    gated.begin()?;
    let watched = watch(&child, case.limit, signals, reporter);
    let wall = begin.elapsed();
    kill_descendants(std::process::id() as Pid);
    let Watched { exit: ended, asked, stopped } = watched?;
    if let Some(Asked::BySignal(signal)) = asked {
        return Err(Failure::interrupted(signal));
    }
    let text = fs::read_to_string(record.path()).map_err(|e| failed("read the result of", e))?;
    let told: Option<Record> = serde_json::from_str(&text).ok();
    let (method, delivered, exit) =
        told.map_or((None, None, None), |told| (Some(told.method), told.delivered, told.exit));
    let outcome = match (asked, exit) {
        (Some(_), _) => Outcome::TimedOut,
        (None, Some(ExitRecord::Code(0))) => Outcome::Passed,
        (None, Some(_)) => Outcome::Failed,
        (None, None) => return Err(refused(ended)),
    };
    Ok(Run {
        speed: case.speed.to_string(),
        outcome,
        exit,
        wall_ns: nanos(wall.saturating_sub(stopped)),
        method,
        delivered,
        has_tests: false,
    })
}

#[derive(Debug, Clone, Copy)]
enum Asked {
    Late,
    BySignal(Signal),
}

/// What became of a run.
struct Watched {
    exit: Exit,
    asked: Option<Asked>,
    /// For how long it was stopped together with emu.
    stopped: Duration,
}

/// Waits until the run has ended; asks it to end where it takes too long, has stopped for ever, or emu is to end, and kills what
/// does not.
fn watch(child: &Child, limit: Option<Duration>, signals: &Signals, reporter: Reporter) -> Result<Watched> {
    let mut due = limit.and_then(|limit| Instant::now().checked_add(limit));
    let (mut asked, mut stopped, mut is_last) = (None, Duration::ZERO, false);
    loop {
        while let Some(news) = child.news()? {
            match news {
                News::Ended(exit) => return Ok(Watched { exit, asked, stopped }),
                // Its emu has followed the command, and there is no shell that would continue them.
                News::Stopped(signal) if signal != Signal::SIGSTOP && asked.is_none() => {
                    reporter.note(&format!(
                        "the command was stopped by {signal} and nobody continues it: the run counts as timed out"
                    ));
                    due = Some(Instant::now());
                }
                News::Stopped(_) | News::Continued => {}
            }
        }
        signals.wait(&[], until(due, LOOK))?;
        let mut ask = None;
        while let Some(received) = signals.next()? {
            if received.signal == Signal::SIGTSTP {
                let time = stop_with(child);
                stopped += time;
                due = due.and_then(|due| due.checked_add(time));
            } else if signals.is_ending(received) {
                ask = Some(received.signal);
                asked = Some(Asked::BySignal(received.signal));
            }
        }
        let is_late = due.is_some_and(|due| due <= Instant::now());
        if is_late && asked.is_none() {
            ask = Some(Signal::SIGTERM);
            asked = Some(Asked::Late);
        }
        if let Some(signal) = ask {
            signal_group(child, signal);
            due = Instant::now().checked_add(GRACE);
        } else if is_late {
            kill_descendants(child.pid());
            if is_last {
                // Its guardian puts all back.
                child.signal(Signal::SIGKILL)?;
            }
            is_last = true;
            due = Instant::now().checked_add(LOOK);
        }
        if ask.is_some() || is_late {
            // What is stopped acts on nothing else.
            signal_group(child, Signal::SIGCONT);
        }
    }
}

/// Stops the run, and then emu, as a shell expects of a job; returns for how long, when both are continued. A run that does not
/// stop goes on meanwhile.
fn stop_with(child: &Child) -> Duration {
    let begin = Instant::now();
    // A method that continues its processes by signals may undo the first.
    for _ in 0..2 {
        signal_group(child, Signal::SIGTSTP);
        if child.stops_soon() {
            break;
        }
    }
    stop_self(Signal::SIGTSTP);
    signal_group(child, Signal::SIGCONT);
    begin.elapsed()
}

/// Signals the run and all that belongs to it; that it has ended is no failure.
fn signal_group(child: &Child, signal: Signal) {
    let _ = killpg(nix::unistd::Pid::from_raw(child.pid()), signal);
}

/// Kills all that descends from a process, but no emu: the one of the run tells what was delivered, and its guardian puts
/// all back where that one cannot.
fn kill_descendants(of: Pid) {
    let emu = std::env::current_exe().ok();
    let descendants = descendants(&[of]).unwrap_or_default();
    for process in descendants.iter().filter(|process| process.exe().ok() != emu) {
        // The number may be another process's by now, unless its folder is still there.
        if let Ok(child) = Child::open(&Roots::system(), process.pid)
            && process.is_alive()
        {
            let _ = child.signal(Signal::SIGKILL);
        }
    }
}

/// emu tells nothing of the command. Its words are on stderr already, unless it was killed or could not write its result.
fn refused(exit: Exit) -> Failure {
    match exit {
        Exit::Command(1..) => Failure { exit, error: None },
        _ => Error::new(
            ErrorKind::Failed,
            format!("the emu of a run has left no result: it ended with {}", exit.code()),
        )
        .into(),
    }
}
