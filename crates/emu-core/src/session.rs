//! From a zone to an emulation at work and back: what a caller of the library uses.

mod clocks;
mod tasks;

use std::fmt;

use crate::clock;
use crate::cpu_list::{CpuId, CpuList};
use crate::cpufreq::HeldClock;
use crate::delivery::{Delivery, Stretch};
use crate::error::{Error, ErrorKind, Result};
use crate::method::{self, About, Emulation, Method, Trait};
use crate::method_id::MethodId;
use crate::prepared::Prepared;
use crate::speed::{Hertz, Speed, SpeedSpec, Target, Targets};
use crate::status::Status;
use crate::sys::{Pid, time};
use crate::undo::{Journal, LiveSession};
use crate::zone::{Demand, Tasks, Zone};
use clocks::check_clocks;
use tasks::{check_apart, check_same, check_tasks, give_back};

/// An emulation at work, with the journal that undoes it. Dropping it releases it.
///
/// While one holds more processes than half of the file descriptors that this process may have, the limit on their number
/// (`RLIMIT_NOFILE`) is raised to what it may be at most, and put back at the end.
#[must_use = "dropping a session ends its emulation"]
pub struct Session {
    method: &'static dyn Method,
    /// With the targets of now, also while it is paused.
    demand: Demand,
    is_paused: bool,
    /// Dropped before the emulation, for what it counts.
    delivery: Delivery,
    /// Dropped before the journal undoes: its controllers would change things again.
    emulation: Box<dyn Emulation>,
    clock: HeldClock,
    journal: Undoing,
}

/// Undoes when it is dropped, whoever has a clone of the journal.
struct Undoing(Journal);

impl Drop for Undoing {
    fn drop(&mut self) {
        // What cannot be undone stays in the journal for the guardian or the next emu.
        let _ = self.0.undo_all();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("method", &self.method()).finish_non_exhaustive()
    }
}

impl Session {
    /// Starts what was prepared, on these tasks; `name` is what messages and other emus call the zone. What earlier emus left
    /// behind is undone first; see [`notes`](Self::notes). A host that was read before that may be out of date, and targets
    /// with it: call [`restore`](crate::undo::restore()) before [`Host::detect`](crate::host::Host::detect).
    ///
    /// # Errors
    /// A CPU or task cannot be used, another emu has a CPU of the zone or sets its clock, or the kernel refused a step.
    /// Nothing stays changed; where undoing failed too, the error is [`ErrorKind::RestoreIncomplete`].
    pub fn engage(prepared: &Prepared, name: impl Into<String>, tasks: Tasks) -> Result<Self> {
        Self::of(prepared, name.into(), tasks, false, None)
    }

    /// As `engage`, for tasks that wait to begin: measures first what the method costs on these CPUs, if need be.
    ///
    /// # Errors
    /// As [`engage`](Self::engage).
    pub fn begin(prepared: &Prepared, name: impl Into<String>, tasks: Tasks) -> Result<Self> {
        Self::of(prepared, name.into(), tasks, true, None)
    }

    /// [Memory](Zone::memory) is in bytes; [new](Zone::is_new) tasks wait to begin.
    pub(crate) fn of(
        prepared: &Prepared,
        name: String,
        tasks: Tasks,
        is_new: bool,
        memory: Option<u64>,
    ) -> Result<Self> {
        let (host, demand) = (prepared.host(), prepared.demand());
        if demand.targets.is_empty() {
            return Err(Error::usage("a zone needs at least one CPU"));
        }
        host.check_cpus(&demand.cpus())?;
        check_shares(&demand.targets)?;
        let started = check_tasks(&host.roots.proc, &tasks)?;
        let method = prepared.method();
        let zone = Zone { name, demand: demand.clone(), tasks, is_new, memory };
        let journal = Journal::open(&host.roots, &demand.cpus(), method.id().as_str(), &zone.name)?;
        let others = journal.others();
        let apart = check_clocks(host, &zone.demand.cpus(), method.about(), &others)
            .and_then(|()| check_apart(host, &zone.tasks, others));
        let engaged = apart.and_then(|()| {
            give_back(host, &zone.tasks)?;
            let (clock, emulation) = prepared.engage(&zone, &journal)?;
            // Measuring may have come before the tasks were taken.
            check_same(&host.roots.proc, &started)?;
            let (running, period) = (emulation.running(), prepared.expected().period);
            let delivery = Delivery::watch(host, &zone, method.about(), running, period)?;
            Ok((delivery, clock, emulation))
        });
        match engaged {
            Ok((delivery, clock, emulation)) => {
                let (demand, journal) = (zone.demand, Undoing(journal));
                Ok(Self { method, demand, is_paused: false, delivery, emulation, clock, journal })
            }
            Err(error) => match journal.undo_all() {
                Ok(()) => Err(error),
                Err(left) => Err(left.caused_by(error).with_kind(ErrorKind::RestoreIncomplete)),
            },
        }
    }

    /// The method at work.
    pub fn method(&self) -> MethodId {
        self.method.id()
    }

    /// What the method is like.
    pub fn about(&self) -> &'static About {
        self.method.about()
    }

    /// What is asked for, with the targets of now, also while it is paused.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// As [`Emulation::look`].
    pub(crate) fn look(&self) {
        self.emulation.look();
    }

    /// To be called before processes leave on purpose, and after one has come: others that leave are told as escaped.
    pub(crate) fn let_go(&self, pids: &[Pid]) {
        self.delivery.let_go(pids);
    }

    pub(crate) fn take_in(&self, pid: Pid) {
        self.delivery.take_in(pid);
        self.look();
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal.0
    }

    /// What happened at the start that the user should know, e.g. that a killed emu's leftovers were undone.
    pub fn notes(&self) -> Vec<String> {
        self.journal.0.notes()
    }

    /// The sessions of this user that lived when this one began: of two that begin at once, the second one has the first.
    pub fn others(&self) -> Vec<LiveSession> {
        self.journal.0.others()
    }

    /// Changes the targets of the zone's CPUs within two periods, without a gap at full speed. While it is paused they are kept
    /// for [`resume`](Self::resume).
    ///
    /// # Errors
    /// The targets are not for the zone's CPUs, or out of reach; then nothing changes.
    pub fn retarget(&mut self, targets: &Targets) -> Result<()> {
        check_shares(targets)?;
        method::same_cpus(&self.demand.targets, targets)?;
        if !self.is_paused {
            self.emulation.retarget(targets)?;
            self.delivery.retarget(targets, self.emulation.running(), self.emulation.period());
        }
        self.demand.targets.clone_from(targets);
        Ok(())
    }

    /// Changes the speed of the CPUs that `speed` names, or of all, as [`retarget`](Self::retarget) does. A frequency is taken
    /// as a share of the clock that the CPU had when the zone was made; where that was not measured, of its clock now.
    ///
    /// # Errors
    /// A CPU is not in the zone; a frequency is above its own clock, or that cannot be measured; then nothing changes.
    pub fn set_speed(&mut self, speed: &SpeedSpec) -> Result<()> {
        let zone: CpuList = self.demand.targets.keys().copied().collect();
        let named = speed.cpus().unwrap_or_else(|| zone.clone());
        let outside = named.difference(&zone);
        if !outside.is_empty() {
            return Err(Error::usage(format!("CPUs {outside} are not in the zone, which has CPUs {zone}"))
                .hint("name CPUs of the zone, or none for all of them"));
        }
        let mut targets = self.demand.targets.clone();
        for (cpu, speed) in speed.for_cpus(&named)? {
            let reference = if let Speed::Clock(_) = speed { Some(self.reference(cpu)?) } else { None };
            targets.insert(cpu, speed.target(cpu, reference)?);
        }
        self.retarget(&targets)
    }

    /// The clock of a CPU without the emulation.
    fn reference(&self, cpu: CpuId) -> Result<Hertz> {
        if let Some(&Target { share, clock: Some(clock) }) = self.demand.targets.get(&cpu) {
            return Ok(Hertz((clock.as_f64() / share).round() as u64));
        }
        if self.about().has(Trait::MovesClock) {
            let message = format!("the clock that CPU {cpu} has without the emulation is not known");
            return Err(Error::unavailable(message).hint("ask for a share such as 40%"));
        }
        clock::measure(cpu, clock::BUDGET).map(|reading| reading.clock)
    }

    /// Lets the tasks run freely until [`resume`](Self::resume); they do when this returns, two periods later. While it is
    /// paused, this process may be stopped for any time: nothing is stopped that it would have to continue.
    ///
    /// # Errors
    /// The method refuses the change.
    pub fn pause(&mut self) -> Result<()> {
        if self.is_paused {
            return Ok(());
        }
        let free = self.demand.targets.keys().map(|&cpu| (cpu, Target { share: 1.0, clock: None })).collect();
        self.emulation.pause(&free)?;
        self.delivery.pause();
        self.is_paused = true;
        self.journal.0.set_paused(true);
        // These targets, as any, are in force after two periods.
        time::sleep(self.emulation.period() * 2);
        Ok(())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Holds the tasks to their targets again, within two periods.
    ///
    /// # Errors
    /// The method refuses targets that were given while it was paused; then it stays paused.
    pub fn resume(&mut self) -> Result<()> {
        if self.is_paused {
            self.emulation.retarget(&self.demand.targets)?;
            self.delivery.retarget(&self.demand.targets, self.emulation.running(), self.emulation.period());
            self.is_paused = false;
            self.journal.0.set_paused(false);
        }
        Ok(())
    }

    /// What is delivered now. This may wait for the controllers: for up to a period with `fracas`, for 20 ms for each policy
    /// with `cpu-freq`.
    pub fn status(&self) -> Status {
        let mut status = self.emulation.status();
        self.delivery.tell(&mut status);
        self.clock.tell(&mut status);
        self.journal.0.tell(&mut status);
        status
    }

    /// What was delivered between changes of targets, for those stretches that have ended since the last call: at most the
    /// first hundred thousand. [`status`](Self::status) tells of the present one.
    pub fn take_stretches(&self) -> Vec<Stretch> {
        self.delivery.take_stretches()
    }

    /// Lets the tasks run freely and undoes every change. Returns the last status, whose notes name what was left because
    /// somebody else has changed it, and whether all went well.
    ///
    /// # Errors
    /// [`ErrorKind::RestoreIncomplete`] when something could not be undone; the rest is.
    pub fn release(self) -> (Status, Result<()>) {
        let Self { delivery, emulation, clock, journal, .. } = self;
        let mut status = emulation.status();
        delivery.end(&mut status);
        clock.tell(&mut status);
        journal.0.tell(&mut status);
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

fn check_shares(targets: &Targets) -> Result<()> {
    targets.values().try_for_each(|target| Speed::share(target.share).map(drop))
}

#[cfg(test)]
mod tests;
