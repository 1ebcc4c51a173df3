//! Keeps busy tasks on different CPUs while they resume.
//!
//! A resumed task starts on an idle CPU, else on its previous one. The thread that resumes the tasks occupies one of the zone's
//! CPUs, and a sleeping task on its way back to sleep may occupy another, so two busy tasks may start on one CPU. They stay
//! there after each stop until the load balancer moves one, which takes several periods and up to 250 ms. With two busy tasks
//! for each CPU, all may meet on the same one.
//!
//! While the tasks are stopped, [`PinApart::bind`] pins each busy task to its last CPU, or to another one where that CPU has
//! too many. [`PinApart::unbind`] ends this as soon as they are resumed.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use crate::ablation::{Correction, is_off};
use crate::cpu_list::{CpuId, CpuList};
use crate::host::Host;
use crate::process::{FORK, LastPid, Stat, process_of};
use crate::sys::Pid;
use crate::sys::affinity::Mask;
use crate::sys::time::{self, USER_TICK};
use crate::undo::{Journal, Undo};

/// The largest number of bindings in the journal: each task has one for each CPU.
const RECORDS: usize = 10_000;

#[derive(Debug)]
pub(crate) struct PinApart {
    proc: PathBuf,
    journal: Journal,
    /// The CPUs of the zone: all that are online.
    cpus: CpuList,
    all: Mask,
    recorded: HashSet<Binding>,
    bound: Vec<Binding>,
    given_out: LastPid,
    births: Option<Births>,
}

/// What tells the children of bound tasks that were born while they were bound.
#[derive(Debug)]
struct Births {
    parents: Vec<Binding>,
    /// The last number given out before, and the begin and end in clock ticks since boot.
    after: Pid,
    begin: u64,
    end: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Binding {
    tid: Pid,
    starttime: u64,
    cpu: CpuId,
}

impl PinApart {
    /// For a zone of all online CPUs; `None` for other zones. There the control thread runs outside the zone, and a task's
    /// affinity could not be restored in full: the kernel reports only those of its CPUs that it may use now.
    pub(crate) fn new(host: &Host, cpus: &CpuList, journal: &Journal) -> Option<Self> {
        let has_all = host.online().difference(cpus).is_empty();
        (has_all && cpus.len() > 1 && !is_off(Correction::PinApart)).then(|| Self {
            proc: host.roots.proc.clone(),
            journal: journal.clone(),
            cpus: cpus.clone(),
            all: Mask::of(cpus.iter()),
            recorded: HashSet::new(),
            bound: Vec::new(),
            given_out: LastPid::of(&host.roots.proc),
            births: None,
        })
    }

    /// Gives each of these stopped tasks a CPU of its own, or one that the same number of tasks share on each CPU. Where the
    /// numbers would differ, the kernel's balancing is fairer.
    pub(crate) fn bind(&mut self, busy: &[Pid]) {
        self.free_born();
        let is_even = busy.len() <= self.cpus.len() || busy.len().is_multiple_of(self.cpus.len());
        if busy.len() < 2 || !is_even {
            return;
        }
        let stats: Vec<_> =
            busy.iter().filter_map(|&tid| Some((tid, Stat::read(&self.proc, tid)?))).collect();
        let (free, bound): (Vec<_>, Vec<_>) = stats
            .iter()
            .filter_map(|(tid, stat)| Some((*tid, stat.starttime, stat.cpu?)))
            .partition(|(tid, ..)| Mask::get(*tid).is_ok_and(|mask| mask == self.all));
        // A task that the program has bound stays where it is.
        let taken: Vec<_> = bound.iter().map(|(.., cpu)| *cpu).collect();
        let places: Vec<_> = free.iter().map(|(.., cpu)| *cpu).collect();
        for (&(tid, starttime, _), cpu) in free.iter().zip(apart(&places, &taken, &self.cpus)) {
            let binding = Binding { tid, starttime, cpu };
            if self.is_recorded(binding) && Mask::of([cpu]).set(tid).is_ok() {
                self.bound.push(binding);
            }
        }
        let begin = time::user_ticks();
        self.births =
            self.given_out.read().map(|after| Births { parents: Vec::new(), after, begin, end: begin });
    }

    /// The journal must have a binding before it is made.
    fn is_recorded(&mut self, binding: Binding) -> bool {
        if self.recorded.contains(&binding) {
            return true;
        }
        let Binding { tid, starttime, cpu } = binding;
        let ours = [cpu].into_iter().collect();
        let undo = Undo::Affinity { tid, starttime, cpus: self.cpus.clone(), ours };
        self.recorded.len() < RECORDS && self.journal.record(&undo).is_ok() && self.recorded.insert(binding)
    }

    /// To be called as soon as the tasks are resumed. A task whose affinity another program has changed meanwhile keeps that.
    pub(crate) fn unbind(&mut self) {
        if let Some(births) = self.births.as_mut().filter(|_| !self.bound.is_empty()) {
            births.parents.clone_from(&self.bound);
            births.end = time::user_ticks() + (FORK / USER_TICK) as u64;
        }
        for Binding { tid, cpu, .. } in self.bound.drain(..) {
            if Mask::get(tid).is_ok_and(|now| now == Mask::of([cpu])) {
                // All CPUs, also those that come online later. This fails only where the task is gone.
                let _ = Mask::ALL.set(tid);
            }
        }
    }

    /// Frees the children that have inherited a binding, when all are stopped again: their births may have been under way
    /// at its end. One that has chosen just this CPU itself, at once, is taken for one.
    fn free_born(&mut self) {
        let births = self.births.take().filter(|births| !births.parents.is_empty());
        let Some(Births { parents, after, begin, end }) = births else { return };
        let last = self.given_out.read().unwrap_or(after);
        for tid in after + 1..=last {
            let Ok(mask) = Mask::get(tid) else { continue };
            let mut parents = parents.iter().filter(|parent| Mask::of([parent.cpu]) == mask).peekable();
            if parents.peek().is_none() {
                continue;
            }
            let Some((stat, process)) = Stat::read(&self.proc, tid).zip(process_of(&self.proc, tid)) else {
                continue;
            };
            let maker = if process == tid { stat.parent } else { process };
            let is_of = |parent: &Binding| process_of(&self.proc, parent.tid) == Some(maker);
            if (begin..=end).contains(&stat.starttime) && parents.any(is_of) {
                let _ = Mask::ALL.set(tid);
            }
        }
    }
}

impl Drop for PinApart {
    fn drop(&mut self) {
        self.unbind();
        if self.births.as_ref().is_some_and(|births| !births.parents.is_empty()) {
            time::sleep(time::span(FORK));
        }
        self.free_born();
    }
}

/// The last CPU of each task, from `places`, unless more tasks than necessary were there. CPUs in `taken` already have a task
/// each.
fn apart(places: &[CpuId], taken: &[CpuId], cpus: &CpuList) -> Vec<CpuId> {
    let most = (places.len() + taken.len()).div_ceil(cpus.len().max(1));
    let mut counts: BTreeMap<CpuId, usize> = cpus.iter().map(|cpu| (cpu, 0)).collect();
    for &cpu in taken {
        *counts.entry(cpu).or_default() += 1;
    }
    let stays: Vec<_> = places
        .iter()
        .map(|&place| {
            let count = counts.entry(place).or_default();
            let is_room = *count < most;
            *count += usize::from(is_room);
            is_room
        })
        .collect();
    let cpu_of = |(&place, stays): (&CpuId, bool)| {
        let emptiest = counts.iter_mut().min_by_key(|(_, count)| **count).filter(|_| !stays);
        emptiest.map_or(place, |(&cpu, count)| {
            *count += 1;
            cpu
        })
    };
    places.iter().zip(stays).map(cpu_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::testing::{PROC, Program, skip, wait_until};
    use crate::roots::Roots;
    use crate::sys::affinity;

    #[test]
    fn each_task_gets_a_cpu_of_its_own_its_last_one_if_it_can() {
        let cpus: CpuList = "0-3".parse().unwrap();
        for (places, taken, found) in [
            (&[][..], &[][..], &[][..]),
            (&[1, 0], &[], &[1, 0]),
            (&[1, 1], &[], &[1, 0]),
            (&[0, 3, 0], &[], &[0, 3, 1]),
            (&[0, 0, 0, 0], &[], &[0, 1, 2, 3]),
            (&[0, 0, 3, 3], &[], &[0, 1, 3, 2]),
            (&[0, 3], &[0, 2], &[1, 3]),
            (&[2, 2, 2, 2, 2, 2, 2], &[2], &[2, 0, 1, 3, 0, 1, 3]),
        ] {
            assert_eq!(apart(places, taken, &cpus), found, "{places:?}");
        }
    }

    /// Two stopped busy programs that were last on the same CPU of a whole machine, and what pins
    /// them apart; `None` where there is one CPU only.
    fn two_on_one_cpu(dir: &std::path::Path) -> Option<(PinApart, Host, [Program; 2])> {
        let roots = Roots { state: dir.join("state"), ..Roots::system() };
        let host = Host::detect(&roots).unwrap();
        let all = host.online();
        let journal = Journal::open(&host.roots, &all, "test", "test").unwrap();
        let Some(pin_apart) = PinApart::new(&host, &all, &journal) else {
            skip("there is one CPU only");
            return None;
        };
        let one: CpuList = all.first().into_iter().collect();
        let programs = [(); 2].map(|()| Program::shell("while :; do :; done"));
        for program in &programs {
            affinity::set(program.pid(), &one).unwrap();
            let stat = || Stat::read(std::path::Path::new(PROC), program.pid()).unwrap();
            wait_until(|| stat().cpu == all.first());
            program.signal(libc::SIGSTOP);
            wait_until(|| stat().state == b'T');
            affinity::set(program.pid(), &all).unwrap();
        }
        Some((pin_apart, host, programs))
    }

    #[test]
    fn a_stopped_task_is_bound_until_it_has_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let Some((mut pin_apart, host, programs)) = two_on_one_cpu(dir.path()) else { return };
        let pids = [0, 1].map(|index: usize| programs[index].pid());
        let bound = || pids.map(|pid| affinity::get(pid).unwrap());
        let all = host.online();
        let [one, free]: [CpuList; 2] = [0, 1].map(|index| all.iter().nth(index).into_iter().collect());
        pin_apart.bind(&pids);
        assert_eq!(bound(), [one.clone(), free.clone()]);
        pin_apart.unbind();
        assert_eq!(bound(), [all.clone(), all.clone()]);
        // This time nothing unbinds them but the journal.
        pin_apart.bind(&pids);
        assert_eq!(bound(), [one, free]);
        let journal = pin_apart.journal.clone();
        std::mem::forget(pin_apart);
        journal.undo_all().unwrap();
        assert_eq!(bound(), [all.clone(), all]);
    }

    #[test]
    fn what_is_born_while_its_parent_is_bound_is_freed() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { state: dir.path().join("state"), ..Roots::system() };
        let host = Host::detect(&roots).unwrap();
        let all = host.online();
        let journal = Journal::open(&host.roots, &all, "test", "test").unwrap();
        let Some(mut pin_apart) = PinApart::new(&host, &all, &journal) else {
            skip("there is one CPU only");
            return;
        };
        let go = dir.path().join("go");
        let script = format!(
            "while [ ! -e {} ]; do :; done; sleep 60 & for cpu in 0 1; do taskset -c $cpu sleep 60 & done; wait",
            go.display()
        );
        let programs = [(); 2].map(|()| Program::shell(&script));
        let pids = programs.each_ref().map(Program::pid);
        for program in &programs {
            program.signal(libc::SIGSTOP);
        }
        let state = |pid| Stat::read(std::path::Path::new(PROC), pid).unwrap().state;
        wait_until(|| pids.iter().all(|&pid| state(pid) == b'T'));
        pin_apart.bind(&pids);
        for program in &programs {
            program.signal(libc::SIGCONT);
        }
        std::fs::write(go, "").unwrap();
        let children = |pid: Pid| -> Vec<Pid> {
            let text = std::fs::read_to_string(format!("{PROC}/{pid}/task/{pid}/children")).unwrap();
            let is_asleep = |pid: &Pid| {
                std::fs::read_to_string(format!("{PROC}/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
            };
            text.split_whitespace().map(|pid| pid.parse().unwrap()).filter(is_asleep).collect()
        };
        wait_until(|| pids.iter().all(|&pid| children(pid).len() == 3));
        let bound = |pid| affinity::get(pid).unwrap();
        let own = pids.map(bound);
        pin_apart.unbind();
        let children = pids.map(children);
        assert_eq!(children.each_ref().map(|children| bound(children[0])), own, "they inherit it");
        drop(pin_apart);
        for (children, own) in children.iter().zip(own) {
            assert_eq!(bound(children[0]), all);
            let other = all.difference(&own);
            assert!(children[1..].iter().any(|&pid| !other.is_empty() && bound(pid) == other), "chosen");
        }
        children.into_iter().flatten().for_each(|pid| {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
                .unwrap();
        });
    }

    #[test]
    fn a_binding_by_the_program_itself_stays() {
        let dir = tempfile::tempdir().unwrap();
        let Some((mut pin_apart, host, programs)) = two_on_one_cpu(dir.path()) else { return };
        let pids = [0, 1].map(|index: usize| programs[index].pid());
        let one: CpuList = host.online().first().into_iter().collect();
        affinity::set(pids[1], &one).unwrap();
        pin_apart.bind(&pids);
        assert_eq!(affinity::get(pids[1]).unwrap(), one);
        pin_apart.unbind();
        assert_eq!(affinity::get(pids[1]).unwrap(), one);
    }
}
