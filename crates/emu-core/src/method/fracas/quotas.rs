//! Fracas by quotas: a group for each CPU, or, as published, one for all.

use std::path::PathBuf;
use std::time::Duration;

use super::balancer::Balancer;
use super::per_cpu_groups::CpuGroups;
use super::quota_group::QuotaGroup;
use super::quota_loop::QuotaLoop;
use super::{
    Kind, Outer, check_equal, cpu_folder, group_count, offline_problem, online, owner, period_for,
    published_note, shares_of,
};
use crate::cgroup::{Bandwidth, Limit, Owner, Quota, TaskGroup};
use crate::duty::plan::notes_on;
use crate::duty::stop_cost::StopCost;
use crate::error::Result;
use crate::host::{Controller, Host};
use crate::method::Emulation;
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::speed::Targets;
use crate::status::{CpuStatus, Status};
use crate::unavailable::Unavailable;
use crate::undo::Journal;
use crate::zone::Zone;

const CONTROLLERS: [Controller; 3] = [Controller::Cpu, Controller::Cpuset, Controller::Cpuacct];

pub(super) struct Quotas {
    id: MethodId,
    targets: Targets,
    /// As asked for; a period that was not follows the speeds.
    period: Option<Duration>,
    groups: usize,
    /// Whether they can have different speeds.
    can_bind: bool,
    keeper: QuotaLoop,
    outer: Option<Outer>,
    notes: Vec<String>,
    more_notes: Notes,
    host_cpus: PathBuf,
}

impl Quotas {
    pub(super) fn engage(
        (id, kind): (MethodId, Kind),
        period: Duration,
        host: &Host,
        zone: &Zone,
        journal: &Journal,
    ) -> Result<Self> {
        let (demand, targets) = (&zone.demand, &zone.demand.targets);
        let groups = group_count(kind, demand);
        let period_us = period.as_micros() as u64;
        let mut notes = notes_on(targets);
        let group = if groups > 1 {
            TaskGroup::with(host, zone, &CONTROLLERS, journal)?
        } else {
            TaskGroup::create(host, zone, &CONTROLLERS, journal)?
        };
        // The kernel has the first of several moves to groups wait for a grace period: the probe's comes right after.
        let stall_cost = (kind == Kind::PerCpu).then(|| stall_cost(host, zone, journal, &mut notes));
        let more_notes = group.notes().clone();
        let (folder, accounting) = (cpu_folder(&group)?, group.folder(Controller::Cpuacct));
        if accounting.is_none() {
            notes.push(
                "CPU time is not accounted here (no cpuacct): quotas are not corrected by it".to_owned(),
            );
        }
        let outer = Outer::of(host, folder, groups == 1);
        // The kernel of v1 refuses more than the group above has; that of v2 takes the lower of both.
        let ceiling = outer.as_ref().and_then(Outer::limit).filter(|_| folder.version == 1);
        let host_cpus = host.roots.cpus();
        let mut can_bind = false;
        let shares = shares_of(targets, groups);
        let keeper = if groups > 1 {
            let parts = CpuGroups::create(host, zone, &group, journal)?;
            can_bind = parts.can_pin();
            check_equal(targets, can_bind).map_err(|why| why.into_error(id))?;
            if !can_bind {
                notes.push(
                    "there is no cpuset: with more threads than CPUs, they may get less than asked"
                        .to_owned(),
                );
            }
            let govern = |bandwidth| QuotaGroup::new(bandwidth, 1, ceiling, stall_cost);
            let governed = parts.bandwidths()?.into_iter().map(govern).collect();
            let balancer = Balancer::new(parts, host_cpus.join("online"), &host.online());
            QuotaLoop::start(governed, Some(balancer), &shares, period_us)?
        } else {
            if targets.len() > 1 {
                notes.push(published_note(targets.len(), demand.lowest_share()));
            }
            let bandwidth = Bandwidth::open(folder, accounting, owner(zone, journal))?;
            let governed = QuotaGroup::new(bandwidth, targets.len(), ceiling, stall_cost);
            QuotaLoop::start(vec![governed], None, &shares, period_us)?
        };
        let (targets, period) = (targets.clone(), demand.period);
        Ok(Self { id, targets, period, groups, can_bind, keeper, outer, notes, more_notes, host_cpus })
    }
}

/// What a stall costs tasks on the CPUs of the zone: seen by a probe in a group of its own, with a quota.
fn stall_cost(host: &Host, zone: &Zone, journal: &Journal, notes: &mut Vec<String>) -> StopCost {
    StopCost::of_stalls(host, zone, notes, |probe, run, period| {
        let group = TaskGroup::of_probe(host, zone, probe, Controller::Cpu, journal)?;
        let folder = cpu_folder(&group)?;
        // A lower one above makes the turns shorter, of which the cost is hardly another.
        let ceiling = Outer::of(host, folder, true).as_ref().and_then(Outer::limit);
        let (share, period_us) = (run.div_duration_f64(period), period.as_micros() as u64);
        let quota = Quota::of(share.min(ceiling.unwrap_or(share)), period_us);
        Bandwidth::open(folder, None, Owner::Us)?.set_limit(Limit { quota, period_us })?;
        Ok(|| group.remove())
    })
}

impl Emulation for Quotas {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        let refused = |why: Unavailable| why.into_error(self.id);
        check_equal(targets, self.can_bind).map_err(refused)?;
        let period_us = period_for(self.period, targets, self.groups).map_err(refused)?;
        self.keeper.retarget(shares_of(targets, self.groups), period_us);
        self.targets.clone_from(targets);
        Ok(())
    }

    fn period(&self) -> Duration {
        self.keeper.period()
    }

    fn status(&self) -> Status {
        let report = self.keeper.report();
        let online = online(&self.host_cpus);
        let cpus = self.targets.iter().enumerate().filter_map(|(index, (&cpu, &asked))| {
            // One group for all stands for each of them.
            let group = report.groups.get(index).or(report.groups.first())?;
            let online = online.as_ref().is_none_or(|online| online.contains(cpu));
            Some(CpuStatus { set: group.effective, duty: group.duty, online, ..CpuStatus::new(cpu, asked) })
        });
        // No period is missed: the kernel's timer makes up for those that it was late for.
        let mut status = Status {
            periods: report.periods,
            longest_stall: report.longest_stall,
            own_cpu: report.own_cpu,
            cpus: cpus.collect(),
            notes: self.notes.clone(),
            ..Status::new(self.id, report.period)
        };
        status.add_all(&self.more_notes);
        let offline = offline_problem(&self.targets, online.as_ref());
        report.problems.into_iter().chain(offline).for_each(|problem| status.add_problem(problem));
        if let Some(outer) = &self.outer {
            outer.bound(&self.targets, &mut status);
        }
        status
    }

    fn release(self: Box<Self>) -> Result<()> {
        self.keeper.stop()
    }
}
