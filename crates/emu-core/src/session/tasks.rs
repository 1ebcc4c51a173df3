//! Whether the tasks that a session is for are there, and may be slowed.

use std::path::Path;

use crate::cgroup::{folder_of, lists, place};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::host::Host;
use crate::host::delegation::PROCS;
use crate::process::{Descendants, Stat, is_owned, line_of};
use crate::sys::{Pid, affinity};
use crate::undo::{self, LiveSession};
use crate::zone::Tasks;

/// Returns when each process has started, in clock ticks since boot.
pub(super) fn check_tasks(proc: &Path, tasks: &Tasks) -> Result<Vec<(Pid, u64)>> {
    let Tasks::Processes(pids) = tasks else { return Ok(Vec::new()) };
    let mut started = Vec::new();
    if pids.is_empty() {
        return Err(Error::usage("a zone needs at least one process"));
    }
    for &pid in pids {
        if pid <= 0 {
            return Err(Error::usage(format!("{pid} is not a process ID")));
        }
        if pid == std::process::id() as i32 {
            return Err(Error::usage(format!("process {pid} is emu itself"))
                .hint(Hint::StartInZone.or("name its own process")));
        }
        let no_process = || Error::usage(format!("there is no process {pid}"));
        started.push((pid, Stat::read(proc, pid).ok_or_else(no_process)?.starttime));
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) {
            Ok(()) => {}
            Err(nix::errno::Errno::ESRCH) => return Err(no_process()),
            Err(cause) => {
                let error = Error::io(format!("cannot act on process {pid}"), cause.into());
                let is_owned = is_owned(proc, pid);
                return Err(if is_owned {
                    error
                } else {
                    error.hint("it belongs to another user: be that user, or root")
                });
            }
        }
    }
    Ok(started)
}

/// No task is an emu at work, or one that such an emu slows: both would move and stop it. An emu that this process itself runs under
/// slows all that it starts, and is none of these.
pub(super) fn check_apart(host: &Host, tasks: &Tasks, mut others: Vec<LiveSession>) -> Result<()> {
    let proc = &host.roots.proc;
    let own_line = line_of(proc, std::process::id() as Pid);
    others.retain(|other| !own_line.contains(&other.pid));
    if others.is_empty() {
        return Ok(());
    }
    for pid in processes(host, tasks)? {
        let line = line_of(proc, pid);
        let homes = host.cgroups.hierarchies.iter().filter_map(|hierarchy| place::home(proc, pid, hierarchy));
        let homes: Vec<_> = homes.collect();
        let is_of = |other: &&LiveSession| {
            line.contains(&other.pid)
                || homes.iter().flat_map(|home| place::makers(home)).any(|maker| maker == other.pid as u32)
        };
        if let Some(LiveSession { pid: emu, cpus, method, .. }) = others.iter().find(is_of) {
            return Err(Error::unavailable(format!(
                "process {pid} belongs to an emulation already: of emu {emu}, with {method} on CPUs {cpus}"
            ))
            .hint("end that emulation first, or leave the process out"));
        }
    }
    Ok(())
}

/// Gives tasks back what an exclusive node at work has taken from them. It takes from whole families: without a first
/// process that misses a CPU, none is searched.
pub(super) fn give_back(host: &Host, tasks: &Tasks) -> Result<()> {
    let has_all = |pid: &Pid| affinity::get(*pid).is_ok_and(|now| now == host.online());
    if matches!(tasks, Tasks::Processes(pids) if pids.iter().all(has_all)) {
        return Ok(());
    }
    undo::give_back(&host.roots, &processes(host, tasks)?)
}

fn processes(host: &Host, tasks: &Tasks) -> Result<Vec<Pid>> {
    match tasks {
        Tasks::Processes(pids) => {
            Ok(Descendants::of(&host.roots.proc, pids)?.members().keys().copied().collect())
        }
        Tasks::Cgroup(path) => lists::read_all(&folder_of(host, path)?.1.path, PROCS),
    }
}

/// No number has become that of another process. One that has ended may have left descendants.
pub(super) fn check_same(proc: &Path, started: &[(Pid, u64)]) -> Result<()> {
    started.iter().try_for_each(|&(pid, starttime)| match Stat::read(proc, pid) {
        Some(stat) if stat.starttime != starttime => {
            Err(Error::usage(format!("process {pid} has ended, and its number is another process's now")))
        }
        _ => Ok(()),
    })
}
