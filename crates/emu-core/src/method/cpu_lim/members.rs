//! The processes of a zone, known one by one, by pidfds.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use rustix::io::Errno;
use rustix::process::{self, PidfdFlags, Signal};

use super::runner::Runner;
use crate::cgroup::{TaskGroup, lists};
use crate::error::{Error, Result};
use crate::process::{Descendants, LastPid, Stat, check_targets};
use crate::sys::Pid;
use crate::sys::signal;
use crate::sys::time::{self, Nanos};
use crate::undo::{Journal, Undo};

/// How often the list is read even though no process has been made: one may have been moved into the group.
const LIST_ANYWAY: Nanos = 100_000_000;

#[derive(Debug)]
enum Source {
    /// Whoever is in a cgroup: nothing escapes, however it is made.
    Group(TaskGroup),
    /// Descendants, as far as `/proc` shows them.
    Descendants(Descendants),
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) pid: Pid,
    /// Its parent when it was met.
    pub(crate) parent: Pid,
    /// In clock ticks since boot: tells the process from a later one.
    starttime: u64,
    /// `None` where there are more processes than descriptors: one is opened for each signal then.
    pidfd: Option<OwnedFd>,
    /// Those of its threads that compute, where they are known and the first one is not the only one.
    runners: Vec<Runner>,
    /// Not signalled until a second list has it: between list and `pidfd_open` the number may have passed to a process
    /// outside.
    is_unproven: bool,
    pub(crate) is_held: bool,
    /// Whether it has been decided in this round if it is to be stopped.
    pub(crate) is_judged: bool,
    pub(crate) signalled: Nanos,
    /// Its CPU time at the last look, and how much of it was new then; nothing is known before the second one.
    pub(crate) used: Option<Nanos>,
    pub(crate) lately: Option<Nanos>,
    /// For how long its first thread had waited for a CPU at the last look, and which part that was of the time that
    /// tasks had run for since the one before.
    pub(crate) waited: Option<Nanos>,
    pub(crate) waited_part: f64,
    /// Its CPU time when it was stopped, where that was looked at.
    pub(crate) at_stop: Option<Nanos>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    Gone,
    /// The process cannot be signalled now: it has changed its user, descriptors are short, or a sandbox forbids the call.
    Refused,
}

#[derive(Debug)]
pub(crate) struct Members {
    proc: PathBuf,
    source: Source,
    journal: Journal,
    /// In the order in which they were found: parents before their children.
    known: Vec<Member>,
    numbers: HashSet<Pid>,
    /// The lists of which the journal knows that their processes are to be continued.
    recorded: HashSet<PathBuf>,
    descriptors: Descriptors,
    /// The last process number when all were known; `None` where it does not tell whether there are new ones.
    last_pid: Option<Pid>,
    given_out: LastPid,
    next_list: Nanos,
    look: Arc<AtomicBool>,
}

impl Members {
    /// On error nothing has been stopped.
    pub(crate) fn of_group(proc: &Path, group: TaskGroup, journal: &Journal) -> Result<Self> {
        Self::of(proc, Source::Group(group), journal)
    }

    pub(crate) fn of_family(proc: &Path, descendants: Descendants, journal: &Journal) -> Result<Self> {
        Self::of(proc, Source::Descendants(descendants), journal)
    }

    fn of(proc: &Path, source: Source, journal: &Journal) -> Result<Self> {
        let mut members = Self {
            proc: proc.to_owned(),
            source,
            journal: journal.clone(),
            known: Vec::new(),
            numbers: HashSet::new(),
            recorded: HashSet::new(),
            descriptors: Descriptors::new(),
            last_pid: None,
            given_out: LastPid::of(proc),
            next_list: 0,
            look: Arc::default(),
        };
        if let Source::Group(group) = &members.source {
            for &(pid, starttime) in group.leaderless() {
                journal.record(&Undo::Continue { pid, starttime })?;
            }
        }
        let listed = members.list()?;
        check_targets(proc, listed.iter().copied())?;
        for pid in listed {
            may_signal(pid)?;
        }
        members.refresh()?;
        Ok(members)
    }

    /// Where it is set, all members are listed the next time.
    pub(crate) fn look(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.look)
    }

    pub(crate) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Member> {
        self.known.iter_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Member> {
        self.known.iter()
    }

    /// Looks for new processes, which the journal then has as to be continued, and forgets those that have ended.
    /// Returns whether all are known and may be signalled; else it is to be called again.
    pub(crate) fn refresh(&mut self) -> Result<bool> {
        let now = time::now();
        let last_pid = self.given_out.settled(now);
        let unproven = self.known.iter().any(|member| member.is_unproven);
        let are_asked_for = self.look.swap(false, Ordering::Relaxed);
        if !unproven
            && !are_asked_for
            && last_pid.is_some()
            && last_pid == self.last_pid
            && now < self.next_list
        {
            return Ok(true);
        }
        let listed = self.list()?;
        let mut current: HashSet<Pid> = listed.iter().copied().collect();
        let (numbers, proc) = (&mut self.numbers, &self.proc);
        self.known.retain_mut(|member| {
            let stays = current.contains(&member.pid);
            if stays {
                // It was in the list after its pidfd was opened: whatever the pidfd is of is in it, or dead.
                member.is_unproven = false;
            } else {
                // It has ended, or has been moved out, where nobody would continue it.
                if member.is_held {
                    let _ = member.signal(proc, Signal::CONT);
                }
                numbers.remove(&member.pid);
            }
            stays
        });
        let mut complete = true;
        for pid in listed {
            // A number may be listed twice while its process moves between nested groups.
            if current.remove(&pid) && !self.numbers.contains(&pid) {
                complete = false;
                if let Some(member) = self.meet(pid)? {
                    self.numbers.insert(pid);
                    self.known.push(member);
                } else if let Source::Descendants(descendants) = &mut self.source {
                    descendants.forget(pid);
                }
            }
        }
        self.last_pid = last_pid.filter(|_| complete);
        self.next_list = now + LIST_ANYWAY;
        Ok(complete)
    }

    /// To be called when all have been continued for good: the journal leaves alone those that are stopped all the
    /// same. Where one could not be continued, the journal is to continue all that are stopped.
    pub(crate) fn release(&self) -> Result<()> {
        if self.known.iter().any(|member| member.is_held) {
            return Ok(());
        }
        self.journal.record(&Undo::Continued)
    }

    /// Forgets a process of which a signal has shown that it has ended; its number may be another's by now.
    pub(crate) fn forget_dead(&mut self, dead: &HashSet<Pid>) {
        if !dead.is_empty() {
            self.known.retain(|member| !dead.contains(&member.pid));
            self.numbers.retain(|pid| !dead.contains(pid));
            self.last_pid = None;
        }
    }

    /// The numbers of all processes now, parents before their children as far as the kernel lists them so.
    fn list(&mut self) -> Result<Vec<Pid>> {
        match &mut self.source {
            Source::Descendants(descendants) => {
                descendants.look()?;
                let mut members: Vec<_> =
                    descendants.members().iter().filter(|(_, stat)| !stat.has_ended()).collect();
                members.sort_by_key(|(pid, stat)| (stat.starttime, **pid));
                Ok(members.into_iter().map(|(pid, _)| *pid).collect())
            }
            Source::Group(group) => {
                let mut pids = Vec::new();
                for list in group.lists()? {
                    if !self.recorded.contains(&list) {
                        self.journal.record(&Undo::ContinueAll { members: list.clone() })?;
                        self.recorded.insert(list.clone());
                    }
                    lists::read(&list, &mut pids)?;
                }
                let lives = |&&(pid, starttime): &&(Pid, u64)| {
                    Stat::read(&self.proc, pid)
                        .is_some_and(|stat| stat.starttime == starttime && !stat.has_ended())
                };
                pids.extend(group.leaderless().iter().filter(lives).map(|(pid, _)| *pid));
                Ok(pids)
            }
        }
    }

    fn meet(&mut self, pid: Pid) -> Result<Option<Member>> {
        let pidfd = match open(pid) {
            Ok(pidfd) => Some(pidfd).filter(|_| self.descriptors.may_keep(self.known.len())),
            Err(Errno::MFILE | Errno::NFILE) => None,
            Err(Errno::SRCH) => return Ok(None),
            Err(cause) => {
                return Err(Error::io(format!("cannot open a pidfd of process {pid}"), cause.into())
                    .hint_on(
                        &[libc::ENOSYS],
                        "pidfds need Linux 5.3, and no sandbox (seccomp) that forbids them",
                    ));
            }
        };
        let Some(stat) = Stat::read(&self.proc, pid) else { return Ok(None) };
        let is_unproven = match &self.source {
            Source::Group(_) => true,
            Source::Descendants(descendants) => {
                // The family read the start time before the pidfd was opened. If it is still the same, the
                // number has been that of one process throughout.
                if descendants.members().get(&pid).is_none_or(|known| known.starttime != stat.starttime) {
                    return Ok(None);
                }
                self.journal.record(&Undo::Continue { pid, starttime: stat.starttime })?;
                false
            }
        };
        Ok(Some(Member {
            pid,
            parent: stat.parent,
            starttime: stat.starttime,
            pidfd,
            runners: Vec::new(),
            is_unproven,
            is_held: false,
            is_judged: false,
            signalled: 0,
            used: None,
            lately: None,
            waited: None,
            waited_part: 0.0,
            at_stop: None,
        }))
    }
}

impl Member {
    pub(crate) fn starttime(&self) -> u64 {
        self.starttime
    }

    pub(crate) fn is_proven(&self) -> bool {
        !self.is_unproven
    }

    /// Has these of its threads asked to stop it: those that compute.
    pub(crate) fn set_runners(&mut self, proc: &Path, busy: &[Pid]) {
        // It takes the signals for the process anyway.
        let busy = if busy == [self.pid] { &[] } else { busy };
        self.runners.retain(|runner| busy.contains(&runner.tid()));
        for &tid in busy {
            if self.runners.iter().all(|runner| runner.tid() != tid) {
                self.runners.extend(Runner::open(proc, self.pid, tid));
            }
        }
    }

    pub(crate) fn stop(&mut self, proc: &Path) -> Sent {
        // Each may be waiting for a CPU; the first that is on one stops the others as well.
        self.runners.retain(Runner::stop);
        if self.runners.is_empty() { self.signal(proc, Signal::STOP) } else { Sent::Yes }
    }

    /// Continues it, unless it may not be signalled: then it is still stopped.
    pub(crate) fn resume(&mut self, proc: &Path) -> Sent {
        let sent = self.signal(proc, Signal::CONT);
        self.is_held = sent == Sent::Refused;
        sent
    }

    pub(crate) fn signal(&self, proc: &Path, sent: Signal) -> Sent {
        let outcome = match &self.pidfd {
            Some(pidfd) => signal::send(pidfd.as_fd(), self.pid, sent),
            None => open(self.pid).and_then(|pidfd| {
                // Read after opening: if this is the process meant, then the pidfd is its.
                if Stat::read(proc, self.pid).is_some_and(|stat| stat.starttime == self.starttime) {
                    signal::send(pidfd.as_fd(), self.pid, sent)
                } else {
                    Err(Errno::SRCH)
                }
            }),
        };
        Sent::of(outcome)
    }
}

impl Sent {
    pub(super) fn of(outcome: rustix::io::Result<()>) -> Self {
        match outcome {
            Ok(()) => Self::Yes,
            Err(Errno::SRCH) => Self::Gone,
            // Whoever is held and taken for gone would be stopped for ever.
            Err(_) => Self::Refused,
        }
    }
}

/// `ESRCH` where there is no process of this number: it may be another one's thread's.
fn open(pid: Pid) -> rustix::io::Result<OwnedFd> {
    let opened = process::pidfd_open(process::Pid::from_raw(pid).ok_or(Errno::SRCH)?, PidfdFlags::empty());
    opened.map_err(|cause| if matches!(cause, Errno::INVAL | Errno::NOENT) { Errno::SRCH } else { cause })
}

/// Whether this process may signal another, without doing so.
fn may_signal(pid: Pid) -> Result<()> {
    match process::Pid::from_raw(pid).map(process::test_kill_process) {
        Some(Err(Errno::PERM)) => {
            Err(Error::not_permitted(format!("process {pid} may not be stopped by this user"))
                .hint("run as the user it belongs to, or as root"))
        }
        _ => Ok(()),
    }
}

/// The descriptors that may be kept: half of those allowed, for the program that embeds this needs some, too.
/// Raises the limit when it is reached, and puts it back when dropped.
#[derive(Debug)]
struct Descriptors {
    keep: usize,
    before: Option<(rlim_t, rlim_t)>,
}

/// As many as are used where there is no limit, and the usual limit, where a sandbox does not tell it.
const MANY_DESCRIPTORS: rlim_t = 1 << 20;
const USUAL_DESCRIPTORS: rlim_t = 1024;

impl Descriptors {
    fn new() -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL_DESCRIPTORS, |(current, _)| current);
        Self { keep: half(limit), before: None }
    }

    fn may_keep(&mut self, kept: usize) -> bool {
        if kept >= self.keep
            && self.before.is_none()
            && let Ok((current, most)) = getrlimit(Resource::RLIMIT_NOFILE)
        {
            self.before = Some((current, most));
            if setrlimit(Resource::RLIMIT_NOFILE, most, most).is_ok() {
                self.keep = half(most);
            }
        }
        kept < self.keep
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        if let Some((current, most)) = self.before.take() {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, current, most);
        }
    }
}

fn half(limit: rlim_t) -> usize {
    (limit.min(MANY_DESCRIPTORS) / 2) as usize
}
