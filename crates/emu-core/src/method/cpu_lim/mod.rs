//! CPU-Lim: all processes of a zone are stopped and continued by signals.

mod members;
mod published;
mod runner;
mod stopper;
mod turns;

use std::time::Duration;

use super::stopping::Stopping;
use super::{About, Expected, Method, Plan, Trait};
use crate::cgroup::{TaskGroup, confine_without_group, hierarchy_for};
use crate::duty::stop_cost::StopCost;
use crate::duty::{DutyLoop, Stop, check_period, detuned, plan};
use crate::error::{ErrorKind, Result};
use crate::host::{Controller, Host};
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::process::Descendants;
use crate::sys::time;
use crate::unavailable::Unavailable;
use crate::undo::Journal;
use crate::zone::{Demand, Tasks, Zone};
use members::Members;
pub(super) use published::{CpuLimPublished, ID as ID_PUBLISHED};
use stopper::Stopper;

pub(super) struct CpuLim;

pub(super) const ID: MethodId = MethodId::new("cpu-lim");

const ABOUT: About = About {
    summary: "stops all processes of a program for a part of each period by SIGSTOP, and continues them by SIGCONT",
    acts_on: "processes",
    continuous: true,
    traits: &[Trait::StopsTasks, Trait::LeavesIdle, Trait::SendsSignals],
    needs: "permission to signal the processes; nothing else",
    limits: &[
        "one speed for all CPUs of the zone",
        "of more than 32 processes, those with several threads may be stopped late unnoticed, and run too fast",
        "before Linux 6.9, a process whose first thread sleeps while others keep all CPUs busy is stopped late, which is repaid, but not exactly: two threads on two CPUs were 6 % too slow at 25 % of 20 ms",
        "an interactive shell inside the zone takes the stops for its own job control",
        "tasks get nothing for (1 - speed) of each period: bursts shorter than a period see full speed or none",
        "paced I/O and timers are late by up to (1 - speed) of a period; memory bandwidth falls with the speed",
        "a parent outside the zone sees its child stopped, e.g. the shell of an attached program; SIGCONT can be caught",
        "sleeping system calls that SIGCONT interrupts, such as epoll_wait, may return EINTR (signal(7))",
        "a SIGSTOP or SIGCONT that others send while a process is stopped does not last; Ctrl-Z does",
        "with more than 32 processes, what others have stopped is left so only where a whole process group was",
        "if emu is killed, what others have stopped is continued, too: its journal does not know who has",
        "with hundreds of sleeping processes, their way into the stop and back takes CPU time from the others: with 500 and a period of 100 ms, 8 % in the first 16 holds, 1 % once it is known who sleeps",
        "processes that outnumber the CPUs several times while all are busy get uneven turns, the more so the shorter the period, on \
         one CPU, or without CAP_SYS_NICE; at 100 ms hundreds of them share evenly",
        "a traced process is stopped in front of its debugger",
        "a program that changes its user, such as sudo, escapes an emu that is not root",
        "without a writable cgroup, a child is missed whose parent ends within a period, if it is in no process group or session of the program's",
        "without a writable cgroup, some 400 000 processes fill the journal: emu then fails, and the program runs on at full speed",
    ],
    source: "CPU-Lim of Wrekavoc, in Buchert, Nussbaum, Gustedt: Methods for Emulation of Multi-Core CPU Performance, HPCC 2011, slide 6",
};

const PERIOD: Duration = Duration::from_millis(20);

const PERIOD_LOWEST: Duration = Duration::from_millis(1);

impl Method for CpuLim {
    fn id(&self) -> MethodId {
        ID
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, host: &Host, demand: &Demand) -> Result<Plan, Unavailable> {
        let period = period(demand, PERIOD)?;
        let (share, error) = plan::share_with_error(period, &demand.targets)?;
        let (longest_stall, notes) = (period.mul_f64(1.0 - share), notes_on(host, demand));
        Ok(Plan::new(Expected { error, period, longest_stall, notes }, move |host, zone, journal| {
            Ok(Box::new(engage((period, share), host, zone, journal)?))
        }))
    }
}

fn engage((period, share): (Duration, f64), host: &Host, zone: &Zone, journal: &Journal) -> Result<Stopping> {
    let targets = zone.demand.targets.clone();
    let mut fixed_notes = plan::notes_on(&targets);
    let (members, notes) = members(host, zone, journal, &mut fixed_notes)?;
    let (proc, look) = (&host.roots.proc, members.look());
    let mut stopper = Stopper::new(proc, members, zone.demand.targets.len(), notes.clone());
    // From here on the tasks are stopped; what is measured now is measured without them.
    stopper.stop(time::now())?;
    let cost = StopCost::of(host, zone, "signals", &mut fixed_notes, |probe| {
        let mut family = Descendants::of(proc, &[probe])?;
        confine_without_group(host, zone, &mut family, journal)?;
        Ok(Stopper::new(proc, Members::of_family(proc, family, journal)?, 1, Notes::default()))
    })?;
    let duty_loop = DutyLoop::start("emu-lim", host, zone, (period, share, cost), stopper, journal, notes)?;
    Ok(Stopping { id: ID, duty_loop, targets, notes: fixed_notes, look: Some(look) })
}

/// The period in force; `usual` where none is asked for.
fn period(demand: &Demand, usual: Duration) -> Result<Duration, Unavailable> {
    check_period(demand.period.unwrap_or(usual), PERIOD_LOWEST).map(detuned)
}

fn notes_on(host: &Host, demand: &Demand) -> Vec<String> {
    let mut notes = plan::notes_on(&demand.targets);
    if !has_group(host) {
        notes.push("no cgroup can be made: new children are looked for in /proc, once a period".into());
    }
    notes
}

/// Whether some hierarchy takes a group of ours; any will do.
fn has_group(host: &Host) -> bool {
    hierarchy_for(host, Controller::Cpuacct).is_some_and(|hierarchy| hierarchy.writable)
}

/// In a cgroup where one can be had, else as `/proc` shows them. The notes tell what becomes of them.
fn members(host: &Host, zone: &Zone, journal: &Journal, notes: &mut Vec<String>) -> Result<(Members, Notes)> {
    let proc = &host.roots.proc;
    let of_group = |group: TaskGroup| {
        let notes = group.notes().clone();
        Ok((Members::of_group(proc, group, journal)?, notes))
    };
    let Tasks::Processes(pids) = &zone.tasks else {
        return of_group(TaskGroup::create(host, zone, GROUP, journal)?);
    };
    if has_group(host) {
        match TaskGroup::create(host, zone, GROUP, journal) {
            Ok(group) => return of_group(group),
            // Signals may well be permitted where moving is not.
            Err(error) if error.kind() == ErrorKind::NotPermitted => {
                notes.push(format!("no cgroup can be used: {}", error.in_words()));
            }
            Err(error) => return Err(error),
        }
    }
    let mut family = Descendants::of(proc, pids)?;
    notes.extend(confine_without_group(host, zone, &mut family, journal)?);
    notes.push("new children are looked for in /proc, once a period".into());
    Ok((Members::of_family(proc, family, journal)?, Notes::default()))
}

const GROUP: &[Controller] = &[Controller::Cpuacct, Controller::Cpuset];

#[cfg(test)]
mod tests;
