//! The undo journal: nothing stays changed, however emu ends.
//!
//! Every change to the machine is first a record in a file: how to undo it. The file is worked off, newest
//! record first, when the session ends; when emu is killed, by its guardian, a small process made for that;
//! when that is killed too, by the next emu or [`restore`]. All of them run the same code.

mod affinity;
mod copy;
mod field;
mod file;
mod form;
mod group;
mod guardian;
mod lines;
mod open_journal;
mod peers;
mod places;
mod recent;
mod record;
mod replay;
mod restore;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod undoer;
mod written;

pub(crate) use recent::Recent;
pub use record::{TaskSet, Undo};
pub(crate) use restore::tuning_below;
pub use restore::{RestoreReport, live_sessions, restore};
pub use state::LiveSession;

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::roots::Roots;
use form::Form;
use open_journal::{Phase, Session};
use places::Places;
use restore::restore_in;
use state::{Header, StateDir, boot};

/// The undo journal of one session: what an emulation changes goes through it.
///
/// Clones share the session, for controllers on threads of their own. Dropping the last one undoes whatever
/// [`undo_all`](Self::undo_all) has not undone. In a child that this process forks it does nothing.
///
/// The guardian is a fork of this process, made in [`open`](Self::open). It keeps a copy-on-write image of this process's
/// memory: the first write to a page after the fork costs one page copy.
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
    /// [`ErrorKind::Unavailable`](crate::error::ErrorKind::Unavailable) when a live session has one of the CPUs, naming it; else the state folder
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
    /// number of times; only the first time for a value costs a record, or when others have come between. Files of a group that is recorded
    /// as [`Undo::Group`] need no record: they go with the group.
    ///
    /// A value that another live session has set stays at its end, and what it found is put back by the last one.
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

    /// Has controllers that are switched on in the list of a version 2 group stay so for this session, and be switched
    /// off after it if they were not before. To be called before they are switched on, and also where they are already:
    /// by another live session perhaps, which would switch them off at its end.
    ///
    /// # Errors
    /// The list cannot be read, or it cannot be recorded.
    pub(crate) fn claim(&self, list: &Path, names: &[&str]) -> Result<()> {
        self.session().claim(list, names)
    }

    /// Whether another live session has a control file changed. Who relies on what it holds
    /// [writes](Self::write_file) that, and so has it stay.
    pub(crate) fn is_shared(&self, path: &Path) -> bool {
        self.session().is_shared(path)
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
    /// [`ErrorKind::RestoreIncomplete`](crate::error::ErrorKind::RestoreIncomplete) naming what could not be undone; the rest is. The journal stays for
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
