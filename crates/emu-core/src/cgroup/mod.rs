//! The cgroups that a zone's tasks are put into: making, filling and removing them, whatever the method.
//!
//! Groups are made below the tasks' present group where possible, so that the tasks keep their limits. On version 2, a group
//! with the controllers `cpu` or `cpuset` often has to be made below a more distant ancestor; the limits in between do not hold
//! meanwhile, and a note tells so. At the end of the session the journal moves the tasks back and removes the groups. An
//! existing group is used in place.

mod bandwidth;
pub(crate) mod confine;
mod cpuset_repair;
pub(crate) mod cpuset_return;
mod folder;
mod freezer;
mod freezer_stop;
mod gather;
mod hierarchies;
mod left;
mod limit;
pub(crate) mod lists;
mod memory;
pub(crate) mod place;
pub(crate) mod real_time;
#[cfg(test)]
pub(crate) mod testing;
mod throttling;
mod usage;

pub(crate) use bandwidth::{Bandwidth, Owner};
pub(crate) use folder::{Folder, PASSES};
pub(crate) use freezer_stop::FreezerStop;
pub(crate) use hierarchies::{adopted, can_have, folder_of, hierarchy_for, is_same_everywhere};
pub use limit::QuotaLimit;
pub(crate) use limit::{Limit, PERIOD_MAX, PERIOD_MIN, QUOTA_MIN_US, Quota, tightest_limit, tightest_of};
pub use memory::Memory;
pub(crate) use memory::{MemoryLimit, check_memory};
pub(crate) use throttling::Throttling;
pub use throttling::throttled_time;
pub(crate) use usage::Usage;

use cpuset_repair::CpusetRepair;
use cpuset_return::CpusetReturn;
pub(crate) use gather::join_as;
use gather::{Move, gather, home_of};
use hierarchies::{hierarchies, is_vital, no_such_group};

use std::path::{Path, PathBuf};

use crate::cpu_list::CpuList;
use crate::error::Result;
use crate::hint::Hint;
use crate::host::delegation::PROCS;
use crate::host::{Controller, Hierarchy, Host};
use crate::notes::Notes;
use crate::process::{Descendants, check_targets};
use crate::sys::Pid;
use crate::unavailable::{Reason, Unavailable};
use crate::undo::{Journal, TaskSet};
use crate::zone::{Tasks, Zone};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    controllers: Vec<Controller>,
    folder: Folder,
}

/// The tasks of a zone, in one group for each hierarchy that is needed. The journal undoes what was made for it; dropping this
/// does not.
#[derive(Debug)]
pub(crate) struct TaskGroup {
    parts: Vec<Part>,
    /// Processes whose first threads had ended when the others were put in: no `cgroup.procs` of these groups has them.
    leaderless: Vec<(Pid, u64)>,
    notes: Notes,
}

impl TaskGroup {
    /// Puts all threads and all descendants of the zone's tasks into groups with these controllers, until no new one appears.
    ///
    /// [`Controller::Cpu`] and [`Controller::Freezer`] are required if wanted, and [`Controller::Memory`] where the zone limits
    /// memory. [`Controller::Cpuacct`] is optional. With [`Controller::Cpuset`] the tasks are kept on the zone's CPUs, unless
    /// the zone has all CPUs: by a cpuset where possible, else by their affinity, which [`notes`](Self::notes) tells.
    pub(crate) fn create(
        host: &Host,
        zone: &Zone,
        controllers: &[Controller],
        journal: &Journal,
    ) -> Result<Self> {
        let confined = controllers.contains(&confine::CONTROLLER) && confine::is_needed(host, zone);
        let wanted: Vec<_> =
            controllers.iter().copied().filter(|c| *c != confine::CONTROLLER || confined).collect();
        let group = Self::with(host, zone, &wanted, journal)?;
        let place = hierarchy_for(host, confine::CONTROLLER).zip(group.folder(confine::CONTROLLER));
        if let Some((returning, (hierarchy, folder))) = group.returning(zone).zip(place) {
            let tasks = CpusetRepair::new(&host.roots.proc, hierarchy, &folder.path);
            journal.keep(returning.start(host.roots.cpus().join("online"), tasks)?);
        }
        Ok(group)
    }

    /// The probe binds itself to a CPU and needs no cpuset.
    pub(crate) fn of_probe(
        host: &Host,
        zone: &Zone,
        probe: Pid,
        controller: Controller,
        journal: &Journal,
    ) -> Result<Self> {
        Self::make(host, zone, &[probe], &[controller], journal)
    }

    /// As [`create`](Self::create), for groups that will be divided among the zone's CPUs: with [`Controller::Cpuset`] they get
    /// a cpuset, where possible, even if the zone has all CPUs. The caller watches [`returning`](Self::returning) CPUs.
    pub(crate) fn with(host: &Host, zone: &Zone, wanted: &[Controller], journal: &Journal) -> Result<Self> {
        match &zone.tasks {
            Tasks::Processes(pids) => {
                let memory = zone.memory.map(|_| Controller::Memory);
                let wanted: Vec<_> = wanted.iter().copied().chain(memory).collect();
                let group = Self::make(host, zone, pids, &wanted, journal)?;
                if let Some((bytes, folder)) = zone.memory.zip(group.folder(Controller::Memory)) {
                    MemoryLimit::of(folder).set(bytes)?;
                }
                Ok(group)
            }
            Tasks::Cgroup(path) => Self::adopt(host, zone, path, wanted, journal),
        }
    }

    /// Whether [`create`](Self::create) can work, as far as `host` tells; else the first controller that cannot be used.
    pub(crate) fn check(host: &Host, controllers: &[Controller]) -> Result<(), Unavailable> {
        for &controller in controllers.iter().filter(|controller| is_vital(**controller)) {
            let name = controller.as_str();
            match hierarchy_for(host, controller) {
                Some(hierarchy) if !hierarchy.writable => {
                    return Err(Unavailable::new(
                        Reason::NoPrivilege,
                        format!("no cgroup can be made in {} for `{name}`", hierarchy.own.display()),
                        Hint::OwnGroup(vec![]),
                    ));
                }
                Some(hierarchy) if !hierarchy.granted.contains(&controller) => {
                    return Err(Unavailable::new(
                        Reason::NoController,
                        format!(
                            "no cgroup with `{name}` can be made at or above {}: it is not delegated",
                            hierarchy.own.display()
                        ),
                        Hint::OwnGroup(vec![name]),
                    ));
                }
                Some(_) => {}
                None => {
                    return Err(Unavailable::new(
                        Reason::NoController,
                        format!("no cgroup hierarchy has the controller `{name}`"),
                        "mount one that has it, or use another method",
                    ));
                }
            }
        }
        Ok(())
    }

    /// The groups are empty; the journal removes those that cannot be removed yet.
    pub(crate) fn remove(self) {
        for part in self.parts {
            let _ = std::fs::remove_dir(part.folder.path);
        }
    }

    pub(crate) fn folder(&self, controller: Controller) -> Option<&Folder> {
        self.parts.iter().find(|part| part.controllers.contains(&controller)).map(|part| &part.folder)
    }

    /// Restores CPUs of the cpuset that come online again, where the kernel does not.
    pub(crate) fn returning(&self, zone: &Zone) -> Option<CpusetReturn> {
        let folder = self.folder(confine::CONTROLLER)?;
        if !confine::is_cpuset(&folder.path) {
            return None;
        }
        let is_theirs = matches!(zone.tasks, Tasks::Cgroup(_));
        Some(CpusetReturn::new(folder, zone.demand.cpus(), is_theirs, &self.notes))
    }

    /// The processes, those in nested groups included. A group that has been removed is empty.
    pub(crate) fn pids(&self) -> Result<Vec<Pid>> {
        self.parts.first().map_or(Ok(Vec::new()), |part| lists::read_all(&part.folder.path, PROCS))
    }

    pub(crate) fn threads(&self) -> Result<Vec<Pid>> {
        self.parts
            .first()
            .map_or(Ok(Vec::new()), |part| lists::read_all(&part.folder.path, part.folder.threads_name()))
    }

    /// The `cgroup.procs` of the group and of each group nested in it.
    pub(crate) fn lists(&self) -> Result<Vec<PathBuf>> {
        let mut lists = Vec::new();
        if let Some(part) = self.parts.first() {
            lists::collect(&part.folder.path, &mut lists)?;
        }
        Ok(lists)
    }

    /// Processes in the group that none of its [`lists`](Self::lists) has, with their start times.
    pub(crate) fn leaderless(&self) -> &[(Pid, u64)] {
        &self.leaderless
    }

    /// The tasks that may inherit settings of the group's tasks.
    fn task_sets(&self) -> Result<Vec<TaskSet>> {
        Ok(self.lists()?.into_iter().map(TaskSet::Members).collect())
    }

    /// A clone of these also gets later notes on tasks that had to leave the zone's CPUs.
    pub(crate) fn notes(&self) -> &Notes {
        &self.notes
    }

    fn make(
        host: &Host,
        zone: &Zone,
        pids: &[Pid],
        wanted: &[Controller],
        journal: &Journal,
    ) -> Result<Self> {
        let proc = &host.roots.proc;
        let mut descendants = Descendants::of(proc, pids)?;
        check_targets(proc, descendants.members().keys().copied())?;
        let first = pids.first().copied().unwrap_or_default();
        let mut group = Self { parts: Vec::new(), leaderless: Vec::new(), notes: Notes::default() };
        let mut moves = Vec::new();
        for (hierarchy, controllers) in hierarchies(host, wanted) {
            let home = match descendants.members().get(&first) {
                Some(stat) => home_of(proc, (first, stat.starttime), hierarchy)?,
                None => None,
            };
            let home = home.unwrap_or_else(|| hierarchy.own.clone());
            let Some((site, controllers)) = Self::site(hierarchy, &home, controllers, journal)? else {
                continue;
            };
            if controllers.contains(&confine::CONTROLLER) {
                for &pid in descendants.members().keys() {
                    confine::remember(host, pid, journal)?;
                }
            }
            if hierarchy.version == 2 {
                for note in left::notes(&home, &site.parent) {
                    group.notes.add(note);
                }
            }
            let path = place::make(&site, journal)?;
            // A probe has no real-time tasks, and would keep that time from the zone.
            let are_zones = matches!(&zone.tasks, Tasks::Processes(all) if all == pids);
            if are_zones && controllers.contains(&Controller::Cpu) {
                real_time::share(&site.parent, &path, 1);
            }
            if controllers.contains(&confine::CONTROLLER) {
                confine::set(&path, hierarchy.version, &zone.demand.cpus())?;
            }
            moves.push(Move { hierarchy, list: path.join(PROCS), return_to: site.return_to });
            group.parts.push(Part { controllers, folder: Folder { version: hierarchy.version, path } });
        }
        gather(proc, &mut descendants, &moves, journal)?;
        let members = descendants.members().iter();
        let leaderless = members.filter(|(_, stat)| stat.state == b'Z' && !stat.has_ended());
        group.leaderless = leaderless.map(|(&pid, stat)| (pid, stat.starttime)).collect();
        let unconfined = group.folder(confine::CONTROLLER).is_none();
        if wanted.contains(&confine::CONTROLLER) && unconfined && confine::is_needed(host, zone) {
            let task_sets = group.task_sets()?;
            let note = bind_descendants(host, zone, &mut descendants, &task_sets, journal)?;
            group.notes.add(note);
        }
        Ok(group)
    }

    /// Where a group with these controllers can be made, and which of them it will have; `None` when it is not vital.
    fn site(
        hierarchy: &Hierarchy,
        home: &Path,
        mut controllers: Vec<Controller>,
        journal: &Journal,
    ) -> Result<Option<(place::Site, Vec<Controller>)>> {
        let domain = |controllers: &[Controller]| -> Vec<Controller> {
            let needs_enabling =
                |c: &Controller| matches!(c, Controller::Cpu | Controller::Cpuset | Controller::Memory);
            controllers.iter().copied().filter(needs_enabling).collect()
        };
        // Other processes are not moved for a cpuset: the tasks' affinity will do.
        let may_empty =
            [Controller::Cpu, Controller::Memory].iter().any(|wanted| controllers.contains(wanted));
        match place::find(hierarchy, home, &domain(&controllers), may_empty, journal) {
            Ok(site) => return Ok(Some((site, controllers))),
            Err(_) if controllers.contains(&confine::CONTROLLER) => {}
            Err(error) => return Err(error),
        }
        controllers.retain(|controller| *controller != confine::CONTROLLER);
        if controllers.is_empty() {
            return Ok(None);
        }
        let site = place::find(hierarchy, home, &domain(&controllers), may_empty, journal)?;
        Ok(Some((site, controllers)))
    }

    fn adopt(
        host: &Host,
        zone: &Zone,
        path: &Path,
        wanted: &[Controller],
        journal: &Journal,
    ) -> Result<Self> {
        let mut group = Self { parts: Vec::new(), leaderless: Vec::new(), notes: Notes::default() };
        for &controller in wanted {
            match adopted(host, path, controller) {
                Some((_, folder)) => group.add(controller, folder),
                None if is_vital(controller) => return Err(no_such_group(host, path, Some(controller))),
                None => {}
            }
        }
        if group.parts.is_empty() {
            let (_, folder) = folder_of(host, path)?;
            group.parts.push(Part { controllers: Vec::new(), folder });
        }
        group.parts.iter().try_for_each(|part| lists::check(&part.folder.path))?;
        let pids = group.pids()?;
        check_targets(&host.roots.proc, pids.iter().copied())?;
        if wanted.contains(&confine::CONTROLLER) {
            let cpus = zone.demand.cpus();
            match group.folder(confine::CONTROLLER).cloned() {
                Some(folder) if confine::is_cpuset(&folder.path) => {
                    pids.iter().try_for_each(|&pid| confine::remember(host, pid, journal))?;
                    confine::set_in_place(&folder.path, folder.version, &cpus, journal)?;
                }
                _ if !confine::is_needed(host, zone) => {}
                _ if !confine::is_needed_now(host, zone) => group.notes.add(unbound_note(&cpus)),
                _ => {
                    let task_sets = group.task_sets()?;
                    confine::bind(&host.roots.proc, &cpus, journal, &task_sets, || group.pids())?;
                    group.notes.add(bound_note(&cpus));
                }
            }
        }
        Ok(group)
    }

    fn add(&mut self, controller: Controller, folder: Folder) {
        match self.parts.iter_mut().find(|part| part.folder == folder) {
            Some(part) => part.controllers.push(controller),
            None => self.parts.push(Part { controllers: vec![controller], folder }),
        }
    }
}

/// Keeps processes without a group of emu on the zone's CPUs; returns a note for the user.
pub(crate) fn confine_without_group(
    host: &Host,
    zone: &Zone,
    descendants: &mut Descendants,
    journal: &Journal,
) -> Result<Option<String>> {
    if !confine::is_needed(host, zone) {
        return Ok(None);
    }
    let pids = if let Tasks::Processes(pids) = &zone.tasks { pids.as_slice() } else { &[] };
    let members = descendants.members();
    let task =
        |&pid: &Pid| members.get(&pid).map(|stat| TaskSet::DescendantsOf { pid, starttime: stat.starttime });
    let task_sets: Vec<_> = pids.iter().filter_map(task).collect();
    bind_descendants(host, zone, descendants, &task_sets, journal).map(Some)
}

fn bind_descendants(
    host: &Host,
    zone: &Zone,
    descendants: &mut Descendants,
    task_sets: &[TaskSet],
    journal: &Journal,
) -> Result<String> {
    let cpus = zone.demand.cpus();
    if !confine::is_needed_now(host, zone) {
        return Ok(unbound_note(&cpus));
    }
    confine::bind(&host.roots.proc, &cpus, journal, task_sets, || {
        descendants.look()?;
        Ok(descendants.members().keys().copied().collect())
    })?;
    Ok(bound_note(&cpus))
}

fn bound_note(cpus: &CpuList) -> String {
    format!("no cpuset can be had: tasks are bound to CPUs {cpus} by their affinity, which they can change")
}

fn unbound_note(cpus: &CpuList) -> String {
    format!("no cpuset can be had: tasks may leave CPUs {cpus} as soon as another CPU comes online")
}

#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(text: &str) {
    let _ = throttling::Throttling::parse(text);
    for version in [1, 2] {
        let _ = usage::parse(text, version);
    }
    let (quota, period) = text.split_once('\n').unwrap_or((text, ""));
    let limits = [limit::Limit::parse_v1(quota, period), limit::Limit::parse_v2(quota)];
    limits.into_iter().flatten().for_each(|limit| drop(limit.cpus()));
}

#[cfg(test)]
mod tests;
