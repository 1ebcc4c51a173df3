//! CPU-Freeze: all tasks of a zone are frozen for the part of each period that a slower CPU would not have.

use std::time::Duration;

use super::stopping::Stopping;
use super::{About, Expected, Method, Plan, Trait};
use crate::cgroup::{FreezerStop, TaskGroup, hierarchy_for};
use crate::duty::{DutyLoop, check_period, detuned, plan};
use crate::error::Result;
use crate::host::{Controller, Host};
use crate::method_id::MethodId;
use crate::unavailable::Unavailable;
use crate::zone::Demand;

pub(super) struct CpuFreeze;

pub(super) const ID: MethodId = MethodId::new("cpu-freeze");

const ABOUT: About = About {
    summary: "freezes all tasks of a cgroup for a part of each period; the time this takes is measured and made up for",
    acts_on: "cgroup",
    continuous: true,
    traits: &[Trait::StopsTasks, Trait::LeavesIdle, Trait::NeedsGroup],
    needs: "a cgroup freezer that may be written: version 2 from Linux 5.2 on, or version 1",
    limits: &[
        "one speed for all CPUs of the zone",
        "tasks get nothing for (1 - speed) of each period: bursts shorter than a period see full speed or none",
        "what wakes up while frozen waits for the thaw: paced I/O and timers are late by up to (1 - speed) of a period",
        "memory bandwidth falls with the speed instead of staying as it is",
        "version 1: a signal to a frozen task, SIGKILL too, acts when it is thawed, and a debugger's wait may be cut short",
        "tasks in an uninterruptible wait, such as for a disk or NFS, freeze when it ends",
        "with hundreds of sleeping tasks, others that are not bound to CPUs may be 2 % too slow: after a stop the kernel \
         may start them on the same CPU, and takes some ms to move one",
        "tasks that outnumber the CPUs several times while all are busy get uneven turns, the more so the shorter the period, on \
         one CPU, or without CAP_SYS_NICE: prefer 100 ms then; with hundreds of them most get next to none, prefer \
         cpu-lim",
    ],
    source: "Documentation/admin-guide/cgroup-v2.rst, \"cgroup.freeze\"; the idea for low speeds: CPU-Gov in Distem",
};

const PERIOD: Duration = Duration::from_millis(20);

const PERIOD_LOWEST: Duration = Duration::from_millis(1);

impl Method for CpuFreeze {
    fn id(&self) -> MethodId {
        ID
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, host: &Host, demand: &Demand) -> Result<Plan, Unavailable> {
        let period = detuned(check_period(demand.period.unwrap_or(PERIOD), PERIOD_LOWEST)?);
        let (share, error) = plan::share_with_error(period, &demand.targets)?;
        TaskGroup::check(host, &[Controller::Freezer])?;
        let told = plan::notes_on(&demand.targets);
        let mut notes = told.clone();
        let version = hierarchy_for(host, Controller::Freezer).map_or(2, |hierarchy| hierarchy.version);
        if version == 1 {
            notes.push(
                "the version 1 freezer is used: SIGKILL to a frozen task acts when it is thawed".into(),
            );
        }
        let expected = Expected { error, period, longest_stall: period.mul_f64(1.0 - share), notes };
        Ok(Plan::new(expected, move |host, zone, journal| {
            let (stopper, cost, notes) = FreezerStop::measured(host, zone, journal)?;
            let cycle = (period, share, cost);
            let duty_loop = DutyLoop::start("emu-freeze", host, zone, cycle, stopper, journal, notes)?;
            let (targets, notes) = (zone.demand.targets.clone(), told.clone());
            Ok(Box::new(Stopping { id: ID, duty_loop, targets, notes, look: None }))
        }))
    }
}
