//! Keeps busy tasks apart where there is a CPU for each.
//!
//! A task that is let go starts where the kernel finds a CPU idle, else on the CPU that it was on before. The thread that
//! lets the tasks go is on one of the zone's CPUs, and a task that only goes on sleeping may be on its way on another one:
//! so two busy tasks may start on one CPU. Both come back to it after each hold until the kernel balances, which takes some
//! periods, and sometimes a quarter of a second.
//!
//! So emu looks, while the tasks are held, where the busy ones were. One of two that share a CPU is bound to a CPU without
//! any, for no longer than until it has been let go.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::cpu_list::CPU_ID_MAX;
use crate::family::Stat;
use crate::sys::affinity;
use crate::zone::Pid;
use crate::{CpuId, CpuList, Host, Journal, Undo};

/// So many bindings are in the journal at most: each task has one for each CPU.
const RECORDS: usize = 10_000;

/// Parts tasks that share a CPU.
#[derive(Debug)]
pub(crate) struct Parting {
    proc: PathBuf,
    journal: Journal,
    /// The CPUs of the zone: all that are online.
    cpus: CpuList,
    recorded: HashSet<Binding>,
    bound: Option<Binding>,
}

/// A task that is bound to a CPU until it is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Binding {
    tid: Pid,
    starttime: u64,
    cpu: CpuId,
}

impl Parting {
    /// For a zone that has all CPUs that are online; `None` for others. There the thread that lets the tasks go is on another
    /// CPU; and a task's binding could not be given back in full, as the kernel tells of CPUs that the task may use now only.
    pub(crate) fn new(host: &Host, cpus: &CpuList, journal: &Journal) -> Option<Self> {
        let has_all = host.online().difference(cpus).is_empty();
        (has_all && cpus.len() > 1).then(|| Self {
            proc: host.roots.proc.clone(),
            journal: journal.clone(),
            cpus: cpus.clone(),
            recorded: HashSet::new(),
            bound: None,
        })
    }

    /// Binds one of these busy tasks, which are held, if it shares a CPU with another one while there is a CPU without any.
    pub(crate) fn bind(&mut self, busy: &[Pid]) {
        let stats: Vec<_> =
            busy.iter().filter_map(|&tid| Some((tid, Stat::read(&self.proc, tid)?))).collect();
        let places: Vec<_> = stats.iter().filter_map(|(tid, stat)| Some((*tid, stat.cpu?))).collect();
        let Some((tid, cpu)) = meeting(&places, &self.cpus) else { return };
        let Some((_, stat)) = stats.iter().find(|(one, _)| *one == tid) else { return };
        // A task that the program has bound itself stays where it is.
        if affinity::get(tid).ok().as_ref() != Some(&self.cpus) {
            return;
        }
        let binding = Binding { tid, starttime: stat.starttime, cpu };
        if self.is_recorded(binding) && affinity::set(tid, &[cpu].into_iter().collect()).is_ok() {
            self.bound = Some(binding);
        }
    }

    /// Whether the journal knows of the binding, as it has to beforehand.
    fn is_recorded(&mut self, binding: Binding) -> bool {
        if self.recorded.contains(&binding) {
            return true;
        }
        let Binding { tid, starttime, cpu } = binding;
        let ours = [cpu].into_iter().collect();
        let undo = Undo::Affinity { tid, starttime, cpus: self.cpus.clone(), ours };
        self.recorded.len() < RECORDS && self.journal.record(&undo).is_ok() && self.recorded.insert(binding)
    }

    /// Gives the task that was bound all CPUs back, if nobody else has bound it meanwhile. To be called as soon as it has been
    /// let go.
    pub(crate) fn unbind(&mut self) {
        let Some(Binding { tid, cpu, .. }) = self.bound.take() else { return };
        if affinity::get(tid).is_ok_and(|now| now == [cpu].into_iter().collect()) {
            // Also those that come online later. That fails only where the task is gone.
            let _ = affinity::set(tid, &(0..=CPU_ID_MAX).collect());
        }
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        self.unbind();
    }
}

/// A task that shares its CPU with another one, and a CPU without any; `None` where there is no such pair, or where tasks
/// outnumber the CPUs: they have to share.
fn meeting(places: &[(Pid, CpuId)], cpus: &CpuList) -> Option<(Pid, CpuId)> {
    let on = |cpu: CpuId| places.iter().filter(|place| place.1 == cpu).count();
    let free = cpus.iter().find(|&cpu| on(cpu) == 0)?;
    let (tid, _) = places.iter().rev().find(|place| on(place.1) > 1)?;
    (places.len() <= cpus.len()).then_some((*tid, free))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roots;
    use crate::group::testing::{PROC, Program, wait_until};

    #[test]
    fn one_of_two_that_share_a_cpu_belongs_on_an_idle_one() {
        let cpus: CpuList = "0-3".parse().unwrap();
        for (places, found) in [
            (&[][..], None),
            (&[(7, 1)][..], None),
            (&[(7, 1), (8, 0)][..], None),
            (&[(7, 1), (8, 1)][..], Some((8, 0))),
            (&[(7, 0), (8, 3), (9, 0)][..], Some((9, 1))),
            (&[(5, 0), (6, 0), (7, 0), (8, 0)][..], Some((8, 1))),
            (&[(4, 0), (5, 0), (6, 0), (7, 0), (8, 0)][..], None),
        ] {
            assert_eq!(meeting(places, &cpus), found, "{places:?}");
        }
    }

    /// Two busy programs that were last on the same CPU of a whole machine, stopped; what parts them; `None` where there is
    /// one CPU only.
    fn met(dir: &std::path::Path) -> Option<(Parting, Host, [Program; 2])> {
        let roots = Roots { state: dir.join("state"), ..Roots::system() };
        let host = Host::detect(&roots).unwrap();
        let all = host.online();
        let journal = Journal::open(&host.roots, &all, "test", "test").unwrap();
        let Some(parting) = Parting::new(&host, &all, &journal) else {
            println!("skipped: there is one CPU only");
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
        Some((parting, host, programs))
    }

    #[test]
    fn a_held_task_is_bound_until_it_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let Some((mut parting, host, programs)) = met(dir.path()) else { return };
        let pids = [0, 1].map(|index: usize| programs[index].pid());
        let bound = || pids.map(|pid| affinity::get(pid).unwrap());
        let all = host.online();
        let free: CpuList = all.iter().nth(1).into_iter().collect();
        parting.bind(&pids);
        assert_eq!(bound(), [all.clone(), free.clone()]);
        parting.unbind();
        assert_eq!(bound(), [all.clone(), all.clone()]);
        // Once more, and nobody unbinds it: the journal does.
        parting.bind(&pids);
        assert_eq!(bound(), [all.clone(), free]);
        let journal = parting.journal.clone();
        std::mem::forget(parting);
        journal.undo_all().unwrap();
        assert_eq!(bound(), [all.clone(), all]);
    }

    #[test]
    fn what_a_program_has_bound_itself_stays() {
        let dir = tempfile::tempdir().unwrap();
        let Some((mut parting, host, programs)) = met(dir.path()) else { return };
        let pids = [0, 1].map(|index: usize| programs[index].pid());
        let one: CpuList = host.online().first().into_iter().collect();
        affinity::set(pids[1], &one).unwrap();
        parting.bind(&pids);
        assert_eq!(affinity::get(pids[1]).unwrap(), one);
        parting.unbind();
        assert_eq!(affinity::get(pids[1]).unwrap(), one);
    }
}
