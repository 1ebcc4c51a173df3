//! A zone that lasts as long as the process that has made it, empty at first: processes join it, and may join it later.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use crate::cgroup::{
    Folder, Memory, MemoryLimit, check_memory, confine, hierarchy_for, join_as, lists, place,
};
use crate::command::SlowCommand;
use crate::error::{Error, Result};
use crate::exclusion::{Exclusion, Exclusive, check_exclusive};
use crate::hint::Hint;
use crate::host::delegation::PROCS;
use crate::host::{Controller, Hierarchy, Host};
use crate::method::{Trait, ids};
use crate::prepared::Prepared;
use crate::process::{Stat, check_targets, line_of, threads};
use crate::session::Session;
use crate::status::Status;
use crate::sys::Pid;
use crate::sys::signal;
use crate::sys::spawn::Gated;
use crate::sys::time;
use crate::undo::{TaskSet, Undo, give_back};
use crate::zone::Tasks;

/// How often children of a process that leaves are looked for.
const PASSES: usize = 100;

/// How long processes that are killed may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a node has beside its CPUs and their speeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeOptions {
    /// How much memory its processes may use together, in bytes, the page cache of what they read included.
    pub memory: Option<u64>,
    /// Whether the host's own tasks are kept off its CPUs, as far as their affinity can be changed. One node of a user can have
    /// this at a time: what two have changed of one task could not be undone in any order.
    pub exclusive: bool,
}

/// A virtual node: CPUs with speeds of their own, and whatever has joined. A process of this one's holds its place while
/// nothing else is in it. Dropping the node lets its processes run freely.
#[derive(Debug)]
#[must_use = "dropping a node ends it"]
pub struct Node {
    /// Dropped first: it would change tasks that the session puts back.
    exclusion: Option<Exclusion>,
    /// Dropped before the process that holds the place.
    session: Session,
    holder: Gated,
    host: Host,
    /// The number of cgroups that it was made with.
    group_count: usize,
    has_memory: bool,
}

impl Node {
    /// Makes a node of this name.
    ///
    /// # Errors
    /// As [`Session::begin`]; [`ErrorKind::Unavailable`](crate::error::ErrorKind) where the method puts the node into no
    /// cgroup: what is in it could not be told.
    pub fn create(prepared: &Prepared, name: impl Into<String>) -> Result<Self> {
        Self::create_with(prepared, name, NodeOptions::default())
    }

    /// As [`create`](Self::create), with more than CPUs and speeds.
    ///
    /// # Errors
    /// As [`create`](Self::create). The size is none for memory here, or no cgroup with the memory controller can be made. The
    /// host would be left no CPU, another node is exclusive, or a task is bound to these CPUs alone.
    pub fn create_with(prepared: &Prepared, name: impl Into<String>, options: NodeOptions) -> Result<Self> {
        let host = prepared.host().clone();
        let cpus = prepared.demand().cpus();
        options.memory.map_or(Ok(()), |bytes| check_memory(&host, bytes))?;
        if options.exclusive {
            check_exclusive(&host, &cpus)?;
        }
        // It waits at its gate for ever.
        let holder = SlowCommand::new("node").gate()?;
        let tasks = Tasks::Processes(vec![holder.pid()]);
        let session = Session::of(prepared, name.into(), tasks, true, options.memory)?;
        let has_memory = options.memory.is_some();
        let mut node = Self { exclusion: None, session, holder, host, group_count: 0, has_memory };
        node.group_count = node.groups().len();
        if node.group_count == 0 {
            let id = prepared.method().id();
            let by_groups = [ids::CPU_FREEZE, ids::FRACAS].into_iter();
            let others =
                by_groups.filter(|other| Prepared::named(*other, &node.host, prepared.demand()).is_ok());
            let hint = others.map(|other| Hint::from(format!("use {other}"))).reduce(Hint::or);
            let hint = hint.map_or(Hint::OwnGroup(vec![]), |others| others.or("leave out a CPU"));
            return Err(
                Error::unavailable(format!("cannot make a node by {id}: it has no cgroup here")).hint(hint)
            );
        }
        if options.exclusive {
            let (groups, journal) = (node.groups(), node.session.journal());
            node.exclusion = Some(Exclusion::begin(&node.host, &cpus, groups, journal)?);
        }
        Ok(node)
    }

    /// What is kept off its CPUs, and what stays there; `None` where it is not exclusive.
    pub fn exclusive(&self) -> Option<Exclusive> {
        self.exclusion.as_ref().map(Exclusion::report)
    }

    /// What is in force for it.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The processes in it.
    pub fn members(&self) -> Vec<Pid> {
        let all = |(hierarchy, path): (&Hierarchy, _)| {
            let folder = Folder { version: hierarchy.version, path };
            lists::processes(&self.host.roots.proc, &folder).unwrap_or_default()
        };
        let mut members: Vec<Pid> = self.parts().flat_map(all).collect();
        members.retain(|&pid| pid != self.holder.pid());
        members.sort_unstable();
        members.dedup();
        members
    }

    /// The memory that its processes may use together, and what they use; `None` where it has no limit of its own.
    ///
    /// # Errors
    /// The cgroup or its limit has been removed.
    pub fn memory(&self) -> Result<Option<Memory>> {
        self.memory_limit()?.map(|limit| limit.read()).transpose()
    }

    /// Changes the limit of its memory at once. What its processes use too much, the kernel takes back as far as it can without
    /// killing any.
    ///
    /// # Errors
    /// The node has no limit; the size is none for memory here; its processes use more. Then nothing changes.
    pub fn set_memory(&self, bytes: u64) -> Result<()> {
        let limit = self.memory_limit()?.ok_or_else(|| {
            Error::usage("the node has no limit of its memory").hint("make it anew, with such a limit")
        })?;
        check_memory(&self.host, bytes)?;
        limit.set(bytes)
    }

    fn memory_limit(&self) -> Result<Option<MemoryLimit>> {
        if !self.has_memory {
            return Ok(None);
        }
        let limit = hierarchy_for(&self.host, Controller::Memory).and_then(|hierarchy| {
            let path = place::own_group(&self.host.roots.proc, self.holder.pid(), hierarchy)?;
            Some(MemoryLimit::of(&Folder { version: hierarchy.version, path }))
        });
        let gone = || Error::unavailable("the cgroup that limits the node's memory has been removed");
        limit.map(Some).ok_or_else(|| gone().hint("end the node, and make it anew"))
    }

    /// Whether its cgroups are still there: without them, what joins would run freely.
    ///
    /// # Errors
    /// Somebody has removed one.
    pub fn check_groups(&self) -> Result<()> {
        if self.groups().len() < self.group_count {
            return Err(Error::unavailable("a cgroup of the node has been removed")
                .hint("end the node, and make it anew"));
        }
        Ok(())
    }

    /// Has a process join, with all its threads, and with the children that it will have. It is as slow as the node from here
    /// on, with a method that stops processes from the next period on.
    ///
    /// # Errors
    /// It is not there, must not be slowed, or is another user's; another emu would go on slowing it; the kernel refuses to
    /// move it; a cgroup of the node has been removed.
    pub fn adopt(&self, pid: Pid) -> Result<()> {
        match &self.exclusion {
            Some(exclusion) => exclusion.leave_out(|| self.take_in(pid)),
            None => self.take_in(pid),
        }
    }

    fn take_in(&self, pid: Pid) -> Result<()> {
        self.check_groups()?;
        if self.members().contains(&pid) {
            return Ok(());
        }
        let proc = &self.host.roots.proc;
        check_targets(proc, [pid])?;
        let stat = Stat::read(proc, pid).filter(|stat| !stat.has_ended());
        let stat = stat.ok_or_else(|| Error::usage(format!("there is no process {pid}")))?;
        // It is in no list of a group's processes, by which those are found that are to be stopped.
        if self.sends_signals() && stat.state == b'Z' {
            return Err(Error::unavailable(format!("process {pid} goes on without its first thread"))
                .hint("make the node with cpu-freeze or fracas, or attach to that process"));
        }
        self.check_others(pid)?;
        let home = |hierarchy| Some((hierarchy, place::home(proc, pid, hierarchy)?));
        let homes: Vec<_> = self.host.cgroups.hierarchies.iter().filter_map(home).collect();
        self.join((pid, stat.starttime)).inspect_err(|_| {
            // What is refused now is done at the end of the node.
            for (hierarchy, home) in homes {
                if place::home(proc, pid, hierarchy).is_some_and(|now| now != home) {
                    let _ = place::put(&home.join(PROCS), &pid.to_string());
                }
            }
        })
    }

    fn join(&self, task: (Pid, u64)) -> Result<()> {
        let (proc, journal, (pid, starttime)) = (&self.host.roots.proc, self.session.journal(), task);
        give_back(&self.host.roots, &[pid])?;
        confine::remember(&self.host, pid, journal)?;
        for hierarchy in &self.host.cgroups.hierarchies {
            join_as(proc, task, self.holder.pid(), hierarchy, journal)?;
        }
        if self.sends_signals() {
            // Continued before it is moved back: afterwards nobody would know it as one that was stopped.
            journal.record(&Undo::Continue { pid, starttime })?;
        }
        let tasks = TaskSet::DescendantsOf { pid, starttime };
        let cpus = self.session.demand().targets.keys().copied().collect();
        confine::bind(proc, &cpus, journal, &[tasks], || Ok(vec![pid]))?;
        self.session.take_in(pid);
        Ok(())
    }

    /// Has processes leave, with the children that they have on the node: they run freely, where they came from. A daemon of
    /// theirs stays: once its parent has ended, nobody knows whose it was. Where the method sends signals, all of the node runs
    /// freely meanwhile, for some periods.
    ///
    /// # Errors
    /// One is not on the node, or cannot be put back; there are new children all the time.
    pub fn leave(&mut self, pids: &[Pid]) -> Result<()> {
        let members = self.members();
        if let Some(pid) = pids.iter().find(|pid| !members.contains(pid)) {
            return Err(Error::usage(format!("process {pid} is not on the node")));
        }
        // Once it has left, nobody would continue it.
        let pauses = self.sends_signals() && !self.session.is_paused();
        if pauses {
            self.session.pause()?;
        }
        let left = match &self.exclusion {
            Some(exclusion) => exclusion.leave_out(|| self.let_go(pids)),
            None => self.let_go(pids),
        };
        let resumed = if pauses { self.session.resume() } else { Ok(()) };
        self.session.look();
        left.and(resumed)
    }

    fn let_go(&self, pids: &[Pid]) -> Result<()> {
        let (proc, journal) = (&self.host.roots.proc, self.session.journal());
        let mut left = Vec::new();
        for _ in 0..PASSES {
            let family = self.family(pids);
            if family.is_empty() {
                return journal.forget(&left);
            }
            self.session.let_go(&family);
            let task = |tid| Some((tid, Stat::read(proc, tid)?.starttime));
            left.extend(family.iter().flat_map(|&one| threads(proc, one)).filter_map(task));
            journal.undo_of(&left, &family)?;
            for (hierarchy, group) in self.parts() {
                let outside =
                    |pid| place::home(proc, pid, hierarchy).filter(|home| !home.starts_with(&group));
                for &one in &family {
                    // A child that was born here has no record, and a group that has gone takes nobody back.
                    let to = line_of(proc, one)
                        .into_iter()
                        .find_map(outside)
                        .or_else(|| outside(std::process::id() as Pid));
                    if let Some(to) = to.filter(|_| outside(one).is_none()) {
                        place::put(&to.join(PROCS), &one.to_string())?;
                    }
                }
            }
        }
        Err(Error::unavailable("processes have new children faster than they leave the node"))
    }

    /// What is on the node of these processes, and of those that descend from them.
    fn family(&self, pids: &[Pid]) -> Vec<Pid> {
        let mut family = self.members();
        family.retain(|&one| line_of(&self.host.roots.proc, one).iter().any(|one| pids.contains(one)));
        family
    }

    /// Refuses a process that another emu would go on slowing, in a hierarchy where this node has no group.
    fn check_others(&self, pid: Pid) -> Result<()> {
        let proc = &self.host.roots.proc;
        for hierarchy in &self.host.cgroups.hierarchies {
            if place::own_group(proc, self.holder.pid(), hierarchy).is_some() {
                continue;
            }
            let [home, here] = [pid, self.holder.pid()].map(|pid| place::home(proc, pid, hierarchy));
            let elsewhere = home.filter(|home| Some(home) != here.as_ref());
            if let Some(emu) = elsewhere.and_then(|home| place::other_emu(proc, &home)) {
                return Err(Error::unavailable(format!(
                    "emu {emu} slows process {pid} already, by other means"
                ))
                .hint("start it outside of that node or emulation"));
            }
        }
        Ok(())
    }

    fn sends_signals(&self) -> bool {
        self.session.about().has(Trait::SendsSignals)
    }

    /// Kills all that is in it, and waits until it has ended.
    ///
    /// # Errors
    /// Something may not be killed, or does not end.
    pub fn kill(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let members = self.members();
            let Some(first) = members.first() else { return Ok(()) };
            if begin.elapsed() > PATIENCE {
                return Err(Error::unavailable(format!("process {first} of the node does not end")));
            }
            for &pid in &members {
                // It was in the list after its pidfd was opened: the pidfd is of a member, or of one that has ended.
                let raw = rustix::process::Pid::from_raw(pid);
                let Some(Ok(pidfd)) = raw.map(|raw| pidfd_open(raw, PidfdFlags::empty())) else { continue };
                if !self.members().contains(&pid) {
                    continue;
                }
                match signal::send(pidfd.as_fd(), pid, Signal::KILL) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(e) => return Err(Error::io(format!("cannot kill process {pid}"), e.into())),
                }
            }
            time::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the node: its processes run freely, where they came from. Returns the last status, and whether all went well.
    ///
    /// # Errors
    /// As [`Session::release`].
    pub fn remove(self) -> (Status, Result<()>) {
        let Self { exclusion, session, holder, .. } = self;
        drop(exclusion);
        let ended = session.release();
        drop(holder);
        ended
    }

    /// The node's cgroups, one for each hierarchy that has one.
    fn groups(&self) -> Vec<PathBuf> {
        self.parts().map(|(_, group)| group).collect()
    }

    /// Each with its hierarchy. A group with this process in it is none of the node's.
    fn parts(&self) -> impl Iterator<Item = (&Hierarchy, PathBuf)> {
        let (proc, own) = (&self.host.roots.proc, std::process::id() as Pid);
        let part = move |hierarchy| {
            let group = place::own_group(proc, self.holder.pid(), hierarchy)?;
            let is_mine = place::own_group(proc, own, hierarchy).is_some_and(|mine| mine == group);
            (!is_mine).then_some((hierarchy, group))
        };
        self.host.cgroups.hierarchies.iter().filter_map(part)
    }
}

#[cfg(test)]
mod tests;
