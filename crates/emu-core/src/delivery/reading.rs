//! The CPU time of a zone's tasks, as the kernel counts it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::times::{ProcessTime, ThreadTime};
use super::window::{TaskWindow, Window};
use crate::cgroup::{self, Folder, Usage, lists, place};
use crate::control_file;
use crate::cpu_list::{CpuId, CpuList};
use crate::error::Result;
use crate::host::delegation::PROCS;
use crate::host::{Controller, CpuTimes, Hierarchy, Host};
use crate::process::{self, Descendants, FORK, LastPid, Stat, status_field};
use crate::sys::Pid;
use crate::sys::time::{self, Nanos, USER_TICK};
use crate::sys::times::{adopted_cpu_time, process_cpu_time};
use crate::zone::Tasks;

/// Of more threads than this a part is read, in turn.
const THREADS_MAX: usize = 64;

/// How long a fork may be under way, in clock ticks.
const FORK_TICKS: u64 = (FORK / USER_TICK) as u64 + 1;

/// Where a group tells that it is itself frozen: version 2, and version 1.
const FROZEN: [&str; 2] = ["cgroup.freeze", "freezer.self_freezing"];

#[derive(Debug)]
enum Source {
    /// `None` where all had ended before the watch began.
    Descendants {
        of: Vec<Pid>,
        members: Option<Box<Descendants>>,
        /// Emu's groups, where others may have joined the processes.
        groups: Vec<ZoneGroup>,
    },
    Group(ZoneGroup),
}

/// A group of the zone: one that emu has made, or the existing one that is slowed.
#[derive(Debug)]
struct ZoneGroup {
    hierarchy: Hierarchy,
    path: PathBuf,
}

#[derive(Debug)]
pub(super) struct Watch {
    proc: PathBuf,
    source: Source,
    cpus: CpuList,
    /// Where the hierarchy is mounted in which the method may freeze the zone's group itself.
    freezes_in: Option<PathBuf>,
    /// What the zone's group has used, where it has such an account: with all that has ended.
    usage: Option<Usage>,
    /// The processes read last time: they stay in the account wherever they go.
    known: BTreeMap<Pid, ProcessTime>,
    /// Those that leave the zone on purpose do not.
    pub(super) let_go: BTreeSet<Pid>,
    /// The threads read last time: they are read again, so that two readings have them.
    threads: Vec<Pid>,
    turn: usize,
    /// Known once it is asked for.
    last_pid: Option<LastPid>,
    looks: usize,
}

#[derive(Debug, Default)]
pub(super) struct Reading {
    at: Nanos,
    /// When it began, in clock ticks since boot.
    began: u64,
    pub(super) threads: BTreeMap<Pid, ThreadTime>,
    processes: BTreeMap<Pid, ProcessTime>,
    /// Processes that are in none of emu's groups of a hierarchy, and the group that they are in there.
    outside: BTreeMap<Pid, PathBuf>,
    /// What the zone's group has used.
    used_by_group: Option<Nanos>,
    /// What this process has waited for, where it adopts orphans.
    adopted: Option<Nanos>,
    /// Whether all threads were read.
    is_whole: bool,
    /// The last process number given out, if that is known; of interest where a process does not reap its children.
    last_pid: Option<Pid>,
    pub(super) cpu_times: BTreeMap<CpuId, CpuTimes>,
}

impl Watch {
    /// `may_freeze`: the method freezes the zone's group itself.
    pub(super) fn new(host: &Host, tasks: &Tasks, cpus: CpuList, may_freeze: bool) -> Result<Self> {
        let proc = host.roots.proc.clone();
        let source = match tasks {
            Tasks::Processes(pids) => {
                let lives = |pid: &Pid| Stat::read(&proc, *pid).is_some_and(|stat| !stat.has_ended());
                let alive: Vec<_> = pids.iter().copied().filter(lives).collect();
                let members =
                    (!alive.is_empty()).then(|| Descendants::of(&proc, &alive).map(Box::new)).transpose()?;
                let own_group = |hierarchy: &Hierarchy| {
                    let path = place::own_group(&proc, *alive.first()?, hierarchy)?;
                    Some(ZoneGroup { hierarchy: hierarchy.clone(), path })
                };
                let groups = host.cgroups.hierarchies.iter().filter_map(own_group).collect();
                Source::Descendants { of: pids.clone(), members, groups }
            }
            Tasks::Cgroup(path) => {
                let (hierarchy, folder) = cgroup::folder_of(host, path)?;
                Source::Group(ZoneGroup { hierarchy: hierarchy.clone(), path: folder.path })
            }
        };
        let freezer = match tasks {
            Tasks::Cgroup(path) if may_freeze => cgroup::adopted(host, path, Controller::Freezer),
            _ => None,
        };
        let mut watch = Self {
            source,
            cpus,
            freezes_in: freezer.map(|(hierarchy, _)| hierarchy.mount.clone()),
            usage: None,
            known: BTreeMap::new(),
            let_go: BTreeSet::new(),
            threads: Vec::new(),
            turn: 0,
            last_pid: None,
            looks: 0,
            proc,
        };
        // Some hierarchies of version 1 have no cpuacct.
        watch.usage = watch.groups().iter().rev().find_map(|group| {
            Usage::open(&Folder { version: group.hierarchy.version, path: group.path.clone() })
        });
        Ok(watch)
    }

    /// Reads all processes and a part of their threads; what cannot be read has ended. How the CPUs spend their time is read
    /// only to explain what is off: the kernel sums up all interrupts for it.
    pub(super) fn read(&mut self, explains: bool) -> Reading {
        let mut threads = BTreeMap::new();
        let mut reading = Reading { began: time::user_ticks(), ..Reading::default() };
        // Where a group has an account, none needs to be made up.
        let is_counted = self.usage.is_none();
        let adopted = || adopted_cpu_time().filter(|_| is_counted).map(time::nanos);
        let before = adopted();
        let (listed, in_groups) = self.listed();
        let known = std::mem::take(&mut self.known);
        let are_many = listed.len() > THREADS_MAX;
        // Whether a process reaps its children is looked at when it is met, but of many, and of one in each look again.
        self.looks += 1;
        let again = known.keys().nth(self.looks % known.len().max(1)).copied();
        for pid in listed.iter().chain(known.keys().filter(|pid| !listed.contains(pid))).copied() {
            let last = known.get(&pid).filter(|_| are_many);
            let Some((mut process, stat)) = self.read_process(pid, last) else { continue };
            let before = known.get(&pid).filter(|known| known.starttime == process.starttime);
            let is_looked_at = is_counted && if before.is_some() { again == Some(pid) } else { !are_many };
            process.reaps = before.is_none_or(|before| before.reaps) && (!is_looked_at || self.reaps(pid));
            let is_known = || before.is_some();
            let is_let_go = self.let_go.contains(&pid);
            if !listed.contains(&pid) && (is_let_go || !is_known()) {
                continue;
            }
            reading.processes.insert(pid, process);
            self.known.insert(pid, process);
            if !is_let_go
                && stat.is_none_or(|stat| !stat.has_ended())
                && let Some(group) = self.place_outside(pid, &in_groups)
            {
                reading.outside.insert(pid, group);
            }
            match stat {
                None => {}
                Some(stat) if stat.threads == 1 => drop(threads.insert(pid, stat.cpu)),
                Some(_) => {
                    threads.extend(process::threads(&self.proc, pid).into_iter().map(|tid| (tid, None)));
                }
            }
        }
        for parent in if is_counted { reading.without_children(&known) } else { Vec::new() } {
            let both = [&mut reading.processes, &mut self.known].map(|processes| processes.get_mut(&parent));
            both.into_iter().flatten().for_each(|process| process.reaps = false);
        }
        if explains {
            let stat = fs::read_to_string(self.proc.join("stat")).unwrap_or_default();
            let times = self.cpus.iter().filter_map(|cpu| Some((cpu, CpuTimes::of(&stat, cpu)?)));
            reading.cpu_times = times.collect();
        }
        if reading.has_unreaped() {
            reading.last_pid = self.last_pid.get_or_insert_with(|| LastPid::of(&self.proc)).read();
        }
        reading.at = time::now();
        reading.used_by_group = self.usage.as_ref().and_then(Usage::read);
        // One that ended and was waited for meanwhile would count twice.
        reading.adopted = adopted().filter(|adopted| before == Some(*adopted));
        reading.is_whole = threads.len() <= THREADS_MAX;
        for tid in self.chosen(&threads.keys().copied().collect::<Vec<_>>()) {
            if let Some(time) = ThreadTime::read(&self.proc, tid, threads.get(&tid).copied().flatten()) {
                reading.threads.insert(tid, time);
            }
        }
        reading
    }

    /// What a process has used. One that has not run since its `last` look has not changed: of many, most sleep.
    fn read_process(&self, pid: Pid, last: Option<&ProcessTime>) -> Option<(ProcessTime, Option<Stat>)> {
        let cpu_time = process_cpu_time(pid).map(time::nanos);
        if let Some(last) = last.filter(|last| cpu_time == Some(last.cpu_time)) {
            return Some((*last, None));
        }
        let stat = Stat::read(&self.proc, pid)?;
        Some((ProcessTime::of(&stat, cpu_time), Some(stat)))
    }

    fn reaps(&self, pid: Pid) -> bool {
        let ignored =
            status_field(&self.proc, pid, "SigIgn").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
        ignored.is_none_or(|mask| mask >> (libc::SIGCHLD - 1) & 1 == 0)
    }

    /// The threads that were read last time, and others up to the limit.
    fn chosen(&mut self, threads: &[Pid]) -> Vec<Pid> {
        if threads.len() <= THREADS_MAX {
            return threads.to_vec();
        }
        let mut chosen = std::mem::take(&mut self.threads);
        chosen.retain(|tid| threads.contains(tid));
        // The next ones are read with the old ones once; then these are replaced.
        let next: Vec<_> = threads.iter().cycle().skip(self.turn).take(THREADS_MAX / 2).copied().collect();
        self.turn = (self.turn + THREADS_MAX / 2) % threads.len();
        self.threads.clone_from(&next);
        chosen.extend(next);
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    /// The processes of the zone, and those in each of emu's groups. A list that cannot be read now has what was in it before.
    fn listed(&mut self) -> (BTreeSet<Pid>, Vec<BTreeSet<Pid>>) {
        match &mut self.source {
            Source::Descendants { members: Some(members), groups, .. } => {
                let _ = members.look();
                let inside = |group: &ZoneGroup| lists::read_all(&group.path, PROCS).unwrap_or_default();
                let in_groups: Vec<BTreeSet<_>> =
                    groups.iter().map(|group| inside(group).into_iter().collect()).collect();
                let all = members.members().keys().chain(in_groups.iter().flatten()).copied().collect();
                (all, in_groups)
            }
            Source::Descendants { members: None, .. } => Default::default(),
            Source::Group(group) => {
                let inside = lists::read_all(&group.path, PROCS).unwrap_or_default();
                let inside: BTreeSet<_> = inside.into_iter().collect();
                (inside.clone(), vec![inside])
            }
        }
    }

    /// The group of a process that has left the zone's groups of a hierarchy. One that has joined another emu's is slowed there.
    fn place_outside(&self, pid: Pid, in_groups: &[BTreeSet<Pid>]) -> Option<PathBuf> {
        let mut left = self.groups().iter().zip(in_groups).filter(|(_, inside)| !inside.contains(&pid));
        left.find_map(|(group, _)| place::outside(&self.proc, pid, &group.hierarchy))
    }

    fn groups(&self) -> &[ZoneGroup] {
        match &self.source {
            Source::Descendants { groups, .. } => groups,
            Source::Group(group) => std::slice::from_ref(group),
        }
    }

    /// Whether a method has given the group its limit: the zone's group, or that of one CPU below it.
    pub(super) fn is_set_by_emu(&self, hierarchy: &Hierarchy, group: &Path) -> bool {
        let is_zone = |group: &Path| {
            // An existing group has the same name in each hierarchy.
            let below = group.strip_prefix(&hierarchy.mount);
            self.groups().iter().any(|zone| zone.path.strip_prefix(&zone.hierarchy.mount) == below)
        };
        is_zone(group) || place::is_of_cpu(group) && group.parent().is_some_and(is_zone)
    }

    /// The group of a thread that is in none of the zone's groups, in a hierarchy that has them.
    pub(super) fn thread_outside(&self, tid: Pid) -> Option<PathBuf> {
        let outside = |group: &ZoneGroup| {
            place::outside(&self.proc, tid, &group.hierarchy).filter(|home| !home.starts_with(&group.path))
        };
        self.groups().iter().find_map(outside)
    }

    /// A group with the zone's in it, or that itself in a hierarchy where emu does not freeze it, which others than emu have
    /// frozen: they freeze whole trees.
    pub(super) fn frozen_above(&self, hierarchies: &[Hierarchy]) -> Option<PathBuf> {
        let is_frozen =
            |group: &&Path| FROZEN.iter().any(|file| control_file::probe::<u8>(&group.join(file)) == Some(1));
        let above = |group: &Path| group.ancestors().find(is_frozen).map(Path::to_owned);
        match &self.source {
            Source::Group(group) => {
                let inside = group.path.strip_prefix(&group.hierarchy.mount).ok()?;
                hierarchies.iter().find_map(|hierarchy| {
                    let folder = hierarchy.mount.join(inside);
                    let is_own = self.freezes_in.as_ref() == Some(&hierarchy.mount);
                    above(if is_own { folder.parent()? } else { &folder })
                })
            }
            Source::Descendants { .. } => {
                let pid = *self.known.keys().next()?;
                let foreign = |hierarchy| place::foreign(&self.proc, pid, hierarchy);
                hierarchies.iter().filter_map(foreign).find_map(|group| above(&group))
            }
        }
    }

    /// Whether `/proc` shows the caller's processes alone (`hidepid`, proc(5)): one that changes its user is lost then.
    pub(super) fn is_blind(&self) -> bool {
        Stat::read(&self.proc, 1).is_none()
    }

    pub(super) fn outliving(&self) -> Vec<String> {
        let Source::Descendants { of, .. } = &self.source else { return Vec::new() };
        let lives = |pid: Pid| Stat::read(&self.proc, pid).is_some_and(|stat| !stat.has_ended());
        if of.iter().any(|&pid| lives(pid)) {
            return Vec::new();
        }
        let alive = self.known.keys().copied().filter(|&pid| lives(pid));
        alive
            .map(|pid| {
                let name = name(&self.proc, pid);
                format!("process {pid} ({name}) outlives the command, and is slowed no longer")
            })
            .collect()
    }
}

pub(super) fn name(proc: &Path, tid: Pid) -> String {
    let name = fs::read(proc.join(tid.to_string()).join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

impl Reading {
    pub(super) fn until(&self, later: &Self) -> Window {
        let task = |(&tid, after): (&Pid, &ThreadTime)| {
            let before = self.threads.get(&tid)?;
            Some(TaskWindow {
                tid,
                cpus: (before.cpu, after.cpu),
                wall: after.at - before.at,
                run: (after.run - before.run).max(0),
                wait: (after.wait - before.wait).max(0),
            })
        };
        let tasks = later.threads.iter().filter_map(task).filter(|task| task.wall > 0).collect();
        let has_joined = self.has_joined(later);
        let used = self.used_until(later, has_joined);
        // Some of what has run would be missing.
        let is_whole = self.is_whole && later.is_whole && used.is_some() && !has_joined;
        let length = later.at - self.at;
        Window { length, tasks, is_whole, used, out_of_reach: CpuList::default() }
    }

    fn has_unreaped(&self) -> bool {
        self.processes.values().any(|process| !process.reaps)
    }

    /// Whether a process that does not reap its children may have had one meanwhile.
    fn may_have_lost(&self, later: &Self) -> bool {
        let were_born = self.last_pid != later.last_pid || later.last_pid.is_none();
        were_born && (self.has_unreaped() || later.has_unreaped())
    }

    /// Processes that are there, and have not got the account of a child that was `known` and has ended.
    fn without_children(&self, known: &BTreeMap<Pid, ProcessTime>) -> Vec<Pid> {
        let has_ended = |(pid, one): &(&Pid, &ProcessTime)| {
            self.processes.get(pid).is_none_or(|now| now.starttime != one.starttime)
        };
        let has_nothing = |parent: &Pid| {
            let faults =
                |processes: &BTreeMap<Pid, ProcessTime>| Some(processes.get(parent)?.faults_of_children);
            faults(known).is_some_and(|before| faults(&self.processes) == Some(before))
        };
        known.iter().filter(has_ended).map(|(_, one)| one.parent).filter(has_nothing).collect()
    }

    /// The processes that were outside of emu's groups at both times, and where they are: one that is just being moved is
    /// not among them.
    pub(super) fn outside_until<'a>(&self, later: &'a Self) -> impl Iterator<Item = (Pid, &'a Path)> {
        let was_outside = |pid: &Pid| self.outside.contains_key(pid);
        let outside = later.outside.iter().filter(move |(pid, _)| was_outside(pid));
        outside.map(|(pid, group)| (*pid, group.as_path()))
    }

    /// Whether an older process has joined until then: what it used elsewhere is not told from what it has used here.
    fn has_joined(&self, later: &Self) -> bool {
        let is_new = |pid, one: &ProcessTime| {
            self.processes.get(pid).is_none_or(|before| before.starttime != one.starttime)
        };
        // A fork is under way for a while.
        let is_old = |one: &ProcessTime| one.starttime + FORK_TICKS < self.began;
        later.processes.iter().any(|(pid, one)| is_new(pid, one) && is_old(one))
    }

    /// By the account of the group, or, with those that have left it, by that of the processes. What one that has ended used is
    /// its parent's, who has waited for it; it is not known where the parent is no member, nor this process, which adopts orphans.
    fn used_until(&self, later: &Self, has_joined: bool) -> Option<Nanos> {
        let is_same = |pid: &Pid, one: &ProcessTime| {
            later.processes.get(pid).is_some_and(|now| now.starttime == one.starttime)
        };
        let reaps = |parent: &Pid| later.processes.get(parent).is_some_and(|parent| parent.reaps);
        let is_known = |pid: &Pid, one: &ProcessTime| is_same(pid, one) || reaps(&one.parent);
        let sum = |reading: &Self| reading.processes.values().map(|one| one.used).sum::<Nanos>();
        let all_known = self.processes.iter().all(|(pid, one)| is_known(pid, one));
        let adopted = self.adopted.zip(later.adopted).map(|(before, after)| after - before);
        let difference = sum(later) - sum(self) + adopted.unwrap_or(0);
        // What somebody else has waited for is missing.
        let is_lost = has_joined || self.may_have_lost(later);
        let is_known = !is_lost && (all_known || (adopted.is_some() && difference >= 0));
        let by_processes = is_known.then(|| difference.max(0));
        by_processes.max(self.used_by_group.zip(later.used_by_group).map(|(before, after)| after - before))
    }
}

#[cfg(test)]
mod tests;
