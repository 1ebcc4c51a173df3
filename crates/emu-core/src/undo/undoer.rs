//! The state that every kind of record needs while it is carried out: in the guardian, as all of
//! [`replay`](super::replay), so that nothing here allocates, locks or panics.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::nanosleep;
use rustix::time::Timespec;

use super::field::Field;
use super::peers::Peers;
use super::places::{Cause, Places};
use super::record::Task;
use super::task;
use crate::sys::signal;

/// How long a killed process may take to end.
const DYING: Duration = Duration::from_secs(1);

/// How long retries go on: enough for a fork storm to be caught and for dying tasks to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gravity {
    /// The change is no longer emu's to undo.
    Note,
    /// The change should have been undone; its record must be kept.
    Failure,
}

pub(super) type Report<'a> = &'a mut dyn FnMut(Gravity, fmt::Arguments<'_>);

pub(super) struct Undoer<'a, 'r> {
    pub(super) places: &'a Places,
    pub(super) peers: Option<Peers<'a>>,
    /// Whether the record is the last one made.
    pub(super) newest: bool,
    pub(super) left: &'a mut LeftFiles,
    pub(super) report: &'a mut (dyn FnMut(Gravity, fmt::Arguments<'_>) + 'r),
}

impl Undoer<'_, '_> {
    pub(super) fn note(&mut self, message: fmt::Arguments<'_>) -> bool {
        (self.report)(Gravity::Note, message);
        true
    }

    pub(super) fn failed(&mut self, message: fmt::Arguments<'_>) -> bool {
        (self.report)(Gravity::Failure, message);
        false
    }

    pub(super) fn thaw(&mut self, path: Field<'_>, value: Field<'_>) -> bool {
        let Some(file) = self.places.locate(path) else { return false };
        let written = if value.is(b"0") { file.write(b"0") } else { file.write(b"THAWED") };
        match written {
            // A group that has been removed freezes no task.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => true,
            Err(cause) => self.failed(format_args!("cannot write `{value}` to {path}: {}", Cause(cause))),
        }
    }

    pub(super) fn signal(&mut self, task: Task, sent: Signal, verb: &str) -> bool {
        let pid = task.pid;
        let deliver = |pidfd: OwnedFd| {
            signal::send(pidfd.as_fd(), pid, sent)?;
            Ok(sent != Signal::KILL || task::ends_within(&pidfd, DYING)?)
        };
        match task::open(self.places.proc(), task).and_then(|process| process.map_or(Ok(true), deliver)) {
            Ok(true) | Err(Errno::SRCH) => true,
            Ok(false) => self.failed(format_args!("process {pid} was killed but does not end")),
            Err(cause) => self.failed(format_args!("cannot {verb} process {pid}: {}", Cause(cause))),
        }
    }
}

pub(super) fn pause() {
    // If a signal interrupts the sleep, the caller retries a little earlier.
    let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() });
}

/// How many files are remembered; beyond that, a file may be reported more than once.
const LEFT_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct LeftFiles {
    hashes: [u64; LEFT_MAX],
    length: usize,
}

impl Default for LeftFiles {
    fn default() -> Self {
        Self { hashes: [0; LEFT_MAX], length: 0 }
    }
}

impl LeftFiles {
    pub(super) fn is_new(&mut self, path: Field<'_>) -> bool {
        // FNV-1a.
        let hash = path.escaped().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        if self.hashes.iter().take(self.length).any(|&known| known == hash) {
            return false;
        }
        if let Some(free) = self.hashes.get_mut(self.length) {
            *free = hash;
            self.length += 1;
        }
        true
    }
}
