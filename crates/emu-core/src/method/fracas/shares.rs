//! Fracas by weights, as published: one group of tasks against busy processes, by weight.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::cfs_burner::{CfsBurner, Weights};
use super::{Outer, cpu_folder, offline_problem, online, owner};
use crate::cgroup::{Bandwidth, TaskGroup, hierarchy_for};
use crate::duty::plan::notes_on;
use crate::duty::{Command, DutyThread};
use crate::error::Result;
use crate::hint::{Hint, Setting};
use crate::host::{Controller, Host};
use crate::method::{About, Emulation, Expected, Method, Plan, Trait};
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::speed::{Targets, lowest_share};
use crate::status::{CpuStatus, Health, Status};
use crate::sys::lock;
use crate::sys::time::{self, Nanos};
use crate::unavailable::{Reason, Unavailable};
use crate::undo::Journal;
use crate::zone::{Demand, Zone};

pub(in crate::method) struct FracasShares;

pub(crate) const ID: MethodId = MethodId::new("fracas:shares");

const ABOUT: About = About {
    summary: "the tasks' cgroup competes with a burner on each CPU by weight: as in the paper, with its known errors",
    traits: &[
        Trait::PerCpu,
        Trait::NeedsGroup,
        Trait::Burns,
        Trait::HasHelpers,
        Trait::SlowsOthers,
        Trait::Published,
    ],
    needs: "the cgroup cpu controller: root, or a delegated v2 group",
    limits: &[
        "with k of n CPUs busy the speed is r/(r+k(1-r)) instead of r",
        "tasks outside the zone compete with the burners, too",
        "burns power",
        "real-time and deadline tasks are not limited",
        "a frequency asked for is turned into a share at the start and does not follow the real clock",
    ],
    ..super::ABOUT
};

/// For how many ticks a rival runs at a stretch, about: the scheduler decides.
const STALL_TICKS: u32 = 4;

impl Method for FracasShares {
    fn id(&self) -> MethodId {
        ID
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, host: &Host, demand: &Demand) -> Result<Plan, Unavailable> {
        if demand.period.is_some() {
            return Err(Unavailable::new(
                Reason::PeriodOutOfReach,
                "weights have no period",
                Hint::LeaveOut(Setting::Period),
            ));
        }
        if demand.exclude_background {
            return Err(Unavailable::new(
                Reason::SlowsOthers,
                "tasks outside the zone compete with the burners as those in it do: they cannot be excluded",
                Hint::LeaveOut(Setting::ExcludeBackground).or("use fracas itself"),
            ));
        }
        let version = hierarchy_for(host, Controller::Cpu).map_or(2, |hierarchy| hierarchy.version);
        check_weights(&demand.targets, version)?;
        TaskGroup::check(host, &[Controller::Cpu, Controller::Cpuset])?;
        host.check_cpu_time()?;
        let (count, lowest) = (demand.targets.len(), demand.lowest_share());
        let mut notes = notes_on(&demand.targets);
        let mut error = 0.03;
        if count > 1 {
            notes.push(shares_note(count, lowest));
            error = 1.0 - Weights::share_when_busy(lowest, count) / lowest;
        }
        let longest_stall = time::tick() * STALL_TICKS;
        let expected = Expected { error, period: Duration::ZERO, longest_stall, notes };
        Ok(Plan::new(expected, |host, zone, journal| Ok(Box::new(Shares::engage(host, zone, journal)?))))
    }
}

pub(super) fn check_weights(targets: &Targets, version: u8) -> Result<(), Unavailable> {
    let lowest = lowest_share(targets);
    let least = Weights::lowest_share(version);
    if lowest >= least {
        return Ok(());
    }
    Err(Unavailable::new(
        Reason::SpeedOutOfReach,
        format!("{:.4}% is below the {:.4}% that cgroup weights can give", lowest * 100.0, least * 100.0),
        "ask for more, or use fracas itself",
    ))
}

fn shares_note(count: usize, share: f64) -> String {
    format!(
        "as published, by weights: with all {count} CPUs busy they run at {:.1}% instead of {:.1}%",
        Weights::share_when_busy(share, count) * 100.0,
        share * 100.0
    )
}

struct Shares {
    targets: Targets,
    /// The version of the cpu controller's hierarchy.
    version: u8,
    zone: Bandwidth,
    rivals: Arc<Mutex<Vec<CfsBurner>>>,
    /// The rivals are its children, and die with it.
    thread: DutyThread<()>,
    outer: Option<Outer>,
    notes: Vec<String>,
    more_notes: Notes,
    host_cpus: PathBuf,
}

impl Shares {
    fn engage(host: &Host, zone: &Zone, journal: &Journal) -> Result<Self> {
        let targets = &zone.demand.targets;
        let group = TaskGroup::create(host, zone, &[Controller::Cpu, Controller::Cpuset], journal)?;
        let folder = cpu_folder(&group)?.clone();
        let (mut notes, more_notes) = (notes_on(targets), group.notes().clone());
        if targets.len() > 1 {
            notes.push(shares_note(targets.len(), zone.demand.lowest_share()));
        }
        let outer = Outer::of(host, &folder, false);
        let (version, bandwidth) = (folder.version, Bandwidth::open(&folder, None, owner(zone, journal))?);
        let rivals = Arc::new(Mutex::new(Vec::new()));
        let (theirs, procfs, journal) = (Arc::clone(&rivals), host.roots.proc.clone(), journal.clone());
        let cpus = zone.demand.cpus();
        let start = move || {
            for cpu in cpus.iter() {
                let rival = CfsBurner::start(cpu, &folder, &procfs, &journal)?;
                lock(&theirs).push(rival);
            }
            Ok(())
        };
        let thread = DutyThread::spawn("emu-rivals", (), start, |(), wait| {
            loop {
                let (Command::Run(()), generation) = wait.command() else { return Ok(()) };
                wait.until(Nanos::MAX, generation);
            }
        })?;
        let (targets, host_cpus) = (targets.clone(), host.roots.cpus());
        let zone = bandwidth;
        let this = Self { targets, version, zone, rivals, thread, outer, notes, more_notes, host_cpus };
        this.set_weights(&this.targets)?;
        Ok(this)
    }

    fn set_weights(&self, targets: &Targets) -> Result<()> {
        let weights = Weights::of(targets, self.version);
        for rival in lock(&self.rivals).iter() {
            if let Some(&weight) = weights.rivals.get(&rival.cpu()) {
                rival.set_weight(weight)?;
            }
        }
        self.zone.set_weight(weights.zone)
    }
}

impl Emulation for Shares {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        check_weights(targets, self.version).map_err(|why| why.into_error(ID))?;
        if let Err(error) = self.set_weights(targets) {
            // What the kernel had accepted before it accepts again.
            let _ = self.set_weights(&self.targets);
            return Err(error);
        }
        self.targets.clone_from(targets);
        Ok(())
    }

    fn status(&self) -> Status {
        let online = online(&self.host_cpus);
        let mut weights = Weights::of(&self.targets, self.version);
        let rivals = lock(&self.rivals);
        let mut status = Status {
            longest_stall: time::tick() * STALL_TICKS,
            burned: rivals.iter().filter_map(CfsBurner::burned).sum(),
            notes: self.notes.clone(),
            ..Status::new(ID, Duration::ZERO)
        };
        status.add_all(&self.more_notes);
        in_force(&self.zone, &mut weights.zone, &mut status);
        let mut dead = 0;
        for rival in rivals.iter() {
            let cpu = rival.cpu();
            let Some(weight) = weights.rivals.get_mut(&cpu) else { continue };
            if rival.is_alive() {
                in_force(rival.bandwidth(), weight, &mut status);
            } else {
                *weight = 0;
                dead += 1;
                status
                    .add_problem(format!("the burner of CPU {cpu} has died: the CPU is not slowed any more"));
            }
        }
        for (&cpu, &asked) in &self.targets {
            let online = online.as_ref().is_none_or(|online| online.contains(cpu));
            let share = weights.share(cpu);
            status.cpus.push(CpuStatus { set: share, duty: share, online, ..CpuStatus::new(cpu, asked) });
        }
        if !rivals.is_empty() && dead == rivals.len() {
            status.health = Health::Ended;
        }
        if let Some(problem) = offline_problem(&self.targets, online.as_ref()) {
            status.add_problem(problem);
        }
        if let Some(outer) = &self.outer {
            outer.bound(&self.targets, &mut status);
        }
        status
    }

    fn release(mut self: Box<Self>) -> Result<()> {
        lock(&self.rivals).clear();
        self.thread.stop()
    }
}

/// Takes the weight that a group really has for the one that it was given; has the status tell if it is another one.
fn in_force(group: &Bandwidth, weight: &mut u64, status: &mut Status) {
    if let Some(now) = group.weight().filter(|now| now != weight) {
        status.add_problem(format!(
            "somebody else has written {}: a weight of {now} instead of {weight} is in force",
            group.weight_file().display()
        ));
        *weight = now;
    }
}
