//! One run of the command, by `emu run` in a process group of its own.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use emu_core::as_ns::nanos;
use emu_core::{Delivered, Error, ErrorKind, Pid, Result, Speed, heed_children};
use nix::sys::signal::{Signal, killpg};
use rustix::process::{
    Pid as RawPid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use serde::Deserialize;
use tempfile::NamedTempFile;

use super::result::{Outcome, Run};
use crate::exit::{Exit, Failure};
use crate::signals::{Signals, until};
use crate::supervise::descendants;
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
pub(super) fn run(case: &Case<'_>, signals: &Signals) -> Result<Run, Failure> {
    let failed = |what: &str, cause| Error::io(format!("cannot {what} a run at {}", case.speed), cause);
    let record = NamedTempFile::new().map_err(|e| failed("make a file for the result of", e))?;
    let program = std::env::current_exe().map_err(|e| failed("find emu itself for", e))?;
    let begin = Instant::now();
    heed_children();
    let mut child = Command::new(program)
        .args(["run", "--speed", &case.speed.to_string()])
        .args(case.options)
        .arg("--json")
        .arg(record.path())
        .arg("--")
        .args(case.command)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| failed("begin", e))?;
    let asked = watch(&child, case.limit, signals);
    let wall = begin.elapsed();
    let status = child.wait().map_err(|e| failed("wait for", e))?;
    kill_descendants(std::process::id() as Pid);
    let asked = asked?;
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
        (None, None) => return Err(refused(status)),
    };
    Ok(Run {
        speed: case.speed.to_string(),
        outcome,
        exit,
        wall_ns: nanos(wall),
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

/// Waits until the run has ended; asks it to end where it takes too long or emu is to end, and kills what does not.
fn watch(child: &Child, limit: Option<Duration>, signals: &Signals) -> Result<Option<Asked>> {
    let failed = |e: rustix::io::Errno| Error::io("cannot watch a run", e.into());
    let pid = RawPid::from_child(child);
    let fd = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    let mut due = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut asked = None;
    loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::PidFd(fd.as_fd()), options).map_err(failed)?.is_some() {
            return Ok(asked);
        }
        signals.wait(&[fd.as_fd()], until(due, LOOK))?;
        let mut ask = None;
        while let Some(received) = signals.next()? {
            if signals.is_ending(received) {
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
            kill_descendants(child.id() as Pid);
            due = Instant::now().checked_add(LOOK);
        }
    }
}

/// Signals the run and all that belongs to it; that it has ended is no failure.
fn signal_group(child: &Child, signal: Signal) {
    let _ = killpg(nix::unistd::Pid::from_raw(child.id() as Pid), signal);
}

/// Kills all that descends from a process, but no emu: the one of the run tells what was delivered, and its guardian puts
/// all back where that one cannot.
fn kill_descendants(of: Pid) {
    let emu = std::env::current_exe().ok();
    let descendants = descendants(&[of]).unwrap_or_default();
    for process in descendants.iter().filter(|process| process.exe().ok() != emu) {
        let fd = RawPid::from_raw(process.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // The number may be another process's by now, unless its folder is still there.
        if let Some(fd) = fd.filter(|_| process.is_alive()) {
            let _ = pidfd_send_signal(fd, rustix::process::Signal::KILL);
        }
    }
}

/// emu tells nothing of the command. Its words are on stderr already, unless it was killed or could not write its result.
fn refused(status: ExitStatus) -> Failure {
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code > 0 => Failure { exit: Exit::Command(code), error: None },
        _ => Error::new(ErrorKind::Failed, format!("the emu of a run has left no result: {status}")).into(),
    }
}
