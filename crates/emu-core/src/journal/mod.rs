//! The undo journal: nothing stays changed, however emu ends.
//!
//! Every change to the machine is first a record in a file: how to undo it. The file is worked off, newest
//! record first, when the session ends; when emu is killed, by its guardian, a small process made for that;
//! when that is killed too, by the next emu or [`restore`]. All of them run the same code.

mod field;
mod file;
mod group;
mod guardian;
mod lines;
mod places;
mod record;
mod restore;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod undo;

pub use record::Undo;
pub use restore::{RestoreReport, live_sessions, restore};
pub use state::LiveSession;

use std::any::Any;
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::zone::Pid;
use crate::{CpuList, Error, ErrorKind, Result, Roots, control_file};
use field::Field;
use file::Form;
use guardian::Guardian;
use lines::LINE_MAX;
use places::Places;
use record::Step;
use restore::restore_in;
use state::{Header, StateDir, boot, lock_within};
use undo::{Gravity, check, finish, undo};

/// The buffer through which a journal is read.
const WINDOW: usize = 2 * LINE_MAX;

/// The longest journal, in bytes: some 400 000 records of a process.
const JOURNAL_MAX: u64 = 16 << 20;

/// The undo journal of one session: what an emulation changes goes through it.
///
/// Clones share the session, for controllers on threads of their own. Dropping the last one undoes whatever
/// [`undo_all`](Self::undo_all) has not undone. In a child that this process forks it does nothing.
///
/// The guardian is a fork of this process, made in [`open`](Self::open). It shares the memory as it is then:
/// pages written before and after are copied by the kernel, once, when they are next written.
#[derive(Clone)]
pub struct Journal(Arc<Mutex<Session>>);

impl Journal {
    /// Begins a session: undoes what dead emus have left, makes sure that no other emu has one of the CPUs,
    /// and starts the guardian.
    ///
    /// A session without CPUs is for the machine as a whole. There is one of that kind at a time; emulations may go
    /// on beside it.
    ///
    /// What was undone, and what of it failed, is in [`notes`](Self::notes).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when a live session has one of the CPUs, naming it; else the state folder
    /// cannot be used, there is no procfs, or the guardian cannot be started.
    pub fn open(roots: &Roots, cpus: &CpuList, method: &str, name: &str) -> Result<Self> {
        let places = Places::open(roots)?;
        let header = Header::new(roots, &places, cpus, method, name)?;
        let dir = StateDir::open(roots)?;
        let lock = dir.lock()?;
        let report = restore_in(&dir, &lock, &places, &boot(roots))?;
        if let Some(other) = report.live.iter().find(|other| other.is_in_the_way_of(cpus)) {
            let LiveSession { pid, cpus: theirs, method, name } = other;
            if cpus.is_empty() {
                return Err(Error::unavailable(format!(
                    "this machine is tuned already: by emu {pid}, for {name}"
                ))
                .hint("end that one first; what is tuned for it is tuned for all"));
            }
            let shared = theirs.intersection(cpus);
            return Err(Error::unavailable(format!(
                "CPUs {shared} are emulated already: by emu {pid}, with {method} for {name} on CPUs {theirs}"
            ))
            .hint("choose other CPUs with --cpus, or end that emulation first"));
        }
        let (file_name, file) = dir.create(header.task)?;
        let mut notes: Vec<_> = report.restored.iter().map(|what| format!("restored {what}")).collect();
        notes.extend(report.notes.into_iter().chain(report.problems));
        // Only now is there something to clean up on failure.
        Session::begin(&header, dir, file_name, file, places, notes)
            .map(|session| Self(Arc::new(Mutex::new(session))))
    }

    /// Writes a record and has it on disk before it returns. To be called before the change is made.
    ///
    /// Several [`Undo::File`] of one file with the same old value need not repeat each other's new values.
    ///
    /// # Errors
    /// The record names a path outside sysfs and procfs or is otherwise one that would not be carried out;
    /// there is no space for it; the session has ended. The change must not be made then.
    pub fn record(&self, undo: &Undo) -> Result<()> {
        self.session().record(undo)
    }

    /// Changes a control file, to be changed back when the session ends; returns what it holds now, without
    /// surrounding white space. The kernel may have made something else of the value.
    ///
    /// Values written before to the same file are told apart from those of others, so this may be called any
    /// number of times; only the first time for a value costs a record. Files of a group that is recorded
    /// as [`Undo::Group`] need no record: they go with the group.
    ///
    /// # Errors
    /// The file cannot be read, the kernel refuses the value, or it cannot be recorded.
    pub fn write_file(&self, path: &Path, value: &str) -> Result<String> {
        self.session().write_file(path, Form::Plain, value.trim())
    }

    /// As [`write_file`](Self::write_file), for a file that reads as all its choices with the one in force in
    /// brackets; returns the one in force.
    ///
    /// # Errors
    /// As [`write_file`](Self::write_file).
    pub fn write_choice(&self, path: &Path, value: &str) -> Result<String> {
        self.session().write_file(path, Form::Choice, value.trim())
    }

    /// Keeps a helper of the session, such as a thread, until it ends: it is dropped before anything is undone, and
    /// at once where the session has ended. It must not have a clone of the journal.
    pub(crate) fn keep(&self, helper: impl Any + Send) {
        let mut session = self.session();
        if matches!(session.phase, Phase::Open) {
            session.kept.push(Box::new(helper));
        }
    }

    /// Ends the session: undoes every record, newest first, and removes the journal. Whoever has a clone
    /// can record nothing more. A second call does nothing and returns the same.
    ///
    /// # Errors
    /// [`ErrorKind::RestoreIncomplete`] naming what could not be undone; the rest is. The journal stays for
    /// [`restore`].
    pub fn undo_all(&self) -> Result<()> {
        self.session().undo()
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.session().path()
    }

    /// What the user should know: that a dead emu's changes were undone, that a value was left because
    /// somebody else has changed it.
    pub fn notes(&self) -> Vec<String> {
        self.session().notes.clone()
    }

    /// The session, even if a thread has panicked while it had it: what is recorded has to be undone.
    fn session(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Journal").field(&self.path()).finish()
    }
}

/// What we know of a control file that we have changed.
#[derive(Debug, Clone)]
struct Written {
    form: Form,
    old: String,
    ours: Vec<String>,
}

impl Written {
    fn knows(&self, value: &str) -> bool {
        self.old == value || self.ours.iter().any(|ours| ours == value)
    }

    fn undo(&self, path: &Path) -> Undo {
        self.undo_with(path, self.ours.clone())
    }

    fn undo_with(&self, path: &Path, new: Vec<String>) -> Undo {
        let (path, old) = (path.into(), self.old.clone());
        match self.form {
            Form::Plain => Undo::File { path, old, new },
            Form::Choice => Undo::Choice { path, old, new },
        }
    }
}

#[derive(Debug)]
enum Phase {
    Open,
    /// Undone.
    Ended,
    /// Ended, but for this.
    Left(Vec<String>),
}

struct Session {
    /// The process that began it.
    owner: Pid,
    dir: StateDir,
    name: CString,
    file: File,
    /// How much of the file is records.
    length: u64,
    places: Places,
    window: Vec<u8>,
    guardian: Guardian,
    kept: Vec<Box<dyn Any + Send>>,
    written: HashMap<PathBuf, Written>,
    notes: Vec<String>,
    phase: Phase,
}

impl Session {
    fn begin(
        header: &Header,
        dir: StateDir,
        name: CString,
        file: File,
        places: Places,
        notes: Vec<String>,
    ) -> Result<Self> {
        let mut window = vec![0; WINDOW];
        let line = header.line();
        let path = dir.file(&name);
        let begun = write_line(&file, &line).map_err(|cause| no_record(&path, cause)).and_then(|()| {
            // A lock of its own, which the guardian alone has when this is closed here.
            let locked = dir.reopen(&name)?;
            lock_within(&locked, Duration::ZERO).map_err(|cause| Error::file("lock", &path, cause.into()))?;
            Guardian::start(&dir, &name, &locked, &places, &mut window, &header.session).map_err(|cause| {
                Error::io("cannot start the guardian process", cause)
                    .hint("emu needs Linux 5.9; is the number of processes limited?")
            })
        });
        match begun {
            Ok(guardian) => Ok(Self {
                owner: header.task.pid,
                dir,
                name,
                file,
                length: line.len() as u64,
                places,
                window,
                guardian,
                kept: Vec::new(),
                written: HashMap::new(),
                notes,
                phase: Phase::Open,
            }),
            Err(error) => {
                // Nothing has been changed yet: an empty journal, if it stays, is removed by the next emu.
                let _ = dir.remove(&name);
                Err(error)
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.file(&self.name)
    }

    /// Whether this process began it, and is not a fork of the one that did.
    fn is_ours(&self) -> bool {
        self.owner == std::process::id() as Pid
    }

    fn record(&mut self, undo: &Undo) -> Result<()> {
        let Undo::File { path, old, new } = undo else { return self.append(undo) };
        if new.is_empty() {
            return self.append(undo);
        }
        let known = self.written.get(path).filter(|written| written.old == old.trim()).cloned();
        let mut written =
            known.unwrap_or_else(|| Written { form: Form::Plain, old: old.trim().into(), ours: Vec::new() });
        for value in new.iter().map(|value| value.trim()) {
            if !written.ours.iter().any(|ours| ours == value) {
                written.ours.push(value.into());
            }
        }
        self.append(&written.undo(path))?;
        self.written.insert(path.clone(), written);
        Ok(())
    }

    fn append(&mut self, undo: &Undo) -> Result<()> {
        if !self.is_ours() || !matches!(self.phase, Phase::Open) {
            return Err(Error::new(
                ErrorKind::Failed,
                "the emulation has ended: nothing more may be changed",
            ));
        }
        let line = undo.line();
        let text = line.strip_suffix(b"\n").unwrap_or_default();
        let refused = match Step::parse(text) {
            _ if line.len() > LINE_MAX => Some("it is too long"),
            Some(step) => check(step, &self.places).err(),
            None => Some("it could not be read back"),
        };
        if let Some(why) = refused {
            let record = Field::from(text);
            return Err(Error::new(ErrorKind::Failed, format!("cannot record `{record}`: {why}")));
        }
        let length = self.length + line.len() as u64;
        if length > JOURNAL_MAX {
            let path = self.path();
            let message =
                format!("the journal {} has reached its limit of {JOURNAL_MAX} bytes", path.display());
            return Err(Error::new(ErrorKind::Failed, message).hint("end this emulation and start it anew"));
        }
        if let Err(cause) = write_line(&self.file, &line) {
            let error = no_record(&self.path(), cause);
            // Half a line would spoil the one after it.
            if let Err(cause) = self.file.set_len(self.length) {
                let problem = format!("cannot shorten {}: {cause}", self.path().display());
                self.phase = Phase::Left(vec![problem]);
            }
            return Err(error);
        }
        self.length = length;
        Ok(())
    }

    fn write_file(&mut self, path: &Path, form: Form, value: &str) -> Result<String> {
        let read = || control_file::read(path).map(|text| form.value_of(&text).to_owned());
        let current = read()?;
        if current == value {
            return Ok(current);
        }
        let known = self.written.get(path).filter(|written| written.knows(&current)).cloned();
        let mut written = known.unwrap_or_else(|| Written { form, old: current.clone(), ours: Vec::new() });
        if written.knows(value) {
            control_file::write(path, value)?;
            let now = read()?;
            if !written.knows(&now) {
                self.settle(path, &mut written, [value, &now])?;
            }
            return Ok(now);
        }
        // Until it is known what the kernel makes of the value, whatever the file holds is ours.
        self.append(&written.undo_with(path, Vec::new()))?;
        if let Err(error) = control_file::write(path, value) {
            self.settle(path, &mut written, [value, value])?;
            return Err(error);
        }
        match read() {
            Ok(now) => self.settle(path, &mut written, [value, &now]).map(|()| now),
            Err(error) => {
                control_file::write(path, &written.old)?;
                Err(error)
            }
        }
    }

    /// Records which values of a file are ours; puts the old one back if that fails.
    fn settle(&mut self, path: &Path, written: &mut Written, values: [&str; 2]) -> Result<()> {
        for value in values {
            if !written.knows(value) {
                written.ours.push(value.into());
            }
        }
        if let Err(error) = self.append(&written.undo(path)) {
            control_file::write(path, &written.old)?;
            return Err(error);
        }
        self.written.insert(path.into(), written.clone());
        Ok(())
    }

    fn undo(&mut self) -> Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        match &self.phase {
            Phase::Open => {}
            Phase::Ended => return Ok(()),
            Phase::Left(problems) => return Err(incomplete(problems)),
        }
        self.kept.clear();
        let (mut notes, mut problems) = (Vec::new(), Vec::new());
        let outcome =
            undo(self.file.as_fd(), &self.places, &mut self.window, &mut |gravity, message| match gravity {
                Gravity::Note => notes.push(message.to_string()),
                Gravity::Failure => problems.push(message.to_string()),
            });
        self.notes.append(&mut notes);
        let result = if outcome.failed == 0 {
            self.phase = Phase::Ended;
            finish(self.file.as_fd(), self.dir.folder(), &self.name)
                .map_err(|cause| Error::file("remove", &self.path(), cause.into()))
        } else {
            // Others need not wait for this process to end. Without space for the line, they do.
            let _ = write_line(&self.file, b"left\n");
            let error = incomplete(&problems);
            self.phase = Phase::Left(problems);
            Err(error)
        };
        self.guardian.end();
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // What cannot be undone stays in the file.
        let _ = self.undo();
        if !self.is_ours() {
            // The threads of helpers are not in this process, and could be waited for without end.
            std::mem::forget(std::mem::take(&mut self.kept));
        }
    }
}

/// One `write(2)`, then `fdatasync(2)`: a record is on disk before the change it undoes is made.
fn write_line(mut file: &File, line: &[u8]) -> io::Result<()> {
    let written = file.write(line)?;
    if written < line.len() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.sync_data()
}

fn no_record(path: &Path, cause: io::Error) -> Error {
    Error::io(format!("cannot write to the journal {}", path.display()), cause)
        .hint("without a record nothing is changed; is the file system full?")
}

fn incomplete(problems: &[String]) -> Error {
    Error::new(ErrorKind::RestoreIncomplete, format!("cannot undo everything: {}", problems.join("; ")))
        .hint("run `emu restore` when the cause is removed")
}
