//! What `run`, `attach` and nodes tell: to people on stderr, to programs in a JSON file.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emu_bench::numbers::span;
use emu_core::{Error, ErrorKind, Result, Session, Status, Tasks};

use crate::control::{Change, Control};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::zone::follow::Follow;
use crate::zone::like::Like;
use crate::zone::plan::Plan;
use crate::zone::record::Record;
use crate::zone::{summary, verification};

#[derive(Debug)]
pub(crate) struct Report {
    reporter: Reporter,
    json: Option<JsonFile>,
    record: Record,
    /// Notes that have been told, and the same without their numbers.
    told: BTreeSet<String>,
    changed: Option<Instant>,
}

impl Report {
    pub(crate) fn new(quiet: bool, json: Option<JsonFile>, record: Record) -> Self {
        Self { reporter: Reporter::new(quiet), json, record, told: BTreeSet::new(), changed: None }
    }

    /// Says what will be done, after the words of whose it is, and what is known about it beforehand.
    pub(crate) fn begin(&mut self, plan: &Plan, whose: &str) {
        for line in plan.like.iter().flat_map(Like::lines) {
            self.reporter.tell(&line);
        }
        self.reporter.tell(&format!("{whose}{}", summary::opening(plan)));
        self.tell(&plan.prepared.expected().notes);
    }

    pub(crate) fn engaged(&mut self, plan: &Plan, other: Option<String>, session: &Session) {
        self.record.engaged(plan);
        self.tell(&other.into_iter().chain(session.notes()).collect::<Vec<_>>());
    }

    pub(crate) fn tell(&mut self, notes: &[String]) {
        for note in notes {
            if self.told.insert(note.clone()) {
                self.told.insert(without_numbers(note));
                self.reporter.note(note);
                self.record.note(note);
            }
        }
    }

    /// Tells each note that is new and not just counts on; [`end`](Self::end) has the last count.
    pub(crate) fn tell_meanwhile(&mut self, notes: &[String]) {
        let new = notes.iter().filter(|note| !self.told.contains(&without_numbers(note)));
        self.tell(&new.cloned().collect::<Vec<_>>());
    }

    pub(crate) fn control(&mut self, name: &str, tasks: Tasks) -> Option<Control> {
        Control::open(name, tasks).map_err(|error| self.tell(&[error.in_words()])).ok()
    }

    /// Tells what others have changed. What was delivered is then told from the last change on.
    pub(crate) fn changed(&mut self, changes: &[Change]) {
        for change in changes {
            self.tell(std::slice::from_ref(&change.what));
            self.changed = Some(change.at);
        }
    }

    pub(crate) fn followed(&mut self, session: &Session, follow: Option<&Follow>) {
        let stretches = session.take_stretches();
        self.record.steps(&stretches, follow);
        if let Some(follow) = follow {
            self.changed = follow.changed().or(self.changed);
            self.tell(&follow.problem().map(str::to_owned).into_iter().collect::<Vec<_>>());
            for line in summary::followed(follow, &stretches) {
                self.reporter.say(&line);
            }
        }
    }

    pub(crate) fn was_stopped(&mut self, time: Duration) {
        if !time.is_zero() {
            self.tell(&[format!("stopped by job control for {}; these periods count as missed", span(time))]);
        }
    }

    /// Tells whether the speed is delivered. Where it is not, `otherwise` says what is not done, and the JSON is written.
    pub(crate) fn verify(
        &mut self,
        plan: &Plan,
        signals: &Signals,
        tolerance: f64,
        otherwise: &str,
    ) -> Result<(), Failure> {
        let verification = verification::verify(plan, signals).inspect_err(|_| self.write())?;
        for line in summary::verified(&verification) {
            self.reporter.say(&line);
        }
        self.record.verified(&verification);
        verification.judge(tolerance, otherwise).inspect_err(|_| self.write())
    }

    pub(crate) fn end(mut self, status: &Status, wall: Duration, exit: Exit) {
        self.tell(&status.messages());
        let since = self.changed.map_or(wall, |at| at.elapsed());
        for line in summary::closing(status, wall, since) {
            self.reporter.say(&line);
        }
        self.record.status(status, wall);
        self.record.exit(exit);
        self.write();
    }

    /// The command's exit code matters more than that its record could not be written.
    fn write(&mut self) {
        let record = &self.record;
        let written =
            self.json.as_mut().map_or(Ok(()), |file| output::json(record).and_then(|text| file.write(&text)));
        if let Err(error) = written {
            output::errors::print(&error);
        }
    }
}

fn without_numbers(note: &str) -> String {
    note.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// A file that can be written, held open until there is something to write.
#[derive(Debug)]
pub(crate) struct JsonFile {
    path: PathBuf,
    file: File,
    /// The file was not there before and has nothing in it.
    new: bool,
}

impl JsonFile {
    /// Opens or creates the file and leaves its contents alone.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(|e| {
            let error = Error::file("write", path, e);
            let kind = if error.kind() == ErrorKind::NotPermitted {
                ErrorKind::NotPermitted
            } else {
                ErrorKind::Usage
            };
            error.with_kind(kind).hint("name a file for --json that can be written")
        })?;
        // Whoever has opened it may be in another folder when it is removed.
        let path = std::path::absolute(path).map_err(|e| Error::file("find", path, e))?;
        Ok(Self { path, file, new })
    }

    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        self.new = false;
        // A pipe or a terminal has no length to cut.
        let regular = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let cut = if regular { self.file.set_len(0).and_then(|()| self.file.rewind()) } else { Ok(()) };
        cut.and_then(|()| self.file.write_all(text.as_bytes()))
            .map_err(|e| Error::file("write", &self.path, e))
    }
}

impl Drop for JsonFile {
    /// A run that did not come about leaves no empty file.
    fn drop(&mut self) {
        if self.new {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_when_there_is_something_to_write() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::write(&old, "old and long").unwrap();
        drop(JsonFile::open(&old).unwrap());
        assert_eq!(fs::read_to_string(&old).unwrap(), "old and long");
        drop(JsonFile::open(&new).unwrap());
        assert!(!new.exists());
        for path in [&old, &new] {
            JsonFile::open(path).unwrap().write("{}").unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "{}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("none/x")] {
            let error = JsonFile::open(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.hint_text().is_some());
        }
        assert!(JsonFile::open(Path::new("/dev/null")).unwrap().write("{}").is_ok());
    }
}
