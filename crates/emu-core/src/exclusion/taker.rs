//! Takes tasks off CPUs by their affinity.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::cgroup::{PASSES, lists, place};
use crate::control_file;
use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::host::delegation::PROCS;
use crate::host::{Hierarchy, Host, mask};
use crate::process::{Stat, is_owned, threads};
use crate::sys::Pid;
use crate::sys::affinity;
use crate::sys::time;
use crate::undo::{Journal, TaskSet, Undo};

/// A task is known by its number and its start.
type Task = (Pid, u64);

/// From which CPUs a task was taken, and which it has left.
type Change = [CpuList; 2];

#[derive(Debug)]
pub(super) struct Taker {
    proc: PathBuf,
    cpus: CpuList,
    hierarchies: Vec<Hierarchy>,
    /// The members of these stay.
    groups: Vec<PathBuf>,
    journal: Journal,
    /// The changes that descendants may have inherited, as recorded.
    changes: HashSet<Change>,
    taken: HashMap<Task, Change>,
    staying: HashMap<Task, Staying>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Staying {
    /// It has no other CPU.
    Bound(CpuList),
    /// The kernel or its owner does not let it be changed.
    Refused(String),
}

impl Taker {
    pub(super) fn new(host: &Host, cpus: &CpuList, groups: Vec<PathBuf>, journal: &Journal) -> Self {
        Self {
            proc: host.roots.proc.clone(),
            cpus: cpus.clone(),
            hierarchies: host.cgroups.hierarchies.clone(),
            groups,
            journal: journal.clone(),
            changes: HashSet::new(),
            taken: HashMap::new(),
            staying: HashMap::new(),
        }
    }

    /// Takes the processes of `list` until no new one appears. Fails where a task has no other CPU, or new ones keep coming.
    pub(super) fn take_all(&mut self, list: &mut dyn FnMut() -> Result<Vec<Pid>>) -> Result<()> {
        for _ in 0..PASSES {
            let before = self.taken.clone();
            self.take(&list()?)?;
            if let Some(((tid, _), Staying::Bound(cpus))) =
                self.staying.iter().find(|(_, why)| matches!(why, Staying::Bound(_)))
            {
                let message = format!(
                    "{} may run on CPUs {cpus} only, which are to be the node's alone",
                    self.name(*tid)
                );
                return Err(Error::unavailable(message)
                    .hint("let it run elsewhere (taskset -cp), or choose other CPUs"));
            }
            if self.taken.keys().all(|task| before.contains_key(task)) {
                return Ok(());
            }
        }
        Err(Error::unavailable(format!("cannot keep tasks off CPUs {}: new ones keep coming", self.cpus)))
    }

    pub(super) fn take(&mut self, pids: &[Pid]) -> Result<()> {
        let members = self.members()?;
        let (mut staying, mut alive) = (HashMap::new(), HashSet::new());
        for &pid in pids.iter().filter(|pid| !members.contains(pid)) {
            if Stat::read(&self.proc, pid).is_none_or(|stat| stat.is_kernel) {
                continue;
            }
            for tid in threads(&self.proc, pid) {
                let Some(task) = self.task(tid) else { continue };
                alive.insert(task);
                if let Some(why) = self.take_one(task, pid)? {
                    staying.insert(task, why);
                }
            }
        }
        self.taken.retain(|task, _| alive.contains(task));
        self.staying = staying;
        Ok(())
    }

    /// Returns why the thread stays, if it does.
    fn take_one(&mut self, task: Task, pid: Pid) -> Result<Option<Staying>> {
        let (tid, starttime) = task;
        let now = match affinity::get(tid) {
            Ok(now) if !now.intersection(&self.cpus).is_empty() => now,
            Ok(_) => return Ok(None),
            Err(error) => return Ok(refused(&error)),
        };
        if now.difference(&self.cpus).is_empty() {
            // What emu has bound there itself slows the node.
            return Ok((!self.is_ours(pid)).then_some(Staying::Bound(now)));
        }
        if !is_owned(&self.proc, tid) {
            return Ok(Some(Staying::Refused("it is another user's".into())));
        }
        // The kernel tells of the CPUs that are offline only here.
        let status = fs::read_to_string(self.file(tid, "status")).unwrap_or_default();
        let old = mask(&status).unwrap_or(now);
        let change = [old.clone(), old.difference(&self.cpus)];
        self.record_inherited(&change)?;
        if self.taken.get(&task) != Some(&change) {
            let [cpus, ours] = change.clone();
            self.journal.record(&Undo::Affinity { tid, starttime, cpus, ours })?;
        }
        match affinity::set(tid, &change[1]) {
            Ok(()) => drop(self.taken.insert(task, change)),
            Err(error) => return Ok(refused(&error)),
        }
        Ok(None)
    }

    /// For tasks that will inherit the change: those that start later than it.
    pub(super) fn record_inherited(&mut self, change: &Change) -> Result<()> {
        if !self.changes.insert(change.clone()) {
            return Ok(());
        }
        let (since, [cpus, ours]) = (time::user_ticks(), change.clone());
        self.journal.record(&Undo::Inherited { tasks: TaskSet::All, since, cpus, ours })?;
        // A task that starts within the same tick would not be told from an older one.
        while time::user_ticks() == since {
            time::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.len()
    }

    pub(super) fn staying(&self) -> Vec<String> {
        let mut staying: Vec<_> = self.staying.iter().collect();
        staying.sort_unstable_by_key(|(task, _)| **task);
        let told = staying.into_iter().map(|((tid, _), why)| match why {
            Staying::Bound(cpus) => format!("{}: it may run on CPUs {cpus} only", self.name(*tid)),
            Staying::Refused(why) => format!("{}: {why}", self.name(*tid)),
        });
        told.collect()
    }

    /// Whether it is this process, or is in a cgroup that this one has made, as burners are.
    fn is_ours(&self, pid: Pid) -> bool {
        let is_in_ours = |hierarchy| place::own_group(&self.proc, pid, hierarchy).is_some();
        pid == std::process::id() as Pid || self.hierarchies.iter().any(is_in_ours)
    }

    fn members(&self) -> Result<HashSet<Pid>> {
        let mut members = HashSet::new();
        for group in &self.groups {
            members.extend(lists::read_all(group, PROCS)?);
        }
        Ok(members)
    }

    /// `None` where it has ended, though nobody may have waited for it yet: it still has the CPUs that it had.
    fn task(&self, tid: Pid) -> Option<Task> {
        let stat = Stat::read(&self.proc, tid).filter(|stat| !matches!(stat.state, b'Z' | b'X'));
        stat.map(|stat| (tid, stat.starttime))
    }

    fn name(&self, tid: Pid) -> String {
        let name = control_file::read(&self.file(tid, "comm")).unwrap_or_default();
        format!("task {tid} ({name})")
    }

    fn file(&self, tid: Pid, name: &str) -> PathBuf {
        self.proc.join(tid.to_string()).join(name)
    }
}

/// `None` for a task that has ended.
fn refused(error: &io::Error) -> Option<Staying> {
    let is_gone = error.raw_os_error() == Some(libc::ESRCH);
    (!is_gone).then(|| Staying::Refused(error.to_string()))
}
