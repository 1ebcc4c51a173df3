//! The threads of a process that are asked to stop it.
//!
//! The kernel gives a signal for a process to its first thread, unless that one has another to take
//! (`complete_signal`, kernel/signal.c). Where it sleeps and others compute on all CPUs, it waits for one, for some
//! ms, while the process goes on. A thread that computes takes a signal of its own at once, which stops the whole
//! process (signal(7), "Signal mask and pending signals").

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{self, PidfdFlags, Signal};

use crate::sys::Pid;

/// Asks for a pidfd of a thread, of Linux 6.9 or later.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::PIDFD_THREAD);

#[derive(Debug)]
pub(super) struct Runner {
    tid: Pid,
    pidfd: OwnedFd,
}

impl Runner {
    /// A thread of the process `pid`; `None` where it has ended, or the kernel has no pidfds of threads.
    pub(super) fn open(proc: &Path, pid: Pid, tid: Pid) -> Option<Self> {
        let pidfd = process::pidfd_open(process::Pid::from_raw(tid)?, THREAD).ok()?;
        // Looked at after opening: if the process has a thread of this number now, the pidfd is its.
        proc.join(format!("{pid}/task/{tid}")).exists().then_some(Self { tid, pidfd })
    }

    pub(super) fn tid(&self) -> Pid {
        self.tid
    }

    /// Has it stop its process; returns whether it is there to do so.
    pub(super) fn stop(&self) -> bool {
        process::pidfd_send_signal(&self.pidfd, Signal::STOP).is_ok()
    }
}
