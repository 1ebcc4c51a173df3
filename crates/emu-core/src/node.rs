//! A zone that lasts, empty at first: processes join it, and may join it later.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use crate::cgroup::{confine, join_as, lists, place};
use crate::command::SlowCommand;
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::host::Host;
use crate::host::delegation::PROCS;
use crate::method::Trait;
use crate::process::{Stat, check_targets};
use crate::session::{Prepared, Session};
use crate::status::Status;
use crate::sys::Pid;
use crate::sys::signal;
use crate::sys::spawn::Gated;
use crate::undo::{TaskSet, Undo};
use crate::zone::Tasks;

/// How long processes that are killed may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A virtual node: CPUs with speeds of their own, and whatever has joined.
///
/// A process of this one's holds its place while nothing else is in it. Dropping the node lets its processes run freely.
#[derive(Debug)]
#[must_use = "dropping a node ends it"]
pub struct Node {
    /// Dropped before the process that holds the place.
    session: Session,
    holder: Gated,
    host: Host,
}

impl Node {
    /// Makes a node of this name.
    ///
    /// # Errors
    /// As [`Session::begin`]; [`ErrorKind::Unavailable`](crate::error::ErrorKind) where the method puts the node into no
    /// cgroup: what is in it could not be told.
    pub fn create(prepared: &Prepared, name: impl Into<String>) -> Result<Self> {
        // It waits at its gate for ever.
        let holder = SlowCommand::new("node").gate()?;
        let session = Session::begin(prepared, name, Tasks::Processes(vec![holder.pid()]))?;
        let node = Self { session, holder, host: prepared.host().clone() };
        if node.groups().is_empty() {
            let message = format!("cannot make a node by {}: it has no cgroup here", prepared.method().id());
            return Err(Error::unavailable(message).hint(
                Hint::from("leave out a CPU, or use cpu-freeze, fracas or cpu-lim")
                    .or(Hint::OwnGroup(vec![])),
            ));
        }
        Ok(node)
    }

    /// What is in force for it.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The processes in it.
    pub fn members(&self) -> Vec<Pid> {
        let all = |group: &PathBuf| lists::read_all(group, PROCS).unwrap_or_default();
        let mut members: Vec<Pid> = self.groups().iter().flat_map(all).collect();
        members.retain(|&pid| pid != self.holder.pid());
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Has a process join, with all its threads, and with the children that it will have. It is as slow as the node from
    /// here on, with a method that stops processes from the next period on.
    ///
    /// # Errors
    /// It is not there, must not be slowed, or is another user's; another emu would go on slowing it; the kernel refuses to
    /// move it.
    pub fn adopt(&self, pid: Pid) -> Result<()> {
        let (proc, journal) = (&self.host.roots.proc, self.session.journal());
        check_targets(proc, [pid])?;
        let stat = Stat::read(proc, pid).filter(|stat| !stat.has_ended());
        let stat = stat.ok_or_else(|| Error::usage(format!("there is no process {pid}")))?;
        self.check_others(pid)?;
        let task = (pid, stat.starttime);
        confine::remember(&self.host, pid, journal)?;
        for hierarchy in &self.host.cgroups.hierarchies {
            join_as(proc, task, self.holder.pid(), hierarchy, journal)?;
        }
        if self.sends_signals() {
            // It is continued before it is moved back: afterwards nobody would know it as one that was stopped.
            journal.record(&Undo::Continue { pid, starttime: stat.starttime })?;
        }
        let tasks = TaskSet::DescendantsOf { pid, starttime: stat.starttime };
        let cpus = self.session.targets().keys().copied().collect();
        confine::bind(proc, &cpus, journal, &[tasks], || Ok(vec![pid]))?;
        self.session.look();
        Ok(())
    }

    /// Refuses a process that another emu would go on slowing, in a hierarchy in which this node has no group.
    fn check_others(&self, pid: Pid) -> Result<()> {
        let proc = &self.host.roots.proc;
        for hierarchy in &self.host.cgroups.hierarchies {
            if place::own_group(proc, self.holder.pid(), hierarchy).is_some() {
                // It is moved there.
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
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the node: its processes run freely, where they came from. Returns the last status, and whether all went well.
    ///
    /// # Errors
    /// As [`Session::release`].
    pub fn remove(self) -> (Status, Result<()>) {
        let Self { session, holder, .. } = self;
        let ended = session.release();
        drop(holder);
        ended
    }

    /// Its cgroups, one for each hierarchy that has one. One with this process in it is none of the node's.
    fn groups(&self) -> Vec<PathBuf> {
        let (proc, own) = (&self.host.roots.proc, std::process::id() as Pid);
        let group = |hierarchy| {
            let group = place::own_group(proc, self.holder.pid(), hierarchy)?;
            let is_mine = place::own_group(proc, own, hierarchy).is_some_and(|mine| mine == group);
            (!is_mine).then_some(group)
        };
        self.host.cgroups.hierarchies.iter().filter_map(group).collect()
    }
}
