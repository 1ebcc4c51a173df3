//! Fracas: the kernel's own scheduler gives a group of tasks only a share of each CPU.

mod arrears;
mod balance;
mod balancer;
mod bindings;
mod births;
mod cfs_burner;
mod idle_quota;
mod mark;
mod per_cpu_groups;
mod phase;
mod quota_group;
mod quota_loop;
mod trim;
mod turn_end;

mod quotas;
mod shares;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{About, Expected, Method, Plan, Trait};
use crate::cgroup::{
    Folder, Owner, PERIOD_MAX, PERIOD_MIN, QUOTA_MIN_US, TaskGroup, can_have, hierarchy_for, tightest_limit,
};
use crate::control_file;
use crate::cpu_list::CpuList;
use crate::duty::plan::notes_on;
use crate::duty::{check_period, detuned};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::host::{Controller, Host};
use crate::method_id::MethodId;
use crate::speed::{Targets, lowest_share, uniform_share};
use crate::status::Status;
use crate::sys::time;
use crate::unavailable::{Reason, Unavailable};
use crate::undo::Journal;
use crate::zone::{Demand, Tasks, Zone};
use idle_quota::QuotaTurns;
use quota_group::longest_stall;
pub(super) use shares::{FracasShares, ID as ID_SHARES};

/// The method by quotas: one for each CPU, or, as published, one for all of them.
pub(super) struct Fracas {
    id: MethodId,
    about: &'static About,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    PerCpu,
    One,
}

pub(super) const ID: MethodId = MethodId::new("fracas");
pub(super) const ID_PUBLISHED: MethodId = MethodId::new("fracas:published");

impl Fracas {
    pub(super) const PER_CPU: Self = Self { id: ID, about: &ABOUT, kind: Kind::PerCpu };
    pub(super) const PUBLISHED: Self = Self { id: ID_PUBLISHED, about: &ABOUT_PUBLISHED, kind: Kind::One };
}

const ABOUT: About = About {
    summary: "the scheduler's bandwidth control gives the tasks a share of each CPU; one cgroup for each CPU",
    acts_on: "cgroup",
    continuous: true,
    traits: &[Trait::PerCpu, Trait::SplitsCpus, Trait::LeavesIdle, Trait::NeedsGroup, Trait::EndsAtTicks],
    needs: "the cgroup cpu controller, and cpuset for unequal speeds: root, or a delegated v2 group",
    limits: &[
        "at 1 ms at least in each period: a low speed needs a long period (5 % at least 20 ms)",
        "a turn ends at the scheduler's tick (1 to 10 ms), so that turns and stalls are longer than asked, by that much",
        "bursts shorter than a period see full speed or none",
        "a program that wakes up after a period or more of sleep begins with a lower quota, so that it gains next to nothing in the mean; a single burst is off by up to a period, and gains where the kernel's least quota (1 ms) is all that a low speed has (5 to 25 % of 20 ms)",
        "real-time and deadline tasks are not limited",
        "on several CPUs a new thread shares a CPU until it is moved to a free one, within about 10 ms while threads come and go and two periods else: programs that live shorter are too slow",
        "while threads share a CPU's group, and with unequal speeds always, threads are bound to their group's CPU: they see one CPU, and the kernel does not let them bind themselves to another (EINVAL); bind them before, or use cpu-hogs",
        "a frequency asked for is turned into a share at the start and does not follow the real clock",
    ],
    source: "Buchert, Nussbaum, Gustedt: Methods for Emulation of Multi-Core CPU Performance, HPCC 2011; \
             Perarnau, Huard: KRASH, 2010; Documentation/scheduler/sched-bwc.rst",
};

const ABOUT_PUBLISHED: About = About {
    summary: "one quota of the scheduler's bandwidth control for the sum of all CPUs: as in the paper, with its known errors",
    traits: &[Trait::LeavesIdle, Trait::NeedsGroup, Trait::EndsAtTicks, Trait::Published],
    needs: "the cgroup cpu controller: root, or a delegated v2 group",
    limits: &[
        "one speed for all CPUs of the zone",
        "one thread on n CPUs runs up to n times as fast as asked",
        "what a stall costs the tasks is not made up for",
        "a turn ends at the scheduler's tick (1 to 10 ms), so that turns and stalls are longer than asked, by that much",
        "bursts shorter than a period see full speed or none",
        "real-time and deadline tasks are not limited",
        "a frequency asked for is turned into a share at the start and does not follow the real clock",
    ],
    ..ABOUT
};

/// The default period. Measured: 20, 50 and 100 ms are equally right in the mean, and this has the shortest stalls.
/// It is made longer where the kernel's least quota asks for it, and where less than [`TICKS_LEFT_OUT`] would
/// be left out of a period.
const PERIOD: Duration = Duration::from_millis(20);

/// Room above the kernel's least quota that lets the quota be corrected downwards.
const TRIM_ROOM: f64 = 1.05;

/// How much of a period must be left out, in ticks, for the kernel to do so in most periods. Below half a tick,
/// it was 1 to 4 % too slow. The stalls do not get shorter with the period then, so up to
/// [`PERIOD_LATE`] nothing is lost with a longer one.
const TICKS_LEFT_OUT: f64 = 0.75;
const PERIOD_LATE: Duration = Duration::from_millis(100);

impl Method for Fracas {
    fn id(&self) -> MethodId {
        self.id
    }

    fn about(&self) -> &'static About {
        self.about
    }

    fn check(&self, host: &Host, demand: &Demand) -> Result<Plan, Unavailable> {
        let (id, kind) = (self.id, self.kind);
        let expected = check_quota(kind, host, demand)?;
        let period = expected.period;
        Ok(Plan::new(expected, move |host, zone, journal| {
            Ok(Box::new(quotas::Quotas::engage((id, kind), period, host, zone, journal)?))
        }))
    }
}

fn group_count(kind: Kind, demand: &Demand) -> usize {
    if kind == Kind::PerCpu { demand.targets.len() } else { 1 }
}

/// What each of `groups` is to have, in CPUs.
fn shares_of(targets: &Targets, groups: usize) -> Vec<f64> {
    let each = targets.values().map(|target| target.share);
    if groups == 1 { vec![each.sum()] } else { each.collect() }
}

fn check_quota(kind: Kind, host: &Host, demand: &Demand) -> Result<Expected, Unavailable> {
    let (count, lowest) = (demand.targets.len(), demand.lowest_share());
    let groups = group_count(kind, demand);
    TaskGroup::check(host, &[Controller::Cpu, Controller::Cpuset, Controller::Cpuacct])?;
    check_equal(&demand.targets, groups > 1 && can_have(host, Controller::Cpuset))?;
    let period_us = period_for(demand.period, &demand.targets, groups)?;
    let mut notes = notes_on(&demand.targets);
    let mut error = expected_error(period_us, lowest, count);
    if is_below_tick(period_us, &demand.targets) {
        notes.push(format!(
            "less than half a scheduler tick ({:?}) is left out of a period: the kernel may not do so in each, and begin up to \
             4% too slow, which is corrected within half a minute; a longer period avoids it",
            time::tick()
        ));
        error += 0.03;
    }
    if groups < count {
        notes.push(published_note(count, lowest));
        error = (1.0 / lowest).min(count as f64) - 1.0;
    }
    let tick = time::tick();
    let at_rest = if kind == Kind::PerCpu {
        QuotaTurns::new(lowest, period_us, tick).longest_stall()
    } else {
        Duration::ZERO
    };
    Ok(Expected {
        error,
        period: Duration::from_micros(period_us),
        longest_stall: longest_stall(lowest, period_us, tick).max(at_rest),
        notes,
    })
}

/// Measured: the kernel's own error, what of the cost of stalls may not be made up for, and what else tasks lose of
/// each CPU, which is more where they can meet on one of several.
fn expected_error(period_us: u64, share: f64, cpus: usize) -> f64 {
    let taken = if cpus > 1 { 0.004 } else { 0.000_6 };
    0.005 + taken / share + 20.0 / (period_us as f64 * share)
}

/// Whether so little of a period is left out that the kernel does not manage it in most of them.
fn is_below_tick(period_us: u64, targets: &Targets) -> bool {
    let half_a_tick = time::tick().as_micros() as f64 / 2.0;
    let mut left_out = targets.values().map(|target| (1.0 - target.share) * period_us as f64);
    left_out.any(|left_out| left_out > 0.0 && left_out < half_a_tick)
}

fn check_equal(targets: &Targets, can_bind: bool) -> Result<(), Unavailable> {
    if can_bind || uniform_share(targets).is_some() {
        return Ok(());
    }
    Err(Unavailable::new(
        Reason::UnequalSpeeds,
        "different speeds need a group for each CPU, bound to it by the cgroup cpuset controller",
        Hint::from("ask for the same speed on all CPUs")
            .or("use fracas itself")
            .or(Hint::OwnGroup(vec![Controller::Cpuset.as_str()])),
    ))
}

fn published_note(count: usize, share: f64) -> String {
    let most = (count as f64 * share).min(1.0);
    format!(
        "as published, one quota for the sum of {count} CPUs: a single thread runs at up to {:.0}% instead of {:.0}%",
        most * 100.0,
        share * 100.0
    )
}

/// Rounding to the microsecond takes half of one at most, and the kernel would not notice.
const ROUNDING: f64 = 1.0005;

/// The period in microseconds: as asked for, else the shortest from [`PERIOD`] on that suits the kernel.
fn period_for(asked: Option<Duration>, targets: &Targets, groups: usize) -> Result<u64, Unavailable> {
    let smallest = shares_of(targets, groups).into_iter().fold(f64::INFINITY, f64::min);
    // What the share of one CPU is when the smallest group has the least quota.
    let lowest = lowest_share(targets);
    let percent = |period_us: f64| QUOTA_MIN_US as f64 / period_us * 100.0 * lowest / smallest;
    let longest_us = PERIOD_MAX.as_micros() as f64;
    let shortest_us = QUOTA_MIN_US as f64 / smallest;
    if shortest_us > longest_us * ROUNDING {
        return Err(Unavailable::new(
            Reason::SpeedOutOfReach,
            format!(
                "{:.4}% is below what the kernel's least quota (1ms) is of its longest period (1s)",
                lowest * 100.0
            ),
            format!("ask for at least {:.2}%", percent(longest_us)),
        ));
    }
    let Some(period) = asked else {
        let highest =
            targets.values().map(|target| target.share).filter(|share| *share < 1.0).fold(0.0, f64::max);
        let for_tick_us = TICKS_LEFT_OUT * time::tick().as_micros() as f64 / (1.0 - highest);
        let needed_us = (shortest_us * TRIM_ROOM).max(for_tick_us.min(PERIOD_LATE.as_micros() as f64));
        let rounded_us = (needed_us / 1_000.0).ceil() * 1_000.0;
        return Ok(rounded_us.clamp(PERIOD.as_micros() as f64, longest_us) as u64);
    };
    let period = check_period(period, PERIOD_MIN)?;
    let period_us = period.as_micros() as u64;
    if shortest_us <= period_us as f64 * ROUNDING {
        // Where the ticks are in a period decides how often such a quota stalls the tasks: it must not be left to chance.
        let is_below_tick = smallest * (period_us as f64) < time::tick().as_micros() as f64;
        return Ok(if is_below_tick { detuned(period).as_micros() as u64 } else { period_us });
    }
    Err(Unavailable::new(
        Reason::PeriodOutOfReach,
        format!(
            "{:.2}% of a period of {period:?} is less than 1ms, the kernel's least quota",
            lowest * 100.0
        ),
        Hint::Period(Duration::from_millis((shortest_us / 1_000.0).ceil() as u64)..=PERIOD_MAX)
            .or(format!("ask for at least {:.2}%", percent(period_us as f64))),
    ))
}

fn cpu_folder(group: &TaskGroup) -> Result<&Folder> {
    group.folder(Controller::Cpu).ok_or_else(|| Error::unavailable("the tasks' cgroup has no cpu controller"))
}

/// Who owns the zone's own group: somebody else's gets its values back by the journal.
fn owner(zone: &Zone, journal: &Journal) -> Owner {
    match &zone.tasks {
        Tasks::Cgroup(_) => Owner::Other(journal.clone()),
        Tasks::Processes(_) => Owner::Us,
    }
}

/// The group that the limits of others begin at: those above the zone's group, and that itself where it gets none from us.
struct Outer {
    folder: Folder,
    mount: PathBuf,
}

impl Outer {
    fn of(host: &Host, folder: &Folder, is_set: bool) -> Option<Self> {
        let path = if is_set { folder.path.parent()? } else { &folder.path };
        let folder = Folder { version: folder.version, path: path.to_owned() };
        Some(Self { folder, mount: hierarchy_for(host, Controller::Cpu)?.mount.clone() })
    }

    /// The tightest of them, in CPUs.
    fn limit(&self) -> Option<f64> {
        tightest_limit(&self.folder, &self.mount).map(|(limit, _)| limit)
    }

    fn bound(&self, targets: &Targets, status: &mut Status) {
        let Some((limit, group)) = tightest_limit(&self.folder, &self.mount) else { return };
        let wanted: f64 = targets.values().map(|target| target.share).sum();
        if limit < wanted {
            status.add_problem(format!(
                "{} limits everything in it to {limit:.2} CPUs, and the zone's speeds add up to {wanted:.2}: tasks get at most the former",
                group.display()
            ));
        }
        let effective: f64 = status.cpus.iter().map(|cpu| cpu.set).sum();
        for cpu in status.cpus.iter_mut().filter(|_| limit < effective) {
            cpu.set *= limit / effective;
        }
    }
}

fn online(host_cpus: &Path) -> Option<CpuList> {
    control_file::probe_cpus(&host_cpus.join("online"))
}

fn offline_problem(targets: &Targets, online: Option<&CpuList>) -> Option<String> {
    let zone: CpuList = targets.keys().copied().collect();
    let offline = zone.difference(online?);
    (!offline.is_empty()).then(|| format!("CPUs {offline} are offline: their tasks share the others"))
}

#[cfg(test)]
mod tests;
