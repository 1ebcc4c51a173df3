//! What `run`, `attach` and nodes tell: to people on stderr, to programs in a JSON file.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use emu_bench::numbers::span;
use emu_core::{Result, Session, Status, Tasks};

use crate::control::{Change, Control};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::output::file::OutputFile;
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
    json: Option<OutputFile>,
    record: Record,
    /// Notes that have been told, and the same without their numbers.
    told: BTreeSet<String>,
    changed: Option<Instant>,
}

impl Report {
    pub(crate) fn new(quiet: bool, json: Option<OutputFile>, record: Record) -> Self {
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
                self.record.notes.push(note.clone());
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
            self.changed = follow.changed.or(self.changed);
            self.tell(follow.refused.as_slice());
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
        let verification = verification::verify(plan, signals).inspect_err(|_| {
            self.write();
        })?;
        for line in summary::verified(&verification) {
            self.reporter.say(&line);
        }
        self.record.verified = Some(verification.clone());
        verification.judge(tolerance, otherwise).inspect_err(|_| {
            self.write();
        })
    }

    /// Returns the exit of emu. That of a command that has failed matters more than that its record could not be written.
    pub(crate) fn end(mut self, status: &Status, wall: Duration, exit: Exit) -> Exit {
        self.tell(&status.messages());
        let since = self.changed.map_or(wall, |at| at.elapsed());
        for line in summary::closing(status, wall, since) {
            self.reporter.say(&line);
        }
        self.record.status(status, wall);
        self.record.exit(exit);
        match self.write() {
            Some(failed) if matches!(exit, Exit::Success | Exit::Command(0)) => failed,
            _ => exit,
        }
    }

    /// Says why the record could not be written, and returns how emu ends where nothing else matters more.
    fn write(&mut self) -> Option<Exit> {
        let json = self.json.as_mut()?;
        let error = output::json(&self.record).and_then(|text| json.write(&text)).err()?;
        output::errors::print(&error);
        Some(error.kind().into())
    }
}

fn without_numbers(note: &str) -> String {
    note.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::plan::testing::{Told, prepared};
    use emu_core::{Demand, Expected, MethodId};

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn a_report_that_cannot_be_written_is_a_failure_of_emu() {
        let plan = || {
            static METHOD: Told = Told { name: "told", expected: || Expected::new(0.0, MILLI, MILLI) };
            let prepared = prepared(&METHOD, &Demand::new([].into()));
            let speed = "40%".parse().unwrap();
            Plan { speed, trace: None, like: None, automatic: false, prepared, others: Vec::new() }
        };
        for (path, command, exit) in [
            ("/dev/full", 0, Exit::Failure),
            ("/dev/full", 7, Exit::Command(7)),
            ("/dev/null", 0, Exit::Command(0)),
        ] {
            let json = OutputFile::open(path.as_ref()).unwrap();
            let report = Report::new(true, Some(json), Record::of_command(&plan(), &[]));
            let ended = report.end(&Status::new(MethodId::new("told"), MILLI), MILLI, Exit::Command(command));
            assert_eq!(ended, exit, "{path}");
        }
    }
}
