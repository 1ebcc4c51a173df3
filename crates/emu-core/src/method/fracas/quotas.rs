//! The quota variants of Fracas: a group for each CPU, or, as published, one for all.

use std::path::PathBuf;
use std::time::Duration;

use super::{
    check_equal, cpu_folder, group_count, offline_note, online, outer_limit, owner, period_for,
    published_note, same_cpus, shares_of,
};
use crate::duty::holder::notes_on;
use crate::group::{Balancer, Bandwidth, CpuGroups, Governed, Keeper, TaskGroup, Threads, threads_file};
use crate::{
    Controller, CpuStatus, Emulation, Host, Journal, MethodId, Result, Status, Targets, Unavailable, Variant,
    Zone,
};

const CONTROLLERS: [Controller; 3] = [Controller::Cpu, Controller::Cpuset, Controller::Cpuacct];

/// Groups held by quotas.
pub(super) struct Quotas {
    targets: Targets,
    /// As asked for; a period that was not follows the speeds.
    period: Option<Duration>,
    /// How many groups there are.
    groups: usize,
    /// Whether they can have different speeds.
    can_bind: bool,
    keeper: Keeper,
    notes: Vec<String>,
    /// `/sys/devices/system/cpu`.
    host_cpus: PathBuf,
}

fn refused(why: Unavailable) -> crate::Error {
    why.into_error(MethodId::Fracas)
}

impl Quotas {
    pub(super) fn engage(host: &Host, zone: &Zone, journal: &Journal) -> Result<Self> {
        let (demand, targets) = (&zone.demand, &zone.demand.targets);
        let groups = group_count(demand);
        let period_us = period_for(demand.period, targets, groups).map_err(refused)?;
        let group = if groups > 1 {
            TaskGroup::create_divisible(host, zone, &CONTROLLERS, journal)?
        } else {
            TaskGroup::create(host, zone, &CONTROLLERS, journal)?
        };
        let mut notes = [notes_on(targets), group.notes().list()].concat();
        let (folder, accounting) = (cpu_folder(&group)?, group.folder(Controller::Cpuacct));
        if accounting.is_none() {
            notes.push(
                "CPU time is not accounted here (no cpuacct): quotas are not corrected by it".to_owned(),
            );
        }
        let outer = outer_limit(host, folder, targets);
        notes.extend(outer.as_ref().and_then(|(_, note)| note.clone()));
        // The kernel of v1 refuses more than the group above has; that of v2 takes the lower of both.
        let ceiling = outer.map(|(limit, _)| limit).filter(|_| folder.version == 1);
        let host_cpus = host.roots.cpus();
        let mut can_bind = false;
        let shares = shares_of(targets, groups);
        let keeper = if groups > 1 {
            let parts = CpuGroups::create(host, zone, &group, journal)?;
            can_bind = parts.can_pin();
            check_equal(targets, can_bind).map_err(refused)?;
            if !can_bind {
                notes.push(
                    "there is no cpuset: with more threads than CPUs, they may get less than asked"
                        .to_owned(),
                );
            }
            let govern = |bandwidth| Governed::new(bandwidth, 1, ceiling, true);
            let governed = parts.bandwidths()?.into_iter().map(govern).collect();
            let balancer = Balancer::new(parts, host_cpus.join("online"), &host.online());
            Keeper::start(governed, Some(balancer), None, &shares, period_us)?
        } else {
            if targets.len() > 1 {
                notes.push(published_note(targets.len(), demand.lowest_share()));
            }
            let bandwidth = Bandwidth::open(folder, accounting, owner(zone, journal))?;
            let governed = Governed::new(bandwidth, targets.len(), ceiling, demand.variant == Variant::Best);
            let threads = Threads { file: threads_file(folder), procfs: host.roots.proc.clone() };
            Keeper::start(vec![governed], None, Some(threads), &shares, period_us)?
        };
        let (targets, period) = (targets.clone(), demand.period);
        Ok(Self { targets, period, groups, can_bind, keeper, notes, host_cpus })
    }
}

impl Emulation for Quotas {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        same_cpus(&self.targets, targets)?;
        check_equal(targets, self.can_bind).map_err(refused)?;
        let period_us = period_for(self.period, targets, self.groups).map_err(refused)?;
        self.keeper.retarget(&shares_of(targets, self.groups), period_us)?;
        self.targets.clone_from(targets);
        Ok(())
    }

    fn status(&self) -> Status {
        let report = self.keeper.report();
        let online = online(&self.host_cpus);
        let cpus = self.targets.iter().enumerate().filter_map(|(index, (&cpu, &asked))| {
            // One group for all stands for each of them.
            let group = report.groups.get(index).or(report.groups.first())?;
            let online = online.as_ref().is_none_or(|online| online.contains(cpu));
            Some(CpuStatus { cpu, asked, effective: group.effective, duty: group.duty, clock: None, online })
        });
        let mut notes = [self.notes.clone(), report.notes].concat();
        notes.extend(offline_note(&self.targets, online.as_ref()));
        Status {
            method: MethodId::Fracas,
            period: report.period,
            periods: report.periods,
            // The kernel's timer makes up for periods that it was late for.
            missed: 0,
            longest_stall: report.longest_stall,
            own_cpu: report.own_cpu,
            burned: Duration::ZERO,
            others: None,
            cpus: cpus.collect(),
            notes,
        }
    }

    fn release(self: Box<Self>) -> Result<()> {
        self.keeper.stop()
    }
}
