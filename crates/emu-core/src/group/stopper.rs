//! Stopping and continuing all processes of a zone.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use rustix::process::Signal;

use super::members::{Members, Sent};
use super::usage::Usage;
use super::{PASSES, Stat};
use crate::Result;
use crate::duty::holder::{Held, Hold, Notes};
use crate::sys::time::{self, Nanos};
use crate::zone::Pid;

/// Up to so many processes, each is asked whether somebody else has stopped it before we do. With more, one of each
/// process group is, as job control stops whole groups: a look at a process costs as much as stopping it.
const ASK_EACH: usize = 32;

/// The stop signals that a terminal sends, as bits of `ShdPnd`. `SIGSTOP` is not among them because one that is
/// pending is our own.
const TERMINAL_STOPS: u64 = bit(Signal::TSTP) | bit(Signal::TTIN) | bit(Signal::TTOU);

const fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// Stops all processes of a zone by `SIGSTOP` and continues them by `SIGCONT`. Dropping it continues those that it
/// has stopped.
///
/// Parents are stopped before their children and continued after them, so that no process of the zone sees
/// another one stopped: a shell would take it for a job to be put aside.
#[derive(Debug)]
pub(crate) struct Stopper {
    proc: PathBuf,
    members: Members,
    usage: Option<Usage>,
    notes: Notes,
}

impl Stopper {
    /// Nothing is stopped yet.
    pub(crate) fn new(proc: &Path, members: Members, notes: Notes) -> Self {
        let usage = members.group().and_then(Usage::of);
        Self { proc: proc.to_owned(), members, usage, notes }
    }

    /// Stops all that may be stopped and are known; notes those that have ended.
    fn stop_known(&mut self, dead: &mut HashSet<Pid>, groups: &mut HashMap<Pid, bool>) {
        let ask_each = self.members.len() <= ASK_EACH;
        for member in self.members.iter_mut().filter(|member| member.is_proven() && !member.is_judged) {
            member.is_judged = true;
            let is_stopped = || is_stopped(&self.proc, member.pid);
            let is_put_aside = if ask_each {
                is_stopped()
            } else {
                group_of(member.pid).is_some_and(|group| *groups.entry(group).or_insert_with(is_stopped))
            };
            if is_put_aside {
                continue;
            }
            match member.signal(&self.proc, Signal::STOP) {
                Sent::Yes => member.is_held = true,
                Sent::Gone => drop(dead.insert(member.pid)),
                Sent::Refused => self.notes.add(format!(
                    "process {} may not be stopped and runs at full speed: it has changed its user, or descriptors are short",
                    member.pid
                )),
            }
        }
    }

    /// Whether a terminal has asked the process to stop while we held it.
    fn wants_to_stop(&self, pid: Pid) -> bool {
        let status = fs::read(self.proc.join(pid.to_string()).join("status")).unwrap_or_default();
        pending(&String::from_utf8_lossy(&status)) & TERMINAL_STOPS != 0
    }

    /// Continues what we have stopped, except what the user has put aside meanwhile; returns when the first of
    /// them ran again.
    fn continue_held(&mut self, dead: &mut HashSet<Pid>) -> Nanos {
        let mut groups = HashMap::new();
        let ask_each = self.members.len() <= ASK_EACH;
        let held: Vec<Pid> = self.members.iter_mut().filter(|member| member.is_held).map(|m| m.pid).collect();
        let put_aside: HashSet<Pid> = held
            .into_iter()
            .filter(|&pid| {
                if ask_each {
                    self.wants_to_stop(pid)
                } else {
                    group_of(pid).is_some_and(|g| *groups.entry(g).or_insert_with(|| self.wants_to_stop(pid)))
                }
            })
            .collect();
        let mut first = None;
        for member in self.members.iter_mut().rev().filter(|member| member.is_held) {
            member.is_held = false;
            if put_aside.contains(&member.pid) {
                continue;
            }
            if member.signal(&self.proc, Signal::CONT) == Sent::Gone {
                dead.insert(member.pid);
            }
            first.get_or_insert_with(time::now);
        }
        first.unwrap_or_else(time::now)
    }
}

impl Hold for Stopper {
    fn hold(&mut self, _deadline: Nanos) -> Result<Held> {
        self.members.iter_mut().for_each(|member| member.is_judged = false);
        let mut groups = HashMap::new();
        let mut from = None;
        for _ in 0..PASSES {
            let complete = self.members.refresh()?;
            let mut dead = HashSet::new();
            self.stop_known(&mut dead, &mut groups);
            from.get_or_insert_with(time::now);
            self.members.forget_dead(&dead);
            if complete && dead.is_empty() {
                return Ok(Held { from: from.unwrap_or_else(time::now), is_sure: true });
            }
        }
        Ok(Held { from: from.unwrap_or_else(time::now), is_sure: false })
    }

    fn let_go(&mut self) -> Result<Nanos> {
        let mut dead = HashSet::new();
        let free = self.continue_held(&mut dead);
        self.members.forget_dead(&dead);
        Ok(free)
    }

    fn usage(&mut self) -> Option<Nanos> {
        match &self.usage {
            Some(usage) => usage.read(),
            // Without a group, the sum; a process that has ended takes its part with it, which shows as a
            // loss too large to be believed.
            None if self.members.len() <= ASK_EACH => {
                Some(self.members.iter_mut().filter_map(|member| cpu_time(member.pid)).sum())
            }
            None => None,
        }
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.continue_held(&mut HashSet::new());
    }
}

/// The CPU time of a process, its ended threads included.
pub(crate) fn cpu_time(pid: Pid) -> Option<Nanos> {
    let clock: ClockId = clock_getcpuclockid(nix::unistd::Pid::from_raw(pid)).ok()?;
    let time = clock_gettime(clock).ok()?;
    Some(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

fn is_stopped(proc: &Path, pid: Pid) -> bool {
    Stat::read(proc, pid).is_some_and(|stat| stat.state == b'T')
}

fn group_of(pid: Pid) -> Option<Pid> {
    nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid))).ok().map(nix::unistd::Pid::as_raw)
}

/// The signals that wait for a process as a whole, from `/proc/<pid>/status`.
fn pending(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
