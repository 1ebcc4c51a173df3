//! The command's process, as its parent sees it.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emu_core::{Error, ErrorKind, Pid, Result, Roots, sleep};
use nix::sys::signal::Signal;
use nix::sys::wait::{self, Id, WaitPidFlag};
use rustix::io::Errno;
use rustix::process::{
    PidfdFlags, Signal as RawSignal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::exit::Exit;

/// How long a command may take to stop after a signal to stop: some put their terminal in order first.
const STOPPING: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Stopped(Signal),
    Continued,
    /// It has ended, and emu will end like this.
    Ended(Exit),
}

#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    fd: OwnedFd,
    proc: PathBuf,
}

impl Child {
    /// Needs pidfds (Linux 5.3). The child must not have been waited for.
    pub(crate) fn open(roots: &Roots, pid: Pid) -> Result<Self> {
        let failed = |cause| Error::io(format!("cannot watch process {pid}"), cause);
        let raw = rustix::process::Pid::from_raw(pid)
            .ok_or_else(|| Error::new(ErrorKind::Failed, format!("{pid} is not a process ID")))?;
        let fd = pidfd_open(raw, PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
        Ok(Self { pid, fd, proc: roots.proc.clone() })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// That it has ended meanwhile is no failure; that it runs as another user by now, who takes no signals from emu, is one.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let Some(raw) = RawSignal::from_named_raw(signal as i32) else { return Ok(()) };
        let sent = match pidfd_send_signal(&self.fd, raw) {
            // A sandbox may forbid the call. The number is the child's until emu has waited for it.
            Err(Errno::PERM | Errno::NOSYS) => rustix::process::Pid::from_raw(self.pid)
                .map_or(Err(Errno::SRCH), |pid| rustix::process::kill_process(pid, raw)),
            sent => sent,
        };
        match sent {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(Error::io(format!("cannot pass {signal} on to the command"), e.into())),
        }
    }

    /// A parent waits for a child of `vfork(2)` until that runs another program, and acts on no signal meanwhile: when
    /// a signal to stop hits it there, only the child stops, and the parent is as good as stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        match state(&self.proc, self.pid) {
            Some('T') => true,
            Some('D') => self.children().into_iter().any(|pid| state(&self.proc, pid) == Some('T')),
            _ => false,
        }
    }

    /// Whether it stops within a moment.
    pub(crate) fn stops_soon(&self) -> bool {
        let begin = Instant::now();
        while !self.is_stopped() {
            if begin.elapsed() > STOPPING {
                return false;
            }
            sleep(Duration::from_millis(2));
        }
        true
    }

    /// Takes the ends of other children, whose own parents have left them behind.
    pub(crate) fn reap_others(&self) {
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        while let Ok(status) = wait::waitid(Id::All, ended | WaitPidFlag::WNOWAIT)
            && let Some(pid) = status.pid().filter(|pid| pid.as_raw() != self.pid)
            && wait::waitid(Id::Pid(pid), ended).is_ok()
        {}
    }

    fn children(&self) -> Vec<Pid> {
        let pid = self.pid;
        let list =
            fs::read_to_string(self.proc.join(format!("{pid}/task/{pid}/children"))).unwrap_or_default();
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// The oldest news that has not been told.
    pub(crate) fn news(&self) -> Result<Option<News>> {
        let options =
            WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let status = match waitid(WaitId::PidFd(self.fd.as_fd()), options) {
            // `Gated` has waited for a child that could not become the command, and says why.
            Err(Errno::CHILD) => return Ok(Some(News::Ended(Exit::Failure))),
            status => status.map_err(|e| Error::io("cannot wait for the command", e.into()))?,
        };
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

fn state(proc: &Path, pid: Pid) -> Option<char> {
    state_in(&fs::read_to_string(proc.join(format!("{pid}/stat"))).ok()?)
}

/// The state letter of a `/proc/PID/stat`, which follows the name in parentheses (`proc_pid_stat(5)`).
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert_eq!(state_in("12 (a) T b) S 1 2"), Some('S'));
        assert_eq!(state_in("12 (sh) T 1"), Some('T'));
        assert_eq!(state_in("nonsense"), None);
    }

    #[test]
    fn a_parent_of_a_stopped_vfork_child_counts_as_stopped() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: Pid, state: char, children: &str| {
            let folder = proc.path().join(format!("{pid}/task/{pid}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("children"), children).unwrap();
            fs::write(proc.path().join(format!("{pid}/stat")), format!("{pid} (sh) {state} 1")).unwrap();
        };
        let fd = OwnedFd::from(fs::File::open("/dev/null").unwrap());
        let child = Child { pid: 1, fd, proc: proc.path().to_owned() };
        assert!(!child.is_stopped());
        for (parent, grandchild, stopped) in
            [('T', 'S', true), ('S', 'T', false), ('D', 'S', false), ('D', 'T', true), ('Z', 'T', false)]
        {
            process(1, parent, "2 3 ");
            process(2, 'S', "");
            process(3, grandchild, "");
            assert_eq!(child.is_stopped(), stopped, "{parent} {grandchild}");
        }
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
