//! From a zone to an emulation at work and back: what a caller of the library uses.

use crate::method::{self, METHODS};
use crate::{
    Demand, Emulation, Error, ErrorKind, Expected, Host, Journal, MethodId, Result, Speed, Status, Targets,
    Tasks, Unavailable, Zone,
};

/// The method that was picked for a demand, and why.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The most faithful method that can do it here.
    pub method: MethodId,
    /// What to expect of it.
    pub expected: Expected,
    /// The methods that cannot, each with its reason.
    pub refused: Vec<(MethodId, Unavailable)>,
}

/// Picks the most faithful method for a demand: the least expected error; among equals the shortest stall.
///
/// # Errors
/// [`ErrorKind::Unavailable`] when no method can, naming every reason.
pub fn choose(host: &Host, demand: &Demand) -> Result<Choice> {
    let mut refused = Vec::new();
    let mut best: Option<(MethodId, Expected)> = None;
    for method in METHODS {
        match method.check(host, demand) {
            Err(unavailable) => refused.push((method.id(), unavailable)),
            Ok(expected) => {
                let better = best.as_ref().is_none_or(|(_, other)| {
                    (expected.error, expected.longest_stall) < (other.error, other.longest_stall)
                });
                if better {
                    best = Some((method.id(), expected));
                }
            }
        }
    }
    let Some((method, expected)) = best else {
        let reasons: Vec<_> = refused.iter().map(|(id, why)| format!("{id}: {why}")).collect();
        return Err(Error::unavailable(format!("no method can do this here: {}", reasons.join("; ")))
            .hint("`emu methods` tells for each method what is missing and how to get it"));
    };
    Ok(Choice { method, expected, refused })
}

/// An emulation at work, with the journal that undoes it. Dropping it releases it.
#[must_use = "dropping a session ends its emulation"]
pub struct Session {
    method: MethodId,
    /// `None` once released.
    emulation: Option<Box<dyn Emulation>>,
    journal: Journal,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Session {
    /// Starts `method` on `zone`.
    ///
    /// What earlier emus left behind is undone first; see [`notes`](Self::notes). A host that was read before that may be
    /// out of date, and targets with it: call [`restore`](crate::restore()) before [`Host::detect`].
    ///
    /// # Errors
    /// A CPU or task cannot be used, the method cannot do it here, another emu has a CPU of the zone, or the
    /// kernel refused a step. Nothing stays changed; where undoing failed too, the error is
    /// [`ErrorKind::RestoreIncomplete`].
    pub fn engage(host: &Host, zone: &Zone, method: MethodId) -> Result<Self> {
        host.check_cpus(&zone.demand.cpus())?;
        check_shares(&zone.demand.targets)?;
        check_tasks(&zone.tasks)?;
        let implementation = method::method(method)
            .ok_or_else(|| Error::unavailable(format!("the method {method} is not built in")))?;
        implementation.check(host, &zone.demand).map_err(|why| why.into_error(method))?;
        let journal = Journal::open(&host.roots, &zone.demand.cpus(), method.as_str(), &zone.name)?;
        match implementation.engage(host, zone, &journal) {
            Ok(emulation) => Ok(Self { method, emulation: Some(emulation), journal }),
            Err(error) => match journal.undo_all() {
                Ok(()) => Err(error),
                Err(left) => Err(left.caused_by(error).with_kind(ErrorKind::RestoreIncomplete)),
            },
        }
    }

    /// The method at work.
    pub fn method(&self) -> MethodId {
        self.method
    }

    /// What happened at the start that the user should know, e.g. that a killed emu's leftovers were undone.
    pub fn notes(&self) -> Vec<String> {
        self.journal.notes()
    }

    /// Changes the targets of the zone's CPUs within two periods, without a gap at full speed.
    ///
    /// # Errors
    /// The targets are not for the zone's CPUs, or out of reach; then nothing changes.
    pub fn retarget(&mut self, targets: &Targets) -> Result<()> {
        match &mut self.emulation {
            Some(emulation) => check_shares(targets).and_then(|()| emulation.retarget(targets)),
            None => Err(Error::usage("the emulation has been released")),
        }
    }

    /// What is delivered now; `None` once released.
    pub fn status(&self) -> Option<Status> {
        self.emulation.as_ref().map(|emulation| emulation.status())
    }

    /// Lets the tasks run freely, undoes every change, and returns the last status. Its notes name what was left because
    /// somebody else has changed it.
    ///
    /// # Errors
    /// [`ErrorKind::RestoreIncomplete`] when something could not be undone; the rest is.
    pub fn release(mut self) -> Result<Option<Status>> {
        let mut status = self.status();
        let released = self.emulation.take().map_or(Ok(()), Emulation::release);
        let known = self.journal.notes().len();
        if let Err(left) = self.journal.undo_all() {
            return Err(match released {
                Ok(()) => left,
                Err(error) => left.caused_by(error).with_kind(ErrorKind::RestoreIncomplete),
            });
        }
        if let Some(status) = &mut status {
            status.notes.extend(self.journal.notes().into_iter().skip(known));
        }
        released.map(|()| status)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The controllers must have ended before the journal undoes, or they would change things again.
        drop(self.emulation.take());
        // What cannot be undone stays in the journal for the guardian or the next emu.
        let _ = self.journal.undo_all();
    }
}

/// The shares are shares, whoever made them.
fn check_shares(targets: &Targets) -> Result<()> {
    targets.values().try_for_each(|target| Speed::share(target.share).map(drop))
}

/// The tasks exist and are not emu itself.
fn check_tasks(tasks: &Tasks) -> Result<()> {
    let Tasks::Processes(pids) = tasks else { return Ok(()) };
    if pids.is_empty() {
        return Err(Error::usage("a zone needs at least one process"));
    }
    for &pid in pids {
        if pid <= 0 {
            return Err(Error::usage(format!("{pid} is not a process ID")));
        }
        if pid == std::process::id() as i32 {
            return Err(Error::usage(format!("process {pid} is emu itself"))
                .hint("start the program with `emu run`, or name its own process"));
        }
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) {
            Ok(()) => {}
            Err(nix::errno::Errno::ESRCH) => {
                return Err(Error::usage(format!("there is no process {pid}")));
            }
            Err(cause) => {
                return Err(Error::io(format!("cannot act on process {pid}"), cause.into())
                    .with_kind(ErrorKind::NotPermitted)
                    .hint("it belongs to another user; run emu as that user or as root"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuList, Roots};
    use std::fs;
    use std::time::Duration;

    struct Idle;

    impl Emulation for Idle {
        fn retarget(&mut self, _: &Targets) -> Result<()> {
            Ok(())
        }

        fn status(&self) -> Status {
            let notes = vec!["its own".into()];
            Status { notes, ..Status::new(MethodId::CpuHogs, Duration::ZERO) }
        }

        fn release(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_somebody_else_has_changed_is_named_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { proc: "/proc".into(), ..Roots::below(dir.path()) };
        let file = roots.sys.join("a");
        fs::create_dir_all(&roots.sys).unwrap();
        fs::write(&file, "1").unwrap();
        let cpus: CpuList = [0].into_iter().collect();
        let journal = Journal::open(&roots, &cpus, "cpu-hogs", "test").unwrap();
        journal.write_file(&file, "2").unwrap();
        fs::write(&file, "9").unwrap();
        let session = Session { method: MethodId::CpuHogs, emulation: Some(Box::new(Idle)), journal };
        let notes = session.release().unwrap().unwrap().notes;
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[1].contains("left") && notes[1].contains("`9`"), "{notes:?}");
    }
}
