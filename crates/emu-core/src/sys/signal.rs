//! Signals to processes that are known by a pidfd.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process, pidfd_send_signal};

use super::Pid;

/// Sends a signal to the process of a pidfd; `ESRCH` when it has ended. Where a sandbox forbids
/// `pidfd_send_signal(2)`, by whatever error it chose, by `kill(2)`: while the process has not been waited for, its
/// number is not given to another.
pub(crate) fn send(pidfd: BorrowedFd<'_>, pid: Pid, signal: Signal) -> rustix::io::Result<()> {
    let sent = pidfd_send_signal(pidfd, signal);
    if matches!(sent, Ok(()) | Err(Errno::SRCH)) {
        return sent;
    }
    // A pidfd can be read once its process has ended.
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    if poll(&mut fds, Some(&Timespec::default()))? > 0 {
        return Err(Errno::SRCH);
    }
    kill_process(rustix::process::Pid::from_raw(pid).ok_or(Errno::SRCH)?, signal)
}
