//! One group for each CPU of a zone, so that one thread is slowed as much as many: a quota limits a sum, and one
//! group for n CPUs would let a single thread have what all of them were meant to share. On v1 tasks are moved by
//! `tasks`, on v2 the groups are threaded (cgroup-v2.rst, "Threads").
//!
//! While no group has more than one thread to run, all of them may use all CPUs of the zone: a thread cannot have
//! more than its group's quota, and the program sees the CPUs it would see without us (`sched_getaffinity(2)`, by
//! which `nproc` and OpenMP count). When threads share a group, or speeds are unequal, each group is bound to its
//! CPU: two threads of one group on two CPUs would use up its quota twice as fast and leave a CPU idle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::confine;
use crate::cgroup::cpuset_return::CpusetReturn;
use crate::cgroup::place;
use crate::cgroup::{Bandwidth, Owner};
use crate::cgroup::{Folder, TaskGroup, lists, real_time};
use crate::control_file;
use crate::cpu_list::{CpuId, CpuList};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::host;
use crate::host::{Controller, Host};
use crate::process::Stat;
use crate::sys::Pid;
use crate::sys::affinity;
use crate::undo::{Journal, Undo};
use crate::zone::Zone;

const CONTROLLERS: [Controller; 3] = [Controller::Cpu, Controller::Cpuset, Controller::Cpuacct];

/// How often the zone's own group is emptied before it is said that its tasks fork too fast.
const SETTLE_ROUNDS: usize = 1_000;

#[derive(Debug)]
struct Part {
    folder: Folder,
    /// The file that lists and takes threads.
    members: PathBuf,
}

impl Part {
    fn of(folder: Folder) -> Self {
        Self { members: folder.threads_file(), folder }
    }
}

#[derive(Debug)]
pub(crate) struct CpuGroup {
    pub(crate) cpu: CpuId,
    /// In the order of [`CpuGroups::homes`]. The first, of the cpu controller, says where a thread belongs.
    parts: Vec<Part>,
}

#[derive(Debug)]
pub(crate) struct CpuGroups {
    /// The zone's own group in each hierarchy.
    homes: Vec<Part>,
    groups: Vec<CpuGroup>,
    cpus: CpuList,
    /// The index of the hierarchy with the cpuset controller.
    cpuset: Option<usize>,
    /// The index of the hierarchy that accounts CPU time.
    accounting: Option<usize>,
    /// Whether each group is bound to its CPU.
    pinned: bool,
    returning: Option<CpusetReturn>,
    /// Whether the cpusets of the CPUs' groups must be written again.
    is_short: bool,
    /// Whether threads keep what they are bound to while their group is.
    keeps_affinity: bool,
    procfs: PathBuf,
}

impl CpuGroups {
    pub(crate) fn create(host: &Host, zone: &Zone, group: &TaskGroup, journal: &Journal) -> Result<Self> {
        let mut homes: Vec<Part> = Vec::new();
        let (mut cpuset, mut accounting) = (None, None);
        for controller in CONTROLLERS {
            let Some(folder) = group.folder(controller) else { continue };
            let known = homes.iter().position(|home| home.folder == *folder);
            let index = known.unwrap_or(homes.len());
            if known.is_none() {
                refuse_nested(&folder.path)?;
                homes.push(Part::of(folder.clone()));
            }
            match controller {
                Controller::Cpuset => cpuset = Some(index),
                Controller::Cpuacct => accounting = Some(index),
                _ => {}
            }
        }
        for home in homes.iter().filter(|home| home.folder.version == 2) {
            let here = |controller: &Controller| group.folder(*controller) == Some(&home.folder);
            let needed = [Controller::Cpu, Controller::Cpuset].into_iter().filter(here);
            enable_threaded(&home.folder.path, needed, journal)?;
        }
        let mut this = Self {
            homes,
            groups: Vec::new(),
            cpus: zone.demand.cpus(),
            cpuset,
            accounting,
            pinned: false,
            returning: group.returning(zone),
            is_short: false,
            keeps_affinity: confine::keeps_affinity(host),
            procfs: host.roots.proc.clone(),
        };
        let count = this.cpus.len();
        for cpu in this.cpus.iter() {
            let parts =
                this.homes.iter().map(|home| make(home, cpu, count, journal)).collect::<Result<_>>()?;
            this.groups.push(CpuGroup { cpu, parts });
        }
        this.write_cpusets(false, &this.cpus.clone())?;
        Ok(this)
    }

    /// The bandwidth of each group, in the order of the CPUs.
    pub(crate) fn bandwidths(&self) -> Result<Vec<Bandwidth>> {
        let open = |group: &CpuGroup| {
            let folder = |index: usize| group.parts.get(index).map(|part| &part.folder);
            let cpu = folder(0).ok_or_else(|| Error::unavailable("the zone has no cpu controller"))?;
            Bandwidth::open(cpu, self.accounting.and_then(folder), Owner::Us)
        };
        self.groups.iter().map(open).collect()
    }

    pub(super) fn stat(&self, tid: Pid) -> Option<Stat> {
        Stat::read(&self.procfs, tid)
    }

    pub(super) fn procfs(&self) -> &Path {
        &self.procfs
    }

    pub(crate) fn groups(&self) -> &[CpuGroup] {
        &self.groups
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned
    }

    pub(crate) fn can_pin(&self) -> bool {
        self.cpuset.is_some()
    }

    /// Groups of CPUs that are not usable are left as they are. What fails is tried again by [`renew`](Self::renew).
    pub(crate) fn pin(&mut self, pinned: bool, usable: &CpuList) -> Result<()> {
        if self.pinned != pinned && self.can_pin() { self.write_cpusets(pinned, usable) } else { Ok(()) }
    }

    /// The CPUs of the zone that tasks can use now. Those that have come back online are put back before, into the
    /// zone's own cpuset; [`renew`](Self::renew) is to follow.
    pub(crate) fn usable(&mut self, online: &CpuList) -> CpuList {
        let online = self.cpus.intersection(online);
        match &mut self.returning {
            None => online,
            Some(returning) => {
                // The groups below have lost what this one had lost.
                self.is_short |= returning.renew(&online) == Some(true);
                online.intersection(returning.has())
            }
        }
    }

    pub(crate) fn cpus(&self) -> &CpuList {
        &self.cpus
    }

    pub(crate) fn is_whole(&self, cpus: &CpuList) -> bool {
        self.cpus.difference(cpus).is_empty()
    }

    /// Whether bindings of threads can be seen: while a cpuset lacks a CPU, or is bound to one, no thread can use
    /// all.
    pub(super) fn shows_bindings(&self) -> bool {
        let Some(index) = self.cpuset else { return true };
        let home = self.homes.get(index);
        let parts = self.groups.iter().filter_map(|group| group.parts.get(index));
        home.into_iter().chain(parts).all(|part| {
            let file = part.folder.path.join(confine::in_force(part.folder.version));
            control_file::probe_cpus(&file).is_some_and(|has| self.is_whole(&has))
        })
    }

    /// Lets groups loose for once that are bound, where that shows what their threads are bound to.
    pub(crate) fn unpin_for_a_look(&mut self, usable: &CpuList) -> Result<()> {
        // Kernels that do not keep a thread's own affinity would give all of them all CPUs.
        if self.keeps_affinity { self.pin(false, usable) } else { Ok(()) }
    }

    /// Writes the cpusets of the CPUs' groups again, where CPUs are `back` or these groups had lost some.
    pub(crate) fn renew(&mut self, back: bool, usable: &CpuList) -> Result<()> {
        if back || self.is_short { self.write_cpusets(self.pinned, usable) } else { Ok(()) }
    }

    fn write_cpusets(&mut self, pinned: bool, usable: &CpuList) -> Result<()> {
        let Some(index) = self.cpuset else { return Ok(()) };
        (self.pinned, self.is_short) = (pinned, true);
        let all = self.cpus.intersection(usable);
        for group in self.groups.iter().filter(|group| usable.contains(group.cpu)) {
            let Some(part) = group.parts.get(index) else { continue };
            let cpus = if pinned { group.cpu.to_string() } else { all.to_string() };
            control_file::write(&part.folder.path.join(confine::CPUS), &cpus)?;
        }
        self.is_short = false;
        Ok(())
    }

    /// Moves every thread that is still in the zone's own group to the groups of the CPUs, in turn; children
    /// are born where their parent is. Returns how many could not be moved.
    pub(crate) fn settle(&self) -> Result<usize> {
        let (mut next, mut lists) = (0, Vec::new());
        for _ in 0..SETTLE_ROUNDS {
            let mut found = BTreeSet::new();
            for home in &self.homes {
                found.extend(threads_of(&home.members)?);
            }
            if found.is_empty() {
                return Ok(0);
            }
            // A thread that is in a group by its cpu controller, and by another not yet, stays with that group.
            self.threads(&mut lists)?;
            let mut places = BTreeMap::new();
            for (place, tids) in lists.iter().enumerate() {
                places.extend(tids.iter().map(|&tid| (tid, place)));
            }
            let mut refused = 0;
            for &tid in &found {
                let place = places.get(&tid).copied().unwrap_or_else(|| {
                    next = self.next_place(next, self.binding(tid).as_ref());
                    next
                });
                refused += usize::from(self.move_to(tid, place).is_err());
            }
            if refused == found.len() {
                return Ok(refused);
            }
        }
        Err(Error::new(ErrorKind::Failed, "the zone's tasks start new ones faster than they can be moved")
            .hint(Hint::StartInZone))
    }

    /// The next group in turn that is of one of these CPUs, or the next one where none is.
    fn next_place(&self, last: usize, bound: Option<&CpuList>) -> usize {
        let count = self.groups.len().max(1);
        let first = (last + 1) % count;
        let mut turn = (first..first + count).map(|place| place % count);
        let may_be_on = |group: &CpuGroup| bound.is_none_or(|cpus| cpus.contains(group.cpu));
        turn.find(|&place| self.groups.get(place).is_some_and(may_be_on)).unwrap_or(first)
    }

    /// A thread that has ended is no error. The kernel refuses kernel threads, and on v1 real-time threads for a
    /// group without real-time budget.
    pub(crate) fn move_to(&self, tid: Pid, place: usize) -> Result<()> {
        let Some(group) = self.groups.get(place) else { return Ok(()) };
        for part in &group.parts {
            match control_file::write(&part.members, &tid.to_string()) {
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                result => result?,
            }
        }
        Ok(())
    }

    pub(crate) fn threads(&self, lists: &mut Vec<Vec<Pid>>) -> Result<()> {
        lists.clear();
        for group in &self.groups {
            lists.push(match group.parts.first() {
                Some(part) => threads_of(&part.members)?,
                None => Vec::new(),
            });
        }
        Ok(())
    }

    /// Puts threads right that are in one CPU's group by one controller and in another's by the next: born in
    /// the middle of their parent's move.
    pub(crate) fn align(&self, lists: &[Vec<Pid>]) -> Result<()> {
        for (place, (group, right)) in self.groups.iter().zip(lists).enumerate() {
            for part in group.parts.iter().skip(1) {
                let have: BTreeSet<_> = threads_of(&part.members)?.into_iter().collect();
                for &tid in right.iter().filter(|tid| !have.contains(tid)) {
                    // It may have ended, or be in the middle of another move; the next look tells.
                    let _ = self.move_to(tid, place);
                }
            }
        }
        Ok(())
    }

    /// Whether groups hide what their threads are bound to, so that [`reveal`](Self::reveal) is needed, and can do it.
    pub(super) fn hide_bindings(&self) -> bool {
        self.pinned && self.keeps_affinity
    }

    /// As [`binding`](Self::binding), also of a thread whose group is bound. That puts it into the cpuset of the zone's own group,
    /// which it has to leave at once.
    pub(super) fn reveal(&self, tid: Pid) -> Result<Option<CpuList>> {
        if let Some(home) = self.cpuset.and_then(|index| self.homes.get(index)) {
            control_file::write(&home.members, &tid.to_string())?;
        }
        Ok(self.binding(tid))
    }

    /// Whether binding a group makes its threads forget what they are bound to.
    pub(super) fn forget_bindings(&self) -> bool {
        self.pinned && !self.keeps_affinity
    }

    /// The CPUs that the program has bound a thread to, when they are fewer than the zone's. Only to be seen
    /// while groups are not bound themselves.
    pub(crate) fn binding(&self, tid: Pid) -> Option<CpuList> {
        let fewer = |cpus: CpuList| {
            let cpus = cpus.intersection(&self.cpus);
            (!cpus.is_empty() && cpus != self.cpus).then_some(cpus)
        };
        fewer(affinity::get(tid).ok()?)?;
        // The call leaves out a CPU that is on its way offline or back, whatever the thread may use.
        let status = host::text(&self.procfs.join(format!("{tid}/status")));
        fewer(host::mask(&status)?)
    }
}

#[cfg(test)]
impl CpuGroups {
    /// Those of version 1 below a folder, which has no cpuset.
    pub(super) fn below(folder: &Path, cpus: &CpuList) -> Self {
        let part = |path: PathBuf| Part::of(Folder { version: 1, path });
        let group = |cpu| CpuGroup { cpu, parts: vec![part(place::of_cpu(folder, cpu))] };
        Self {
            homes: vec![part(folder.to_owned())],
            groups: cpus.iter().map(group).collect(),
            cpus: cpus.clone(),
            cpuset: None,
            accounting: None,
            pinned: false,
            returning: None,
            is_short: false,
            keeps_affinity: true,
            procfs: "/proc".into(),
        }
    }
}

fn make(home: &Part, cpu: CpuId, count: usize, journal: &Journal) -> Result<Part> {
    let path = place::of_cpu(&home.folder.path, cpu);
    let members = home.folder.threads_name().to_owned();
    journal.record(&Undo::Group { path: path.clone(), members, return_to: home.members.clone() })?;
    fs::create_dir(&path).map_err(|e| Error::file("make", &path, e))?;
    real_time::share(&home.folder.path, &path, count);
    if home.folder.version == 2 {
        control_file::write(&path.join("cgroup.type"), "threaded")?;
    } else if let Some(mems) = control_file::read_if_present(&home.folder.path.join("cpuset.mems"))? {
        // On v1 a cpuset takes no task before it has memory.
        control_file::write(&path.join("cpuset.mems"), &mems)?;
    }
    Ok(Part::of(Folder { version: home.folder.version, path }))
}

/// Groups below somebody else's would have to be dissolved into ours, and could not be put back.
fn refuse_nested(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(|e| Error::file("list", folder, e))?;
    let nested =
        entries.filter_map(io::Result::ok).find(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    match nested {
        None => Ok(()),
        Some(nested) => Err(Error::unavailable(format!(
            "{} has groups below it, such as {}: its threads cannot be spread over one group for each CPU",
            folder.display(),
            nested.file_name().to_string_lossy()
        ))
        .hint("attach to the groups below it, choose one CPU, or use cpu-freeze or fracas:published")),
    }
}

/// Lets groups below `folder` have controllers. That needs no empty group, as these two can be divided among
/// threads (cgroup-v2.rst, "Threads"). The folder may be somebody else's: that they had none is in the journal.
fn enable_threaded(
    folder: &Path,
    controllers: impl Iterator<Item = Controller>,
    journal: &Journal,
) -> Result<()> {
    let enabled = control_file::read(&folder.join("cgroup.subtree_control"))?;
    let is_enabled =
        |controller: &Controller| enabled.split_whitespace().any(|name| name == controller.as_str());
    let missing: Vec<_> = controllers.filter(|controller| !is_enabled(controller)).collect();
    if missing.is_empty() { Ok(()) } else { place::enable(folder, &missing, journal) }
}

/// The threads that a file lists. It is opened anew each time: on v1 an open file keeps the list that it had
/// when it was first read.
fn threads_of(members: &Path) -> Result<Vec<Pid>> {
    Ok(lists::named(&control_file::read(members)?).collect())
}

#[cfg(test)]
mod tests;
