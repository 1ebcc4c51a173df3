//! Giving tasks the CPUs back that an exclusive node at work has taken from them, before something else binds them. That would
//! record what the node has left them, and put that back when the node may be gone: its end leaves what is bound anew.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::field::Field;
use super::header::boot;
use super::lines::{Backwards, WINDOW};
use super::places::Places;
use super::record::{Step, Task, TaskSetField};
use super::state::{Found, StateDir};
use crate::control_file;
use crate::cpu_list::CpuList;
use crate::error::Result;
use crate::process::{Stat, is_owned, threads};
use crate::roots::Roots;
use crate::sys::{Pid, affinity};

struct Taken {
    of: TakenOf,
    cpus: CpuList,
    ours: CpuList,
}

enum TakenOf {
    Task(Task),
    /// All that have started later than this.
    Later(u64),
}

/// What cannot be given back now is given back at the end of the node, unless it is bound.
pub(crate) fn give_back(roots: &Roots, pids: &[Pid]) -> Result<()> {
    let Some(online) = control_file::probe_cpus(&roots.cpus().join("online")) else { return Ok(()) };
    let tids = pids.iter().flat_map(|&pid| threads(&roots.proc, pid));
    let mut bound: HashMap<Pid, CpuList> =
        tids.filter_map(|tid| Some((tid, affinity::get(tid).ok()?))).collect();
    bound.retain(|_, now| *now != online);
    if bound.is_empty() {
        return Ok(());
    }
    let taken = taken(roots, &|tid| bound.contains_key(&tid))?;
    for (&tid, now) in &bound {
        let Some(Stat { starttime, .. }) = Stat::read(&roots.proc, tid) else { continue };
        let is_it = |taken: &&Taken| {
            let is_of_it = match taken.of {
                TakenOf::Task(task) => task == Task { pid: tid, starttime },
                TakenOf::Later(since) => starttime > since,
            };
            is_of_it && *now == taken.ours.intersection(&online)
        };
        if let Some(taken) = taken.iter().find(is_it).filter(|_| is_owned(&roots.proc, tid)) {
            let _ = affinity::set(tid, &taken.cpus);
        }
    }
    Ok(())
}

/// What exclusive nodes at work have changed, the newest first; of single tasks those that are `wanted`.
fn taken(roots: &Roots, wanted: &dyn Fn(Pid) -> bool) -> Result<Vec<Taken>> {
    let Some(dir) = StateDir::open_if_present(roots)? else { return Ok(Vec::new()) };
    let (places, boot) = (Places::open(roots)?, boot(roots));
    let _lock = dir.lock_to_look()?;
    let (mut window, mut all) = (vec![0; WINDOW], Vec::new());
    for name in dir.sessions()? {
        let Ok(Found::Live(_)) = dir.inspect(&name, &places, &boot) else { continue };
        let of_session = changed(&dir.file(&name), &mut window, wanted).unwrap_or_default();
        // Nothing else records a change of all tasks.
        if of_session.iter().any(|taken| matches!(taken.of, TakenOf::Later(_))) {
            all.extend(of_session);
        }
    }
    Ok(all)
}

fn changed(journal: &Path, window: &mut [u8], wanted: &dyn Fn(Pid) -> bool) -> io::Result<Vec<Taken>> {
    let journal = File::open(journal)?;
    let mut lines = Backwards::new(journal.as_fd(), window)?;
    let list = |field: Field<'_>| CpuList::from_kernel(&String::from_utf8(field.bytes().collect()).ok()?);
    let mut changed = Vec::new();
    while let Some(line) = lines.next()? {
        let (of, cpus, ours) = match Step::parse(line) {
            Some(Step::Affinity { task, cpus, ours: Some(ours) }) if wanted(task.pid) => {
                (TakenOf::Task(task), cpus, ours)
            }
            Some(Step::Inherited { tasks: TaskSetField::All, since, cpus, ours }) => {
                (TakenOf::Later(since), cpus, ours)
            }
            _ => continue,
        };
        changed.extend(list(cpus).zip(list(ours)).map(|(cpus, ours)| Taken { of, cpus, ours }));
    }
    Ok(changed)
}
