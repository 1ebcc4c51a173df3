//! From a zone to an emulation at work and back: what a caller of the library uses.

use std::path::Path;

use crate::clock;
use crate::cpu_list::CpuList;
use crate::error::{Error, ErrorKind, Result};
use crate::host::Host;
use crate::method::{self, Emulation, Expected, METHODS, Trait};
use crate::method_id::MethodId;
use crate::process::Stat;
use crate::speed::{Speed, SpeedSpec, Targets};
use crate::status::Status;
use crate::sys::Pid;
use crate::unavailable::Unavailable;
use crate::undo::Journal;
use crate::zone::{Demand, Tasks, Zone};

impl Demand {
    /// What a speed means here, with the method's defaults: on the CPUs given, else on those that it names, else on all
    /// that are allowed. Where it is a frequency, the CPU's own clock is measured, for [`clock::BUDGET`].
    ///
    /// # Errors
    /// A CPU cannot be used, or a frequency is above the CPU's own clock, or that cannot be measured.
    pub fn measured(host: &Host, speed: &SpeedSpec, cpus: Option<&CpuList>) -> Result<Self> {
        let cpus = cpus.cloned().or_else(|| speed.cpus()).unwrap_or_else(|| host.allowed.clone());
        host.check_cpus(&cpus)?;
        let targets = speed.for_cpus(&cpus)?.into_iter().map(|(cpu, speed)| {
            let reference = match speed {
                Speed::Share(_) => None,
                Speed::Clock(_) => Some(clock::measure(cpu, clock::BUDGET)?.clock),
            };
            Ok((cpu, speed.target(cpu, reference)?))
        });
        Ok(Self::new(targets.collect::<Result<_>>()?))
    }
}

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

/// Picks the most faithful method for a demand: the least expected error; among equals the shortest stall. Those that are
/// as they were [published](Trait::Published) are left out.
///
/// # Errors
/// [`ErrorKind::Unavailable`] when no method can, naming every reason.
pub fn choose(host: &Host, demand: &Demand) -> Result<Choice> {
    let mut refused = Vec::new();
    let mut best: Option<(MethodId, Expected)> = None;
    for method in METHODS.iter().filter(|method| !method.about().has(Trait::Published)) {
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
///
/// While one holds more processes than half of the file descriptors that this process may have, the limit on their number
/// (`RLIMIT_NOFILE`) is raised to what it may be at most, and put back at the end.
#[must_use = "dropping a session ends its emulation"]
pub struct Session {
    method: MethodId,
    /// Dropped before the journal undoes: its controllers would change things again.
    emulation: Box<dyn Emulation>,
    journal: Undoing,
}

/// A journal that undoes when it is dropped, whoever has a clone of it.
struct Undoing(Journal);

impl Drop for Undoing {
    fn drop(&mut self) {
        // What cannot be undone stays in the journal for the guardian or the next emu.
        let _ = self.0.undo_all();
    }
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
    /// out of date, and targets with it: call [`restore`](crate::undo::restore()) before [`Host::detect`].
    ///
    /// # Errors
    /// A CPU or task cannot be used, the method cannot do it here, another emu has a CPU of the zone, or the
    /// kernel refused a step. Nothing stays changed; where undoing failed too, the error is
    /// [`ErrorKind::RestoreIncomplete`].
    pub fn engage(host: &Host, zone: &Zone, method: MethodId) -> Result<Self> {
        if zone.demand.targets.is_empty() {
            return Err(Error::usage("a zone needs at least one CPU"));
        }
        host.check_cpus(&zone.demand.cpus())?;
        check_shares(&zone.demand.targets)?;
        let started = check_tasks(&host.roots.proc, &zone.tasks)?;
        let implementation = method::method(method)
            .ok_or_else(|| Error::unavailable(format!("the method {method} is not built in")))?;
        implementation.check(host, &zone.demand).map_err(|why| why.into_error(method))?;
        let journal = Journal::open(&host.roots, &zone.demand.cpus(), method.as_str(), &zone.name)?;
        let engaged = implementation.engage(host, zone, &journal).and_then(|emulation| {
            // Measuring may have come before the tasks were taken.
            check_same(&host.roots.proc, &started)?;
            Ok(emulation)
        });
        match engaged {
            Ok(emulation) => Ok(Self { method, emulation, journal: Undoing(journal) }),
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
        self.journal.0.notes()
    }

    /// Changes the targets of the zone's CPUs within two periods, without a gap at full speed.
    ///
    /// # Errors
    /// The targets are not for the zone's CPUs, or out of reach; then nothing changes.
    pub fn retarget(&mut self, targets: &Targets) -> Result<()> {
        check_shares(targets).and_then(|()| self.emulation.retarget(targets))
    }

    /// What is delivered now. This may wait for the controllers: for up to a period with `fracas`, for 20 ms for each
    /// policy with `cpu-freq`.
    pub fn status(&self) -> Status {
        self.emulation.status()
    }

    /// Lets the tasks run freely and undoes every change. Returns the last status, whose notes name what was left because
    /// somebody else has changed it, and whether all went well.
    ///
    /// # Errors
    /// [`ErrorKind::RestoreIncomplete`] when something could not be undone; the rest is.
    pub fn release(self) -> (Status, Result<()>) {
        let Self { emulation, journal, .. } = self;
        let mut status = emulation.status();
        let released = emulation.release();
        let known = journal.0.notes().len();
        let undone = journal.0.undo_all();
        status.notes.extend(journal.0.notes().into_iter().skip(known));
        let outcome = match (undone, released) {
            (Ok(()), released) => released,
            (left, Ok(())) => left,
            (Err(left), Err(error)) => Err(left.caused_by(error).with_kind(ErrorKind::RestoreIncomplete)),
        };
        (status, outcome)
    }
}

/// The shares are shares, whoever made them.
fn check_shares(targets: &Targets) -> Result<()> {
    targets.values().try_for_each(|target| Speed::share(target.share).map(drop))
}

/// The tasks exist and are not emu itself. Returns when each process has started, in clock ticks since boot.
fn check_tasks(proc: &Path, tasks: &Tasks) -> Result<Vec<(Pid, u64)>> {
    let Tasks::Processes(pids) = tasks else { return Ok(Vec::new()) };
    let mut started = Vec::new();
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
        let no_process = || Error::usage(format!("there is no process {pid}"));
        started.push((pid, Stat::read(proc, pid).ok_or_else(no_process)?.starttime));
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) {
            Ok(()) => {}
            Err(nix::errno::Errno::ESRCH) => return Err(no_process()),
            Err(cause) => {
                return Err(Error::io(format!("cannot act on process {pid}"), cause.into())
                    .with_kind(ErrorKind::NotPermitted)
                    .hint("it belongs to another user; run emu as that user or as root"));
            }
        }
    }
    Ok(started)
}

/// No number has become that of another process. One that has ended may have left descendants.
fn check_same(proc: &Path, started: &[(Pid, u64)]) -> Result<()> {
    started.iter().try_for_each(|&(pid, starttime)| match Stat::read(proc, pid) {
        Some(stat) if stat.starttime != starttime => {
            Err(Error::usage(format!("process {pid} has ended, and its number is another process's now")))
        }
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_list::CpuList;
    use crate::roots::Roots;
    use std::fs;
    use std::time::Duration;

    const ID: MethodId = MethodId::new("cpu-hogs");

    struct Idle {
        fails: bool,
    }

    impl Emulation for Idle {
        fn retarget(&mut self, _: &Targets) -> Result<()> {
            Ok(())
        }

        fn status(&self) -> Status {
            let notes = vec!["its own".into()];
            Status { notes, ..Status::new(ID, Duration::ZERO) }
        }

        fn release(self: Box<Self>) -> Result<()> {
            if self.fails { Err(Error::unavailable("it had failed")) } else { Ok(()) }
        }
    }

    /// A session in which a file was changed that somebody else has changed since.
    fn session(dir: &Path, fails: bool) -> Session {
        let roots = Roots { proc: "/proc".into(), ..Roots::below(dir) };
        let file = roots.sys.join("a");
        fs::create_dir_all(&roots.sys).unwrap();
        fs::write(&file, "1").unwrap();
        let cpus: CpuList = [0].into_iter().collect();
        let journal = Journal::open(&roots, &cpus, "cpu-hogs", "test").unwrap();
        journal.write_file(&file, "2").unwrap();
        fs::write(&file, "9").unwrap();
        Session { method: ID, emulation: Box::new(Idle { fails }), journal: Undoing(journal) }
    }

    #[test]
    fn what_somebody_else_has_changed_is_named_at_the_end() {
        for fails in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (Status { notes, .. }, released) = session(dir.path(), fails).release();
            assert_eq!(released.is_err(), fails);
            assert_eq!(notes.len(), 2, "{notes:?}");
            assert!(notes[1].contains("left") && notes[1].contains("`9`"), "{notes:?}");
        }
    }

    #[test]
    fn a_zone_without_cpus_is_refused() {
        let host = Host::detect(&Roots::system()).unwrap();
        let tasks = Tasks::Processes(vec![1]);
        let zone = Zone { name: "test".into(), demand: Demand::new(Targets::new()), tasks };
        let error = Session::engage(&host, &zone, ID).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("at least one CPU"), "{error}");
    }

    #[test]
    fn a_number_that_has_become_another_process_is_refused() {
        let proc = tempfile::tempdir().unwrap();
        let pid = nix::unistd::getppid().as_raw();
        let process = |starttime: u64| {
            let stat = format!("{pid} (sh) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {starttime} 0 0");
            fs::create_dir_all(proc.path().join(pid.to_string())).unwrap();
            fs::write(proc.path().join(format!("{pid}/stat")), stat).unwrap();
        };
        let tasks = Tasks::Processes(vec![pid]);
        assert!(check_tasks(proc.path(), &tasks).unwrap_err().to_string().contains("no process"));
        process(7);
        let started = check_tasks(proc.path(), &tasks).unwrap();
        assert_eq!(started, [(pid, 7)]);
        check_same(proc.path(), &started).unwrap();
        process(8);
        let error = check_same(proc.path(), &started).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        fs::remove_dir_all(proc.path().join(pid.to_string())).unwrap();
        check_same(proc.path(), &started).unwrap();
    }

    #[test]
    fn a_speed_is_wanted_of_the_cpus_given_else_named_else_allowed() {
        let host = Host::detect(&Roots::system()).unwrap();
        let one: CpuList = host.allowed.first().into_iter().collect();
        let speed = |text: &str| text.parse::<SpeedSpec>().unwrap();
        assert_eq!(Demand::measured(&host, &speed("40%"), None).unwrap().cpus(), host.allowed);
        assert_eq!(Demand::measured(&host, &speed("40%"), Some(&one)).unwrap().cpus(), one);
        let named = Demand::measured(&host, &speed(&format!("{one}=40%")), None).unwrap();
        assert_eq!((named.cpus(), named.uniform_share()), (one.clone(), Some(0.4)));
        let clock = Demand::measured(&host, &speed("1MHz"), Some(&one)).unwrap();
        let target = clock.targets.values().next().unwrap();
        assert!(target.clock.is_some() && target.share < 0.01, "{target:?}");
        assert!(Demand::measured(&host, &speed("100GHz"), Some(&one)).is_err());
    }
}
