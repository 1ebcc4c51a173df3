//! The command's process, as its parent sees it.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use emu_core::{Error, ErrorKind, Pid, Result, Roots};
use nix::sys::signal::Signal;
use rustix::process::{
    PidfdFlags, Signal as RawSignal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::exit::Exit;

/// What has happened to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// It was stopped by this signal.
    Stopped(Signal),
    /// It was continued.
    Continued,
    /// It has ended, and emu will end like this.
    Ended(Exit),
}

/// The command's process.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
    fd: OwnedFd,
    stat: PathBuf,
}

impl Child {
    /// The child of that number, not waited for yet.
    ///
    /// # Errors
    /// The kernel gives no descriptor for it (pidfds need Linux 5.3).
    pub(super) fn open(roots: &Roots, pid: Pid) -> Result<Self> {
        let failed = |cause| Error::io(format!("cannot watch process {pid}"), cause);
        let raw = rustix::process::Pid::from_raw(pid)
            .ok_or_else(|| Error::new(ErrorKind::Failed, format!("{pid} is not a process ID")))?;
        let fd = pidfd_open(raw, PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
        Ok(Self { pid, fd, stat: roots.proc.join(format!("{pid}/stat")) })
    }

    /// Its process ID.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends it a signal; that it has ended meanwhile is no failure.
    ///
    /// # Errors
    /// It runs as another user by now, who does not take signals from us.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let Some(raw) = RawSignal::from_named_raw(signal as i32) else { return Ok(()) };
        match pidfd_send_signal(&self.fd, raw) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(e) => Err(Error::io(format!("cannot pass {signal} on to the command"), e.into())),
        }
    }

    /// Whether it is stopped now.
    pub(super) fn is_stopped(&self) -> bool {
        fs::read_to_string(&self.stat).is_ok_and(|stat| state(&stat) == Some('T'))
    }

    /// The oldest news that has not been told.
    ///
    /// # Errors
    /// Somebody else has waited for the child.
    pub(super) fn news(&self) -> Result<Option<News>> {
        let options =
            WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.fd.as_fd()), options)
            .map_err(|e| Error::io("cannot wait for the command", e.into()))?;
        Ok(status.and_then(|status| {
            if let Some(code) = status.exit_status() {
                Some(News::Ended(Exit::Command(code as u8)))
            } else if let Some(signal) = status.terminating_signal() {
                Some(News::Ended(Exit::Signal(signal)))
            } else if let Some(signal) = status.stopping_signal() {
                Signal::try_from(signal).ok().map(News::Stopped)
            } else {
                Some(News::Continued)
            }
        }))
    }
}

/// The state letter of a `/proc/PID/stat`, which follows the name in parentheses (`proc_pid_stat(5)`).
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert_eq!(state("12 (a) T b) S 1 2"), Some('S'));
        assert_eq!(state("12 (sh) T 1"), Some('T'));
        assert_eq!(state("nonsense"), None);
    }

    #[test]
    fn news_of_a_child_come_in_order() {
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let child = Child::open(&Roots::system(), process.id() as Pid).unwrap();
        let next = || {
            let begin = Instant::now();
            loop {
                if let Some(news) = child.news().unwrap() {
                    return news;
                }
                assert!(begin.elapsed() < Duration::from_secs(10));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        assert_eq!(child.news().unwrap(), None);
        child.signal(Signal::SIGSTOP).unwrap();
        assert_eq!(next(), News::Stopped(Signal::SIGSTOP));
        assert!(child.is_stopped());
        child.signal(Signal::SIGCONT).unwrap();
        assert_eq!(next(), News::Continued);
        child.signal(Signal::SIGTERM).unwrap();
        assert_eq!(next(), News::Ended(Exit::Signal(15)));
        assert!(!child.is_stopped());
        child.signal(Signal::SIGTERM).unwrap();
        // Its end has been taken above.
        assert!(process.wait().is_err());
    }
}
