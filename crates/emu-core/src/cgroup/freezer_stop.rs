//! Stopping all tasks of a zone by the freezer of a cgroup.

use super::freezer::Freezer;
use super::{Folder, TaskGroup};
use crate::ablation::{Correction, is_off};
use crate::duty::Census;
use crate::duty::stop_cost::StopCost;
use crate::duty::{Stop, Stopped};
use crate::error::{Error, Result};
use crate::host::{Controller, Host};
use crate::notes::Notes;
use crate::sys::time::{self, Nanos};
use crate::undo::Journal;
use crate::zone::Zone;

/// How long the first freeze may wait to be confirmed, in nanoseconds.
const CONFIRM: Nanos = 20_000_000;

const WANTED: [Controller; 2] = [Controller::Freezer, Controller::Cpuset];

pub(crate) struct FreezerStop {
    group: TaskGroup,
    freezer: Freezer,
}

impl FreezerStop {
    /// Moves the zone's tasks into a group and freezes them there. Also returns what a stop costs on these CPUs, and notes for
    /// the user, to which later ones are added.
    pub(crate) fn measured(host: &Host, zone: &Zone, journal: &Journal) -> Result<(Self, StopCost, Notes)> {
        let group = TaskGroup::create(host, zone, &WANTED, journal)?;
        let (notes, mut more_notes) = (group.notes().clone(), Vec::new());
        let way = format!("freezer {}", folder(&group)?.version);
        let mut stopper = Self::new(group, journal)?;
        // From here on the zone's tasks are stopped; the cost is measured on a probe.
        stopper.stop(time::now() + CONFIRM)?;
        let cost = StopCost::of(host, zone, &way, &mut more_notes, |probe| {
            Self::new(TaskGroup::of_probe(host, zone, probe, Controller::Freezer, journal)?, journal)
        })?;
        for note in more_notes {
            notes.add(note);
        }
        Ok((stopper, cost, notes))
    }

    fn new(group: TaskGroup, journal: &Journal) -> Result<Self> {
        let freezer = Freezer::open(folder(&group)?, journal)?;
        Ok(Self { group, freezer })
    }

    fn tell(&self) {
        if self.freezer.is_theirs() {
            self.group.notes().add_problem(format!(
                "{}: somebody else has frozen the tasks; they stand still, and emu leaves them alone until they are thawed",
                self.freezer.path().display()
            ));
        }
    }
}

fn folder(group: &TaskGroup) -> Result<&Folder> {
    group.folder(Controller::Freezer).ok_or_else(|| Error::unavailable("the tasks' cgroup has no freezer"))
}

impl Stop for FreezerStop {
    fn stop(&mut self, deadline: Nanos) -> Result<Stopped> {
        let frozen = self.freezer.freeze(deadline)?;
        // Running tasks are interrupted one after another between these two moments.
        let middle = if is_off(Correction::FreezeMiddle) { 1 } else { 2 };
        let from = frozen.asked + (frozen.told - frozen.asked) / middle;
        Ok(Stopped { from, is_confirmed: frozen.seen.is_some() })
    }

    fn resume(&mut self) -> Result<Nanos> {
        let free = self.freezer.thaw()?;
        self.tell();
        Ok(free)
    }

    fn is_stopped_by_others(&mut self) -> bool {
        let is_frozen = self.freezer.is_frozen_by_others();
        self.tell();
        is_frozen
    }

    fn census(&mut self, turn: usize) -> Census {
        let threads = self.group.threads().unwrap_or_default();
        Census::of(threads.len(), &threads, turn)
    }
}
