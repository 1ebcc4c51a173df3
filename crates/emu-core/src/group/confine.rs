//! Keeping a zone's tasks on its CPUs.

use std::collections::HashSet;
use std::path::Path;

use crate::family::{Stat, threads};
use crate::sys::affinity;
use crate::zone::Pid;
use crate::{Controller, CpuList, Error, Host, Journal, Result, Undo, Zone, control_file};

pub(super) const CPUS: &str = "cpuset.cpus";
const CPUS_EFFECTIVE: &str = "cpuset.cpus.effective";
const MEMS: &str = "cpuset.mems";

/// The first Linux that gives a task its own affinity back when it leaves a cpuset ("sched: Always
/// preserve the user requested cpumask").
const KEEPS_AFFINITY: (u32, u32) = (6, 2);

/// Whether a task gets the CPUs back that it is bound to when its cpuset gets them.
pub(super) fn keeps_affinity(host: &Host) -> bool {
    host.kernel_version() >= Some(KEEPS_AFFINITY)
}

/// Whether tasks could run on CPUs outside the zone, now or when one comes online.
pub(super) fn is_needed(host: &Host, zone: &Zone) -> bool {
    let zone = zone.demand.cpus();
    host.cpus.iter().any(|cpu| !zone.contains(cpu.id))
}

/// Whether they could now: of a task's affinity the kernel tells the CPUs that are online only, so that no more can be
/// bound, and put back.
pub(super) fn is_needed_now(host: &Host, zone: &Zone) -> bool {
    !host.online().difference(&zone.demand.cpus()).is_empty()
}

/// Gives a new group the CPUs. On version 1 it needs memory nodes, too, before a task can join.
///
/// # Errors
/// The group above does not have all of them.
pub(super) fn set(folder: &Path, version: u8, cpus: &CpuList) -> Result<()> {
    if version == 1 {
        let above = folder.parent().unwrap_or(folder).join(MEMS);
        control_file::write(&folder.join(MEMS), &control_file::read(&above)?)?;
    }
    control_file::write(&folder.join(CPUS), &cpus.to_string()).map_err(not_all)?;
    check(folder, version, cpus)
}

/// Gives an existing group the CPUs for as long as the journal lasts.
///
/// # Errors
/// As [`set`].
pub(super) fn set_in_place(folder: &Path, version: u8, cpus: &CpuList, journal: &Journal) -> Result<()> {
    journal.write_file(&folder.join(CPUS), &cpus.to_string()).map_err(not_all)?;
    check(folder, version, cpus)
}

fn not_all(error: Error) -> Error {
    error.hint("the cgroup above has to have all CPUs of the zone; choose others with --cpus")
}

/// The file that tells which CPUs a group's tasks can use.
pub(super) fn in_force(version: u8) -> &'static str {
    if version == 2 { CPUS_EFFECTIVE } else { CPUS }
}

/// Version 2 takes CPUs that the group above does not have, and does without them.
fn check(folder: &Path, version: u8, cpus: &CpuList) -> Result<()> {
    let file = folder.join(in_force(version));
    let got = control_file::read(&file)?;
    if CpuList::from_kernel(&got).as_ref() == Some(cpus) {
        return Ok(());
    }
    Err(not_all(Error::unavailable(format!("{} is `{got}` and not `{cpus}`", file.display()))))
}

/// Records what affinity the threads of a process have, where leaving a cpuset would not give it back.
///
/// # Errors
/// It cannot be recorded.
pub(super) fn remember(host: &Host, pid: Pid, journal: &Journal) -> Result<()> {
    if keeps_affinity(host) {
        return Ok(());
    }
    let online = host.online();
    for tid in threads(&host.roots.proc, pid) {
        // Gone since: nothing to remember.
        let Ok(old) = affinity::get(tid) else { continue };
        if !online.difference(&old).is_empty() {
            record(&host.roots.proc, tid, old, journal)?;
        }
    }
    Ok(())
}

fn record(proc: &Path, tid: Pid, cpus: CpuList, journal: &Journal) -> Result<()> {
    match Stat::read(proc, tid) {
        Some(stat) => journal.record(&Undo::Affinity { tid, starttime: stat.starttime, cpus }),
        None => Ok(()),
    }
}

/// Binds all threads of the processes to the CPUs by their affinity. Those they make later inherit it, but may
/// change it, too.
///
/// `list` names the processes anew each time.
///
/// # Errors
/// A thread's affinity cannot be recorded or set, or threads keep coming.
pub(super) fn bind(
    proc: &Path,
    cpus: &CpuList,
    journal: &Journal,
    mut list: impl FnMut() -> Result<Vec<Pid>>,
) -> Result<()> {
    let mut bound = HashSet::new();
    for _ in 0..super::PASSES {
        let found: Vec<Pid> = list()?.into_iter().flat_map(|pid| threads(proc, pid)).collect();
        let mut new = false;
        for tid in found {
            if bound.insert(tid) {
                new |= bind_thread(proc, tid, cpus, journal)?;
            }
        }
        if !new {
            return Ok(());
        }
    }
    Err(Error::unavailable("cannot bind the tasks to the zone's CPUs: new ones keep coming")
        .hint("start the program with `emu run`, so that it begins in its zone"))
}

/// Whether the thread had to be bound.
fn bind_thread(proc: &Path, tid: Pid, cpus: &CpuList, journal: &Journal) -> Result<bool> {
    let is_gone = |error: &std::io::Error| error.raw_os_error() == Some(libc::ESRCH);
    let old = match affinity::get(tid) {
        Ok(old) => old,
        Err(error) if is_gone(&error) => return Ok(false),
        Err(error) => return Err(Error::io(format!("cannot read the affinity of task {tid}"), error)),
    };
    if old.difference(cpus).is_empty() {
        return Ok(false);
    }
    // What the program has chosen itself stays, as far as it lies in the zone.
    let kept = old.intersection(cpus);
    let new = if kept.is_empty() { cpus } else { &kept };
    record(proc, tid, old, journal)?;
    match affinity::set(tid, new) {
        Ok(()) => Ok(true),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(Error::io(format!("cannot bind task {tid} to CPUs {new}"), error)
            .hint("another user's tasks need CAP_SYS_NICE; run as root")),
    }
}

/// Whether a group's folder has the files of a cpuset.
pub(super) fn is_cpuset(folder: &Path) -> bool {
    folder.join(CPUS).exists()
}

/// The controller that confines.
pub(super) const CONTROLLER: Controller = Controller::Cpuset;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing;
    use crate::{Demand, Target, Tasks};

    #[test]
    fn tasks_could_leave_for_a_cpu_that_is_offline_yet() {
        let mut host = testing::host();
        let all: Vec<_> = host.cpus.iter().map(|cpu| cpu.id).collect();
        let zone = |cpus: &[usize]| {
            let targets = cpus.iter().map(|&cpu| (cpu, Target { share: 0.5, clock: None })).collect();
            Zone { name: String::new(), demand: Demand::new(targets), tasks: Tasks::Processes(vec![1]) }
        };
        assert!(!is_needed(&host, &zone(&all)) && is_needed_now(&host, &zone(&all[1..])));
        host.cpus[0].online = false;
        assert!(is_needed(&host, &zone(&all[1..])) && !is_needed_now(&host, &zone(&all[1..])));
    }
}
