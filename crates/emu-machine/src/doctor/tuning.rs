//! A machine held tuned: the changes, the journal that undoes them, and what the kernel refused.

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread::{self, ThreadId};

use emu_core::{
    CpuList, Error, ErrorKind, Hertz, Journal, LiveSession, METHODS, Result, Trait, Undo, control_file,
    live_sessions, select_governor,
};
use nix::sys::prctl;
use serde::Serialize;

use super::finding::Change;
use super::knobs::turbo;
use super::machine::Machine;
use super::{Examined, Takes};

/// By what name the journal knows a tuning.
const METHOD: &str = "doctor tune";

/// The preference for energy that comes with the governor `performance`.
const BEST_EPP: &str = "performance";

/// A knob that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tuned {
    /// Its name.
    pub name: &'static str,
    /// What had been found.
    pub found: String,
    /// What was done.
    pub changes: Vec<Change>,
    /// Of changes that stand for themselves, why some were not done.
    pub refused: Vec<String>,
}

/// A knob that could not be changed, and is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Its name.
    pub name: &'static str,
    /// Why.
    pub why: String,
}

#[derive(Debug, Default)]
struct Held {
    latency: Option<File>,
    /// The timer slack that was found, and the thread whose it is: no other one can put it back.
    slack: Option<(ThreadId, u64)>,
}

/// A machine held tuned. Dropping it puts back what was found; if this process is killed its guardian does, as for an
/// emulation. There is one at a time.
#[must_use = "dropping a tuning ends it"]
#[derive(Debug)]
pub struct Tuning {
    held: Held,
    journal: Journal,
    tuned: Vec<Tuned>,
    refused: Vec<Refused>,
    /// Notes of attempts before, in which the kernel refused a knob.
    earlier: Vec<String>,
}

/// Makes one change; tests put a kernel that refuses in its place.
type Apply<'a> = &'a dyn Fn(&mut Held, &Journal, &Machine, &Change) -> Result<()>;

impl Tuning {
    /// Changes those of the knobs that can be made better, in their order. `name` is for whom, for messages. A knob that the
    /// kernel refuses, or that this process may not change, is left as it was and [told](Self::refused), unless `strict`.
    ///
    /// # Errors
    /// Another tuning or an emulation by frequencies is at work; none of the knobs may be changed, or with `strict` one
    /// cannot be. Then everything is as it was.
    pub fn begin(machine: &Machine, knobs: &[Examined], name: &str, strict: bool) -> Result<Self> {
        Self::begin_with(machine, knobs, name, strict, &apply)
    }

    fn begin_with(
        machine: &Machine,
        knobs: &[Examined],
        name: &str,
        strict: bool,
        apply: Apply<'_>,
    ) -> Result<Self> {
        let mut wanted: Vec<_> = knobs.iter().filter(|knob| !knob.finding.changes.is_empty()).collect();
        let is_none =
            |knob: &&Examined| knob.about.takes != Takes::Tuning || !knob.finding.is_tunable_or_ready();
        if let Some(knob) = knobs.iter().find(is_none).filter(|_| strict) {
            return Err(cannot(knob));
        }
        let refusal =
            |knob: &&Examined| Some(Refused { name: knob.about.name, why: knob.not_permitted.clone()? });
        let mut refused: Vec<_> = wanted.iter().filter_map(refusal).collect();
        if let Some(first) = refused.first().filter(|_| strict || refused.len() == wanted.len()) {
            return Err(Error::not_permitted(format!("cannot tune {}: {}", first.name, first.why))
                .hint("run as root, on the machine itself: containers see these files read-only"));
        }
        wanted.retain(|knob| knob.not_permitted.is_none());
        check_frequencies(machine, &wanted)?;
        let mut earlier = Vec::new();
        loop {
            let roots = &machine.host.roots;
            let journal = Journal::open(roots, &CpuList::default(), METHOD, name)?;
            let mut tuning =
                Self { held: Held::default(), journal, tuned: Vec::new(), refused: refused.clone(), earlier };
            let Err((name, error)) = tuning.change_all(machine, &wanted, apply) else { return Ok(tuning) };
            // From the start without that knob: the journal undoes as a whole, tunables of governors included.
            tuning.put_back().map_err(|left| {
                left.with_kind(ErrorKind::RestoreIncomplete).caused_by(Error::unavailable(error.in_words()))
            })?;
            if strict {
                return Err(Error::new(error.kind(), format!("cannot tune {name}")).caused_by(error));
            }
            earlier = tuning.notes();
            refused.push(Refused { name, why: error.in_words() });
            wanted.retain(|knob| knob.about.name != name);
        }
    }

    /// Changes each knob, then looks whether one has moved another.
    fn change_all(
        &mut self,
        machine: &Machine,
        knobs: &[&Examined],
        apply: Apply<'_>,
    ) -> Result<(), (&'static str, Error)> {
        for knob in knobs {
            let name = knob.about.name;
            let tuned = self.change(machine, knob, apply).map_err(|error| (name, error))?;
            self.tuned.push(tuned);
        }
        for tuned in &self.tuned {
            tuned.changes.iter().try_for_each(is_in_force).map_err(|error| (tuned.name, error))?;
        }
        Ok(())
    }

    fn change(&mut self, machine: &Machine, knob: &Examined, apply: Apply<'_>) -> Result<Tuned> {
        let finding = &knob.finding;
        let (mut changes, mut errors) = (Vec::new(), Vec::new());
        for change in &finding.changes {
            let made =
                apply(&mut self.held, &self.journal, machine, change).and_then(|()| is_in_force(change));
            match made {
                Ok(()) => changes.push(change.clone()),
                Err(error) if finding.separable => errors.push(error),
                Err(error) => return Err(error),
            }
        }
        let refused = errors.iter().map(Error::in_words).collect();
        match errors.into_iter().next() {
            Some(error) if changes.is_empty() => Err(error),
            _ => Ok(Tuned { name: knob.about.name, found: finding.found.clone(), changes, refused }),
        }
    }

    /// What was changed.
    pub fn tuned(&self) -> &[Tuned] {
        &self.tuned
    }

    /// What could not be changed.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// What the user should know: that a dead emu's changes were undone, that somebody else has changed a value.
    pub fn notes(&self) -> Vec<String> {
        self.earlier.iter().cloned().chain(self.journal.notes()).collect()
    }

    /// Puts back what was found, and returns the notes.
    ///
    /// # Errors
    /// [`ErrorKind::RestoreIncomplete`] naming what could not be put back; the rest is.
    pub fn end(mut self) -> Result<Vec<String>> {
        self.put_back()?;
        Ok(self.notes())
    }

    fn put_back(&mut self) -> Result<()> {
        self.held.let_go();
        self.journal.undo_all()
    }
}

impl Drop for Tuning {
    fn drop(&mut self) {
        // What cannot be undone stays in the journal for the guardian or the next emu.
        let _ = self.put_back();
    }
}

impl Held {
    fn let_go(&mut self) {
        self.latency = None;
        if let Some((_, nanos)) = self.slack.take().filter(|(owner, _)| *owner == thread::current().id()) {
            let _ = prctl::set_timerslack(nanos);
        }
    }
}

fn cannot(knob: &Examined) -> Error {
    let Examined { about, finding, .. } = knob;
    let name = about.name;
    if about.takes != Takes::Tuning {
        return Error::unavailable(format!("cannot tune {name}: it is none that a tuning changes"))
            .hint(format!("`emu doctor show --knobs {name}` tells what does"));
    }
    let hint = finding.hint.clone();
    Error::unavailable(format!("cannot tune {name}: {}", finding.found))
        .hint(hint.unwrap_or_else(|| "`emu doctor show` tells which knobs can be tuned here".into()))
}

/// An emulation that sets frequencies would take a change of governor for somebody else's.
fn check_frequencies(machine: &Machine, knobs: &[&Examined]) -> Result<()> {
    let roots = &machine.host.roots;
    let is_frequency = |path: &Path| {
        ["cpufreq", "intel_pstate"].iter().any(|folder| path.starts_with(roots.cpus().join(folder)))
    };
    let mut paths = knobs.iter().flat_map(|knob| &knob.finding.changes).filter_map(Change::path);
    if !paths.any(|path| is_frequency(&path)) {
        return Ok(());
    }
    let sets_frequencies = |session: &LiveSession| {
        let method = METHODS.iter().find(|method| method.id().as_str() == session.method);
        method.is_some_and(|method| method.about().has(Trait::MovesClock))
    };
    live_sessions(roots)?.into_iter().find(sets_frequencies).map_or(Ok(()), |session| {
        let message = format!("cannot tune the frequency: emu {} sets it ({})", session.pid, session.what());
        Err(Error::unavailable(message).hint("end that emulation first, or name other knobs with --knobs"))
    })
}

fn apply(held: &mut Held, journal: &Journal, machine: &Machine, change: &Change) -> Result<()> {
    match change {
        Change::File { path, value } => {
            if *path == turbo::boost(&machine.host.roots) {
                record_boost(machine, journal)?;
            }
            journal.write_file(path, value).map(drop)
        }
        Change::Choice { path, value } => journal.write_choice(path, value).map(drop),
        Change::Governor { policy, value } => {
            let mut policies = machine.host.cpufreq.iter().flat_map(|cpufreq| &cpufreq.policies);
            let known = policies
                .find(|known| known.path == *policy)
                .ok_or_else(|| Error::unavailable(format!("there is no policy {}", policy.display())))?;
            // Some drivers set the preference for energy with the governor, and do not all set it back.
            if let Some(epp) = known.epp.as_ref().filter(|epp| *epp != BEST_EPP) {
                let path = policy.join("energy_performance_preference");
                journal.record(&Undo::File { path, old: epp.clone(), new: vec![BEST_EPP.into()] })?;
            }
            select_governor(known, value, journal)
        }
        Change::Latency { path, value } => {
            let failed = |cause| Error::io(format!("cannot write {value} to {}", path.display()), cause);
            let mut device = OpenOptions::new().write(true).open(path).map_err(failed)?;
            device.write_all(&value.to_ne_bytes()).map_err(failed)?;
            held.latency = Some(device);
            Ok(())
        }
        Change::TimerSlack { value } => {
            let failed = |cause: nix::Error| Error::io("cannot set the timer slack", cause.into());
            let old = prctl::get_timerslack().map_err(failed)?;
            prctl::set_timerslack(*value).map_err(failed)?;
            held.slack = Some((thread::current().id(), old as u64));
            Ok(())
        }
    }
}

/// Records what the common switch of turbo sets in each policy: the policy's own switch, and its upper limit. The kernel
/// sets both again when the common one is put back, so that these come before it in the journal, to be undone after it.
fn record_boost(machine: &Machine, journal: &Journal) -> Result<()> {
    let khz = |level: &Hertz| (level.0 / 1000).to_string();
    for policy in machine.host.cpufreq.iter().flat_map(|cpufreq| &cpufreq.policies) {
        if let Some(allowed) = policy.boost {
            let (path, old) = (policy.path.join("boost"), u8::from(allowed).to_string());
            journal.record(&Undo::File { path, old, new: vec!["0".into(), "1".into()] })?;
        }
        // A limit that is the hardware's own comes back by itself.
        if let (Some(limit), Some(highest)) = (policy.max, policy.hardware_max)
            && limit != highest
        {
            // What the kernel may make of it: the highest frequency, with turbo or without.
            let new = [highest].iter().chain(&policy.base).chain(&policy.frequencies).map(khz).collect();
            let path = policy.path.join("scaling_max_freq");
            journal.record(&Undo::File { path, old: khz(&limit), new })?;
        }
    }
    Ok(())
}

/// Whether the kernel has made of it what was asked. A limit of latency holds among those of others.
fn is_in_force(change: &Change) -> Result<()> {
    let (path, asked) = match change {
        Change::File { path, value } | Change::Choice { path, value } => (path.clone(), value),
        Change::Governor { value, .. } => (change.path().unwrap_or_default(), value),
        Change::Latency { .. } | Change::TimerSlack { .. } => return Ok(()),
    };
    let text = control_file::read(&path)?;
    let is_chosen = || control_file::chosen(text.as_bytes()) == Some(asked.as_bytes());
    if text == *asked || (matches!(change, Change::Choice { .. }) && is_chosen()) {
        return Ok(());
    }
    Err(Error::unavailable(format!("{} reads `{text}` after `{asked}` was written", path.display()))
        .hint("the firmware or another setting forbids it"))
}
