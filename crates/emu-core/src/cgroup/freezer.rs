//! Freezing and thawing a cgroup, and checking that it is frozen.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;

use super::folder::Folder;
use crate::control_file;
use crate::error::{Error, Result};
use crate::sys::time::{self, Nanos};
use crate::undo::{Journal, Undo};

/// The files and words of one version (Documentation/admin-guide/cgroup-v2.rst; cgroup-v1/freezer-subsystem.rst).
#[derive(Debug)]
struct Words {
    control: &'static str,
    freeze: &'static str,
    thaw: &'static str,
    /// The file that tells whether every task is frozen, and the text for that.
    state: &'static str,
    frozen: &'static str,
}

const V1: Words = Words {
    control: "freezer.state",
    freeze: "FROZEN",
    thaw: "THAWED",
    state: "freezer.state",
    frozen: "FROZEN",
};

const V2: Words =
    Words { control: "cgroup.freeze", freeze: "1", thaw: "0", state: "cgroup.events", frozen: "frozen 1" };

/// The first pause between two reads of the state, in nanoseconds; each pause is twice the one before. Neither version notifies
/// in time that a group is frozen: version 1 not at all, version 2 at most once in 10 ms (`CGROUP_FILE_NOTIFY_MIN_INTV`).
const FIRST_PAUSE: Nanos = 40_000;

const LAST_PAUSE: Nanos = 5_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frozen {
    /// Before the request.
    pub(crate) asked: Nanos,
    /// When the kernel had signalled every task: running tasks have been interrupted.
    pub(crate) told: Nanos,
    /// When every task was seen to be frozen; `None` when not before the deadline.
    pub(crate) seen: Option<Nanos>,
}

/// Dropping it thaws the group.
#[derive(Debug)]
pub(crate) struct Freezer {
    words: &'static Words,
    path: PathBuf,
    control: File,
    state: File,
    /// Reports writes of other programs to the control file; `None` where no inotify watch could be had.
    watch: Option<OwnedFd>,
    /// Also `true` where emu may have frozen the group.
    is_frozen: bool,
    /// Another program had frozen the group at the last look.
    is_theirs: bool,
    journal: Journal,
    /// Whether the journal has the group thawed.
    is_recorded: bool,
}

impl Freezer {
    /// For a group that is not frozen. The journal has a record for thawing it from now on.
    pub(crate) fn open(folder: &Folder, journal: &Journal) -> Result<Self> {
        let words = if folder.version == 2 { &V2 } else { &V1 };
        let path = folder.path.join(words.control);
        let current = control_file::read(&path).map_err(|error| {
            error.hint(
                "cgroup.freeze needs Linux 5.2, and the root group has none; use another cgroup or method",
            )
        })?;
        if current != words.thaw {
            return Err(Error::unavailable(format!(
                "{} is `{current}`: somebody else has frozen it",
                path.display()
            ))
            .hint(format!("thaw it first: echo {} > {}", words.thaw, path.display())));
        }
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| Error::file("open", &path, e))?;
        let state_path = folder.path.join(words.state);
        let state = File::open(&state_path).map_err(|e| Error::file("open", &state_path, e))?;
        let watch = watch(&path).ok();
        let journal = journal.clone();
        let (is_frozen, is_theirs, is_recorded) = (false, false, false);
        let mut freezer =
            Self { words, path, control, state, watch, is_frozen, is_theirs, journal, is_recorded };
        freezer.record()?;
        Ok(freezer)
    }

    /// Has the journal thaw the group.
    fn record(&mut self) -> Result<()> {
        if !self.is_recorded {
            self.journal.record(&Undo::Thaw { file: self.path.clone(), value: self.words.thaw.into() })?;
            self.is_recorded = true;
        }
        Ok(())
    }

    /// What another program has frozen stays so, however emu ends. Without room for the record the journal thaws it.
    fn leave(&mut self) {
        self.is_recorded = self.is_recorded && self.journal.record(&Undo::Continued).is_err();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// To be asked before each freeze: another program that has frozen the group has to thaw it.
    pub(crate) fn is_frozen_by_others(&mut self) -> bool {
        let is_theirs = !self.is_frozen && self.reads_other(self.words.thaw);
        let was_theirs = std::mem::replace(&mut self.is_theirs, is_theirs);
        if is_theirs {
            self.leave();
        }
        // A program that has just thawed it may not have closed the file yet, which would look like a freeze.
        was_theirs || self.is_theirs
    }

    fn reads_other(&self, word: &str) -> bool {
        let mut buffer = [0; 16];
        let Ok(length) = self.control.read_at(&mut buffer, 0) else { return false };
        buffer.get(..length).unwrap_or_default().trim_ascii() != word.as_bytes()
    }

    /// Whether another program has written to the control file since the last call: others open and close the file, while emu
    /// keeps it open.
    fn has_been_written(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 1024];
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        let mut is_written = false;
        while let Ok(event) = reader.next() {
            is_written |= event.events().contains(inotify::ReadFlags::CLOSE_WRITE);
        }
        is_written
    }

    /// Freezes the group, and checks until `deadline`, at least once, whether every task is frozen. A task in an
    /// uninterruptible wait delays the group as a whole. Makes no allocation, but after another program has frozen it. After an
    /// error the group is thawed; a group that has been removed counts as frozen.
    pub(crate) fn freeze(&mut self, deadline: Nanos) -> Result<Frozen> {
        self.record()?;
        let asked = time::now();
        self.is_frozen = true;
        let written = self.write(self.words.freeze);
        let told = time::now();
        // Forget earlier writes.
        self.has_been_written();
        if let Err(error) = written {
            let _ = self.thaw();
            return Err(error);
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let is_frozen = self.reads_frozen();
            let now = time::now();
            match is_frozen {
                Ok(true) => return Ok(Frozen { asked, told, seen: Some(now) }),
                Ok(false) if now + pause >= deadline => return Ok(Frozen { asked, told, seen: None }),
                Ok(false) => time::sleep(time::span(pause)),
                Err(error) => {
                    let _ = self.thaw();
                    return Err(error);
                }
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Returns the middle between request and completion, around which the tasks begin to run. If they preempt this thread
    /// meanwhile, that time counts as theirs. A group that has been removed needs no thawing, and one that another program has
    /// frozen meanwhile stays frozen: [`is_theirs`](Self::is_theirs) tells.
    pub(crate) fn thaw(&mut self) -> Result<Nanos> {
        if self.is_frozen && self.has_been_written() && self.reads_other(self.words.thaw) {
            (self.is_frozen, self.is_theirs) = (false, true);
            self.leave();
            return Ok(time::now());
        }
        let (before, cpu) = (time::now(), time::thread_cpu());
        self.write(self.words.thaw)?;
        self.is_frozen = false;
        Ok(before + (time::now() - before).min(time::thread_cpu() - cpu) / 2)
    }

    /// Whether another program had frozen the group at the last look, or froze it during the last stop.
    pub(crate) fn is_theirs(&self) -> bool {
        self.is_theirs
    }

    fn write(&mut self, word: &str) -> Result<()> {
        let mut written = self.control.write_at(word.as_bytes(), 0);
        if written.as_ref().is_err_and(is_gone) {
            written = self.open_again().and_then(|()| self.control.write_at(word.as_bytes(), 0));
        }
        match written {
            Ok(_) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(Error::io(format!("cannot write `{word}` to {}", self.path.display()), error)),
        }
    }

    /// A service that is restarted has a new group of the same name.
    fn open_again(&mut self) -> io::Result<()> {
        let control = OpenOptions::new().read(true).write(true).open(&self.path)?;
        self.state = File::open(self.path.with_file_name(self.words.state))?;
        self.control = control;
        self.watch = watch(&self.path).ok();
        Ok(())
    }

    fn reads_frozen(&self) -> Result<bool> {
        let mut buffer = [0; 128];
        match self.state.read_at(&mut buffer, 0) {
            Ok(length) => {
                let text = std::str::from_utf8(buffer.get(..length).unwrap_or_default()).unwrap_or_default();
                Ok(text.lines().any(|line| line == self.words.frozen))
            }
            Err(error) if is_gone(&error) => Ok(true),
            Err(error) => Err(Error::io(format!("cannot read the state of {}", self.path.display()), error)),
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        if self.is_frozen {
            // If this fails, the journal still has the record.
            let _ = self.thaw();
        }
    }
}

/// Watches for a writer that closes the file.
fn watch(path: &Path) -> io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&watch, path, inotify::WatchFlags::CLOSE_WRITE)?;
    Ok(watch)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT))
}
