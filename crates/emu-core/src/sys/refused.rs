//! System calls that emu needs, and that a sandbox may refuse.

use std::io;
use std::thread;

use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::affinity::Mask;
use super::sched;

/// `openat2(2)`, `pidfd_open(2)` and `clone3(2)`: no emulation begins without them.
pub(crate) const NEEDED_BY_ALL: [&str; 3] = ["openat2", "pidfd_open", "clone3"];

/// What a burner needs beside them.
pub(crate) const NEEDED_BY_BURNERS: [&str; 3] = ["sched_setaffinity", "sched_setscheduler", "timerfd_create"];

/// Makes these calls without an effect, and returns those that are refused: `seccomp(2)`, or a kernel that is too old.
/// `may_be_real_time` is whether this process has the privilege for a real-time policy.
pub(crate) fn find(may_be_real_time: bool) -> Vec<String> {
    let opened = openat2(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty());
    let mut tried = vec![
        ("openat2", opened.map(drop).map_err(io::Error::from)),
        ("pidfd_open", pidfd_open(getpid(), PidfdFlags::empty()).map(drop).map_err(io::Error::from)),
        ("timerfd_create", timer().map_err(io::Error::from)),
    ];
    // What concerns a thread is tried by one that ends then.
    let thread = thread::Builder::new().spawn(move || {
        let policy = if may_be_real_time { sched::set_fifo(1) } else { Ok(()) };
        let affinity = Mask::get(0).and_then(|mask| mask.set(0));
        [("sched_setaffinity", affinity.map_err(io::Error::from)), ("sched_setscheduler", policy)]
    });
    match thread {
        Ok(thread) => tried.extend(thread.join().into_iter().flatten()),
        Err(error) => tried.push(("clone3", Err(error))),
    }
    let refused = tried.into_iter().filter(|(_, result)| result.as_ref().is_err_and(is_refusal));
    refused.map(|(call, _)| call.to_owned()).collect()
}

fn timer() -> nix::Result<()> {
    TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).map(drop)
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_refused_here() {
        // Whether this thread may be of real-time priority depends on who runs the test.
        assert_eq!(find(false), Vec::<String>::new());
    }

    #[test]
    fn only_a_refusal_is_one() {
        let error = io::Error::from_raw_os_error;
        assert!(is_refusal(&error(libc::ENOSYS)) && is_refusal(&error(libc::EPERM)));
        assert!(!is_refusal(&error(libc::EMFILE)) && !is_refusal(&error(libc::EAGAIN)));
    }
}
