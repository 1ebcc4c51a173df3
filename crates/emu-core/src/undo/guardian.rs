//! The guardian undoes all changes when emu is killed, and lets the tasks run while emu is stopped.
//!
//! It is a fork of emu, which may have had many threads: it only makes system calls and uses memory from before (see
//! [`fork`]).

use std::ffi::CStr;
use std::fmt::{self, Write};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, getpid, pidfd_open, setsid};

use super::field::Field;
use super::header::LiveSession;
use super::peers::Peers;
use super::places::{Cause, FixedText, Places, write_once};
use super::replay::{finish, let_run, undo};
use super::state::StateDir;
use super::task;
use crate::process::Stat;
use crate::sys::Pid;
use crate::sys::fork::{Child, fork};
use crate::sys::shared::SharedCounter;
use crate::sys::time;

/// How often the guardian looks whether emu is stopped. A look takes its time from the tasks, where they have little of a CPU.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 500_000_000 };

/// How often it looks whether emu has ended, where it can wait for nothing.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Guardian {
    child: Child,
    /// Closed when this process dies or runs another program.
    #[cfg_attr(not(test), expect(dead_code, reason = "its closing tells the guardian that emu has ended"))]
    pub(super) alive: OwnedFd,
    /// Not 0 while the session is paused: emu may be stopped then, and stops no task.
    paused: SharedCounter,
}

impl Guardian {
    /// Starts the guardian of the session file `name`. It shares the lock of `locked` from then on.
    pub(super) fn start(
        dir: &StateDir,
        name: &CStr,
        locked: &File,
        places: &Places,
        window: &mut [u8],
        session: &LiveSession,
    ) -> io::Result<Self> {
        // Two signs of emu's end: the pidfd tells its death, even if a child of emu has inherited the pipe; the pipe
        // tells that emu runs another program.
        let (closed, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        let emu = pidfd_open(getpid(), PidfdFlags::empty())?;
        let stderr = io::stderr();
        let [proc, sys] = places.folders();
        let (journal, folder) = (locked.as_fd(), dir.folder());
        let keep = [closed.as_fd(), emu.as_fd(), journal, folder, proc, sys, stderr.as_fd()];
        let (closed, emu, stderr) = (closed.as_fd(), emu.as_fd(), stderr.as_fd());
        let (paused, own) = (SharedCounter::new()?, std::process::id() as Pid);
        let watch =
            Watch { closed, emu, own, paused: &paused, journal, folder, name, places, session, stderr };
        #[expect(unsafe_code, reason = "a fork has a contract")]
        // SAFETY: `run` only makes system calls, on the kept descriptors and on memory from before the fork. A test
        // aborts where it allocates.
        let child = unsafe { fork(keep, || watch.run(window)) }?;
        Ok(Self { child, alive, paused })
    }

    pub(super) fn set_paused(&self, is_paused: bool) {
        self.paused.store(is_paused.into(), Ordering::Relaxed);
    }

    /// Its process, where that has ended.
    pub(super) fn ended(&self) -> Option<Pid> {
        self.child.has_ended().then(|| self.child.pid())
    }

    /// Ends the guardian before it undoes anything.
    pub(super) fn end(&self) {
        self.child.end();
    }

    #[cfg(test)]
    pub(super) fn pid(&self) -> Pid {
        self.child.pid()
    }
}

struct Watch<'a> {
    closed: BorrowedFd<'a>,
    emu: BorrowedFd<'a>,
    own: Pid,
    paused: &'a SharedCounter,
    journal: BorrowedFd<'a>,
    folder: BorrowedFd<'a>,
    name: &'a CStr,
    places: &'a Places,
    session: &'a LiveSession,
    stderr: BorrowedFd<'a>,
}

impl Watch<'_> {
    fn run(&self, window: &mut [u8]) -> i32 {
        #[cfg(test)]
        crate::sys::fork::allocations::forbid();
        // Away from the terminal's signals and from any mounted folder. If this fails, undoing still works.
        let _ = setsid();
        let _ = rustix::thread::set_name(c"emu-guardian");
        let _ = rustix::process::chdir(c"/");
        self.wait(window);
        self.restore(window)
    }

    fn wait(&self, window: &mut [u8]) {
        let mut was_stopped = false;
        loop {
            // The hang-up of the pipe's other end is reported without asking for any event.
            let mut ends =
                [PollFd::new(&self.emu, PollFlags::IN), PollFd::new(&self.closed, PollFlags::empty())];
            match poll(&mut ends, Some(&LOOK)) {
                Ok(0) => {
                    let before = std::mem::replace(&mut was_stopped, self.is_stopped());
                    if was_stopped && !before && !self.session.is_tuning() {
                        let_run(self.journal, self.places, window);
                        let zone = Field::from(self.session.name.as_bytes());
                        self.say(format_args!(
                            "emu is stopped: the speed of {zone} is not kept until emu goes on"
                        ));
                    }
                }
                Ok(_) => return,
                Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) => {}
                // A sandbox may forbid it. What is left tells no more than that emu has ended.
                Err(_) => return self.wait_without_poll(),
            }
        }
    }

    /// Undoing while emu is at work would free the tasks, and leave what emu changes next.
    fn wait_without_poll(&self) {
        loop {
            // Nobody writes to the pipe: a read returns at its end.
            match rustix::io::read(self.closed, &mut [0; 1]) {
                Ok(_) => return,
                Err(Errno::INTR) => {}
                Err(_) if self.has_ended() => return,
                Err(_) => time::sleep(PAUSE),
            }
        }
    }

    fn has_ended(&self) -> bool {
        matches!(task::stat(self.places.proc(), self.own), Ok(None | Some(Stat { state: b'Z' | b'X', .. })))
    }

    /// Whether emu was stopped by a signal that it did not expect, or by a debugger.
    fn is_stopped(&self) -> bool {
        let is_expected = self.paused.load(Ordering::Relaxed) != 0;
        let stat = task::stat(self.places.proc(), self.own);
        !is_expected && matches!(stat, Ok(Some(Stat { state: b'T' | b't', .. })))
    }

    fn restore(&self, window: &mut [u8]) -> i32 {
        let zone = Field::from(self.session.name.as_bytes());
        let (what, then) = if self.session.is_tuning() {
            ("tuning for", "the machine is as before")
        } else {
            ("emulation of", "the program is no longer slowed")
        };
        let peers = Peers { folder: self.folder, own: self.name, places: self.places };
        let outcome =
            undo(self.journal, self.places, Some(peers), window, &mut |_, message| self.say(message));
        if outcome.failed > 0 {
            self.say(format_args!(
                "the {what} {zone} ended because emu died; not everything could be restored: the next emu tries again"
            ));
            return 1;
        }
        if let Err(cause) = finish(self.journal, self.folder, self.name) {
            self.say(format_args!("cannot remove the journal: {}", Cause(cause)));
        }
        let restored = if outcome.undone > 0 { "everything was restored, " } else { "" };
        self.say(format_args!("the {what} {zone} ended because emu died; {restored}{then}"));
        0
    }

    /// Writes a line to stderr, unless no one reads it.
    fn say(&self, message: fmt::Arguments<'_>) {
        let mut line = FixedText::new();
        // What is too long is cut off.
        let _ = write!(line, "emu: {message}");
        // A pipe that has room takes a whole line (PIPE_BUF), so this write cannot block.
        let patience = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let mut stderr = [PollFd::new(&self.stderr, PollFlags::OUT)];
        if poll(&mut stderr, Some(&patience)).is_ok_and(|ready| ready > 0) {
            let _ = write_once(self.stderr, line.ended_by(b'\n'));
        }
    }
}
