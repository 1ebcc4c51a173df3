//! The undo journal: no change to the machine outlives the emulation, however emu ends.
//!
//! Before each change, a record of how to undo it is written to a file. The records are carried out, newest first,
//! when the session ends; when emu is killed, by its guardian, a small process that waits for this; when that is
//! killed too, by the next emu or [`restore`]. All of them run the same code ([`replay`]).

mod affinity;
mod copy;
mod cpuset;
mod field;
mod file;
mod form;
mod group;
mod guardian;
mod header;
mod lines;
mod only_one;
mod open_journal;
mod peers;
mod places;
mod recent;
mod record;
mod replay;
mod restore;
mod state;
mod taken;
mod task;
#[cfg(test)]
mod tests;
mod undoer;
mod written;

pub use header::LiveSession;
pub use only_one::OnlyOne;
pub(crate) use recent::Recent;
pub use record::{TaskSet, Undo};
pub(crate) use restore::tuning_below;
pub use restore::{RestoreReport, live_sessions, restore};
pub(crate) use taken::give_back;

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::roots::Roots;
use crate::status::Status;
use crate::sys::{Pid, lock};
use form::Form;
use header::{Header, boot};
use open_journal::{OpenJournal, Phase};
use places::Places;
use record::Task;
use restore::restore_in;
use state::StateDir;

/// The undo journal of one session: all changes of an emulation go through it.
///
/// Clones share the session, for threads of their own. Dropping the last one undoes whatever
/// [`undo_all`](Self::undo_all) has not undone. In a forked child of this process the journal does nothing.
///
/// The guardian is a fork of this process, made in [`open`](Self::open), with a copy-on-write image of the memory:
/// the first write to a page after the fork costs one page copy.
#[derive(Clone)]
pub struct Journal(Arc<Mutex<OpenJournal>>);

impl Journal {
    /// Begins a session: undoes what dead emus have left ([`notes`](Self::notes) tells of it), makes sure that no
    /// other session has one of the CPUs, and starts the guardian.
    ///
    /// A session without CPUs is for the machine as a whole: one at a time, beside any emulations.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::error::ErrorKind::Unavailable) naming the live session that has one of the
    /// CPUs. Other errors: the state folder cannot be used, there is no procfs, or the guardian cannot be started.
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
            .hint(Hint::OtherCpus.or("end that emulation first")));
        }
        let (file_name, file) = dir.create(header.task)?;
        let mut notes: Vec<_> = report.restored.iter().map(|what| format!("restored {what}")).collect();
        notes.extend(report.notes.into_iter().chain(report.problems));
        // From here on, a failure has a file to remove.
        let mut session = OpenJournal::begin(&header, dir, file_name, file, places, notes)?;
        session.others = report.live;
        Ok(Self(Arc::new(Mutex::new(session))))
    }

    /// Writes a record to disk. To be called before the change is made. Several [`Undo::File`] of one file with the
    /// same old value need not repeat each other's new values.
    ///
    /// # Errors
    /// The record could not be carried out, for example because its path is outside sysfs and procfs; the disk is
    /// full; the session has ended. The change must not be made then.
    pub fn record(&self, undo: &Undo) -> Result<()> {
        self.open_journal().record(undo)
    }

    /// Changes a control file until the session ends. Returns what the file holds now, without surrounding white
    /// space: the kernel may have changed the value.
    ///
    /// May be called any number of times: the session remembers its recent values, which need no record again. Nor do
    /// files of a group that is recorded as [`Undo::Group`], as they are removed with it. At the end, a value that
    /// another live session has set stays; the last session restores the first one.
    ///
    /// # Errors
    /// The file cannot be read, the kernel refuses the value, or the journal cannot be written.
    pub fn write_file(&self, path: &Path, value: &str) -> Result<String> {
        self.open_journal().write_file(path, Form::Plain, value.trim())
    }

    /// As [`write_file`](Self::write_file), for a file that reads as all its choices with the current one in
    /// brackets. Returns the current one.
    ///
    /// # Errors
    /// As [`write_file`](Self::write_file).
    pub fn write_choice(&self, path: &Path, value: &str) -> Result<String> {
        self.open_journal().write_file(path, Form::Choice, value.trim())
    }

    /// Keeps controllers enabled in the `cgroup.subtree_control` of a group for this session, and disables them after
    /// it if they were disabled before. To be called before they are enabled, and also where they already are:
    /// another live session may have enabled them, and would disable them at its end.
    pub(crate) fn claim(&self, list: &Path, names: &[&str]) -> Result<()> {
        self.open_journal().claim(list, names)
    }

    /// Whether another live session has changed a control file. A session that relies on the present value has to
    /// [write](Self::write_file) the same one, which keeps it.
    pub(crate) fn is_shared(&self, path: &Path) -> bool {
        self.open_journal().is_shared(path)
    }

    /// Keeps a helper of the session, such as a thread, until the session ends: it is dropped before anything is
    /// undone, or at once after the end. It must not have a clone of the journal.
    pub(crate) fn keep(&self, helper: impl Any + Send) {
        let mut session = self.open_journal();
        if matches!(session.phase, Phase::Open) {
            session.kept.push(Box::new(helper));
        }
    }

    /// Adds a problem where the guardian has ended before the session.
    pub(crate) fn tell(&self, status: &mut Status) {
        if let Some(pid) = self.open_journal().guardian.ended() {
            status.add_problem(format!(
                "the guardian, process {pid}, was killed: if emu is killed too, its changes stay until the next emu begins"
            ));
        }
    }

    /// Tells whether this process may be stopped for any time, as it has let all tasks run. Where it is stopped
    /// without this, the guardian lets them run.
    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.open_journal().guardian.set_paused(is_paused);
    }

    /// Moves tasks back, and gives them and those of `processes` the CPUs back that the session took from them. Tasks are told
    /// by their number and start. What is stopped stays so.
    ///
    /// # Errors
    /// Something could not be undone. It is tried again at the end of the session.
    pub(crate) fn undo_of(&self, tasks: &[(Pid, u64)], processes: &[Pid]) -> Result<()> {
        self.open_journal().undo_of(&Task::all(tasks), processes)
    }

    /// Forgets where tasks came from: at the end of the session they stay where they are.
    ///
    /// # Errors
    /// The journal cannot be written anew: at the end they are moved back.
    pub(crate) fn forget(&self, tasks: &[(Pid, u64)]) -> Result<()> {
        self.open_journal().copy(&Task::all(tasks))
    }

    /// Ends the session: undoes every record, newest first, and removes the journal. Clones can record nothing
    /// afterwards. A second call does nothing and returns the same.
    ///
    /// # Errors
    /// [`ErrorKind::RestoreIncomplete`](crate::error::ErrorKind::RestoreIncomplete) naming what could not be undone.
    /// All else is undone, and the journal stays for [`restore`].
    pub fn undo_all(&self) -> Result<()> {
        self.open_journal().undo()
    }

    /// The path of the journal.
    pub fn path(&self) -> PathBuf {
        self.open_journal().path()
    }

    /// Changes of a dead emu that were undone, and values left because another program has changed them.
    pub fn notes(&self) -> Vec<String> {
        self.open_journal().notes.clone()
    }

    /// The sessions that lived when this one began: of two that begin at once, the second one has the first.
    pub(crate) fn others(&self) -> Vec<LiveSession> {
        self.open_journal().others.clone()
    }

    /// Also after a panic of a thread that had locked it: the records must be undone.
    fn open_journal(&self) -> MutexGuard<'_, OpenJournal> {
        lock(&self.0)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Journal").field(&self.path()).finish()
    }
}

/// Parses lines of a journal. A copy of what has been copied is the same.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let _ = Header::parse(line);
        let _ = record::Step::parse(line);
    }
    let copied = copy::copied(bytes, &|_| true, &[]);
    assert_eq!(copy::copied(&copied, &|_| true, &[]), copied, "a copy is complete");
}
