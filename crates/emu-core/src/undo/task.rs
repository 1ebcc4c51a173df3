//! Identifying a process despite reused numbers, and acting on it. Nothing here allocates.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use super::places::{Located, of_process};
use super::record::Task;
use crate::process::{STAT_MAX, Stat};

pub(super) fn stat(proc: BorrowedFd<'_>, pid: crate::sys::Pid) -> rustix::io::Result<Option<Stat>> {
    let mut buffer = [0; STAT_MAX];
    match (Located { folder: proc, path: of_process(pid, "stat") }).read(&mut buffer) {
        Ok(text) => Stat::parse(text).map(Some).ok_or(Errno::IO),
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// A pidfd of the process; `None` when the process has ended, even if its number is in use again.
pub(super) fn open(proc: BorrowedFd<'_>, task: Task) -> rustix::io::Result<Option<OwnedFd>> {
    let Some(pidfd) = open_number(task.pid)? else { return Ok(None) };
    // Checked after the pidfd was opened: if the start time fits now, the pidfd is of that process.
    Ok(is_same(proc, task)?.then_some(pidfd))
}

pub(super) fn open_number(pid: crate::sys::Pid) -> rustix::io::Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(Errno::SRCH) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Whether the number still belongs to the same task, be it a zombie.
pub(super) fn is_same(proc: BorrowedFd<'_>, task: Task) -> rustix::io::Result<bool> {
    Ok(stat(proc, task.pid)?.is_some_and(|now| now.starttime == task.starttime))
}

/// Whether the task has this process's user, or this is root: emu may have capabilities that its user lacks.
pub(super) fn is_ours(proc: BorrowedFd<'_>, pid: crate::sys::Pid) -> rustix::io::Result<bool> {
    let own = geteuid();
    if own.is_root() {
        return Ok(true);
    }
    let file = Located { folder: proc, path: of_process(pid, "status") }.open(OFlags::RDONLY)?;
    // The users stand in the first lines of a text that may be long.
    let mut buffer = [0; 1024];
    let length = rustix::io::read(file, &mut buffer)?;
    crate::process::has_user(buffer.get(..length).unwrap_or_default(), own.as_raw()).ok_or(Errno::IO)
}

/// Whether the process runs: it exists, and one of its threads has not ended.
pub(super) fn is_alive(proc: BorrowedFd<'_>, task: Task) -> rustix::io::Result<bool> {
    // A thread that is not its process's first has no pidfd (EINVAL, since Linux 6.9 ENOENT).
    match open(proc, task) {
        Ok(Some(pidfd)) => Ok(!ends_within(&pidfd, Duration::ZERO)?),
        Ok(None) | Err(Errno::INVAL | Errno::NOENT) => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Waits until every thread of the process has ended; false when that takes longer than `patience`.
pub(super) fn ends_within(pidfd: &OwnedFd, patience: Duration) -> rustix::io::Result<bool> {
    let timeout = Timespec { tv_sec: patience.as_secs() as _, tv_nsec: patience.subsec_nanos().into() };
    loop {
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::tests::{Sleeper, proc};
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let sleeper = Sleeper::start();
        let task = sleeper.task();
        let proc = proc();
        assert!(open(proc.as_fd(), task).unwrap().is_some());
        assert!(is_alive(proc.as_fd(), task).unwrap());
        let other = Task { starttime: task.starttime + 1, ..task };
        assert!(open(proc.as_fd(), other).unwrap().is_none());
        assert!(!is_alive(proc.as_fd(), other).unwrap());
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut sleeper = Sleeper::start();
        let task = sleeper.task();
        sleeper.0.kill().unwrap();
        sleeper.reaches('Z');
        assert!(is_same(proc().as_fd(), task).unwrap());
        assert!(!is_alive(proc().as_fd(), task).unwrap());
        sleeper.0.wait().unwrap();
        assert!(!is_same(proc().as_fd(), task).unwrap());
    }
}
