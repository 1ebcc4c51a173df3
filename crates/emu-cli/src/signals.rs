//! Signals read in order from a descriptor instead of interrupting: they are blocked before any thread is made,
//! so that no thread of emu can be hit by one.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use emu_core::{Error, Result, SignalMask};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What a terminal sends to its whole foreground group, a command of ours included.
const FROM_TERMINAL: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// What else is read: requests of other processes, an alarm, and news of children.
const OTHERS: [Signal; 5] =
    [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGCHLD];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) signal: Signal,
    /// `None` for the kernel.
    pub(crate) sender: Option<i32>,
}

impl Received {
    pub(crate) fn is_from_terminal(self) -> bool {
        // The leader of a session alone is told that its terminal has hung up (`tty_signal_session_leader`).
        let is_for_all = self.signal != Signal::SIGHUP || getsid(None) != Ok(Pid::this());
        self.sender.is_none() && FROM_TERMINAL.contains(&self.signal) && is_for_all
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// A signal that asks to end, or the end of the time.
    End,
    Stop,
    Nothing,
}

/// The signals that emu handles itself, blocked; what else comes acts as always.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    original: SignalMask,
    /// Whether a hang-up was ignored when emu was started, as by `nohup`. The kernel keeps even an ignored signal for a
    /// descriptor while it is blocked.
    ignores_hang_up: bool,
}

impl Signals {
    /// Blocks the signals and opens their descriptor. To be called before any thread is made.
    pub(crate) fn block() -> Result<Self> {
        let set: SigSet = FROM_TERMINAL.into_iter().chain(OTHERS).collect();
        let failed = |e: nix::Error| Error::io("cannot take over signals", e.into());
        let original = SignalMask::current()?;
        // Blocked, but of no interest: the write that is beyond the limit of the size of files fails with EFBIG.
        let blocked: SigSet = set.iter().chain([Signal::SIGXFSZ]).collect();
        blocked.thread_block().map_err(failed)?;
        let fd =
            SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map_err(failed)?;
        Ok(Self { fd, original, ignores_hang_up: ignores(Signal::SIGHUP) })
    }

    /// The mask that was in force before, for the command.
    pub(crate) fn original(&self) -> SignalMask {
        self.original
    }

    pub(crate) fn is_ending(&self, received: Received) -> bool {
        match received.signal {
            Signal::SIGHUP => !self.ignores_hang_up,
            Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM | Signal::SIGALRM => true,
            _ => false,
        }
    }

    /// Waits for a signal, for one of `others`, or for the time to pass; tells whether one of `others` is readable.
    pub(crate) fn wait(&self, others: &[BorrowedFd<'_>], limit: Duration) -> Result<bool> {
        let all: Vec<_> = std::iter::once(self.fd.as_fd()).chain(others.iter().copied()).collect();
        Ok(readable(&all, limit)?.into_iter().skip(1).any(|is_readable| is_readable))
    }

    /// Waits for a signal to stop or to end, for `end`, for one of `others` to become readable, or for `look` to pass.
    pub(crate) fn wait_for_end(
        &self,
        others: &[BorrowedFd<'_>],
        end: Option<Instant>,
        look: Duration,
    ) -> Result<Came> {
        if end.is_some_and(|end| end <= Instant::now()) {
            return Ok(Came::End);
        }
        self.wait(others, until(end, look))?;
        while let Some(received) = self.next()? {
            match received.signal {
                Signal::SIGTSTP => return Ok(Came::Stop),
                _ if self.is_ending(received) => return Ok(Came::End),
                _ => {}
            }
        }
        Ok(Came::Nothing)
    }

    pub(crate) fn next(&self) -> Result<Option<Received>> {
        let info = self.fd.read_signal().map_err(|e| Error::io("cannot read signals", e.into()))?;
        Ok(info.and_then(|info| {
            let signal = Signal::try_from(info.ssi_signo as i32).ok()?;
            // The codes of the kernel are above 0, those of processes (SI_USER, SI_QUEUE, SI_TKILL) are not.
            let sender = (info.ssi_code <= 0).then_some(info.ssi_pid as i32);
            Some(Received { signal, sender })
        }))
    }
}

fn ignores(signal: Signal) -> bool {
    let status = procfs::process::Process::myself().and_then(|process| process.status());
    status.is_ok_and(|status| status.sigign & (1 << (signal as u32 - 1)) != 0)
}

/// Whether emu is in the foreground of a terminal: a shell waits until it ends or stops.
pub(crate) fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

/// Waits for one of these to become readable, or for the time to pass; tells which are.
pub(crate) fn readable(fds: &[BorrowedFd<'_>], limit: Duration) -> Result<Vec<bool>> {
    let mut fds: Vec<_> = fds.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos().into() };
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(e) => Err(Error::io("cannot wait for signals", e.into())),
    }
}

pub(crate) fn until(due: Option<Instant>, most: Duration) -> Duration {
    due.map_or(most, |due| due.saturating_duration_since(Instant::now()).min(most))
}

/// Stops emu itself, as a shell expects of a job; returns when it is continued. The signal goes to the process, so that it
/// merges with one that is pending: two would stop emu twice.
pub(crate) fn stop_self(signal: Signal) {
    let mut only = SigSet::empty();
    only.add(signal);
    let _ = kill(Pid::this(), signal);
    let _ = only.thread_unblock();
    let _ = only.thread_block();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_to_wait_is_no_end() {
        let signals = Signals::block().unwrap();
        let came = |end| signals.wait_for_end(&[], end, Duration::ZERO).unwrap();
        assert_eq!(came(None), Came::Nothing);
        assert_eq!(came(Some(Instant::now())), Came::End);
    }

    #[test]
    fn a_write_beyond_the_limit_of_files_ends_nothing() {
        let signals = Signals::block().unwrap();
        assert!(SigSet::thread_get_mask().unwrap().contains(Signal::SIGXFSZ));
        nix::sys::signal::raise(Signal::SIGXFSZ).unwrap();
        assert_eq!(signals.next().unwrap(), None);
    }

    #[test]
    fn only_signals_of_the_kernel_to_the_group_are_the_terminals() {
        let received = |signal, sender| Received { signal, sender };
        assert!(received(Signal::SIGINT, None).is_from_terminal());
        assert!(!received(Signal::SIGINT, Some(1)).is_from_terminal());
        // An alarm is sent by the kernel too, but to emu alone.
        assert!(!received(Signal::SIGALRM, None).is_from_terminal());
    }
}
