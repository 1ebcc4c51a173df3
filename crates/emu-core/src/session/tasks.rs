//! Whether the tasks that a session is for are there, and may be slowed.

use std::path::Path;

use crate::cgroup::{folder_of, lists};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::host::Host;
use crate::host::delegation::PROCS;
use crate::process::{Descendants, Stat, is_owned};
use crate::sys::{Pid, affinity};
use crate::undo;
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
