//! Moving all processes of a program into groups.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::folder::{Folder, PASSES};
use super::place;
use crate::control_file;
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::host::Hierarchy;
use crate::host::delegation::PROCS;
use crate::process::{Descendants, Stat, is_gone, threads};
use crate::sys::Pid;
use crate::undo::{Journal, Undo};

/// `list` is the `cgroup.procs` of emu's group, `return_to` the one to which the journal returns its processes.
pub(super) struct Move<'a> {
    pub(super) hierarchy: &'a Hierarchy,
    pub(super) list: PathBuf,
    pub(super) return_to: PathBuf,
}

/// Moves all processes until no new one is found. One that comes from another group than `return_to` has a record of its own.
pub(super) fn gather(
    proc: &Path,
    descendants: &mut Descendants,
    moves: &[Move<'_>],
    journal: &Journal,
) -> Result<()> {
    let mut done = HashSet::new();
    for _ in 0..PASSES {
        descendants.look()?;
        let mut new = false;
        for (&pid, stat) in descendants.members() {
            if stat.has_ended() || !done.insert((pid, stat.starttime)) {
                continue;
            }
            for to in moves {
                new |= join(proc, (pid, stat.starttime), to, journal)?;
            }
        }
        if !new {
            return Ok(());
        }
    }
    Err(Error::unavailable("cannot gather the tasks: new ones are made faster than they are caught")
        .hint(Hint::StartInZone))
}

/// Moves a process into the group of another, where that is in one of this emu's. It has a record of where it came from.
pub(crate) fn join_as(
    proc: &Path,
    (pid, starttime): (Pid, u64),
    member: Pid,
    hierarchy: &Hierarchy,
    journal: &Journal,
) -> Result<()> {
    let (Some(outermost), Some(group)) =
        (place::own_group(proc, member, hierarchy), place::home(proc, member, hierarchy))
    else {
        return Ok(());
    };
    let Some(home) = home_of(proc, (pid, starttime), hierarchy)? else { return Ok(()) };
    record_return((pid, starttime), home.join(PROCS), journal)?;
    match put(&group.join(PROCS), pid) {
        // A threaded group takes threads alone, of processes that are in the group above (cgroup-v2.rst).
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            put(&outermost.join(PROCS), pid)?;
            let threads_name = Folder { version: hierarchy.version, path: group.clone() }.threads_name();
            threads(proc, pid).into_iter().try_for_each(|tid| put(&group.join(threads_name), tid).map(drop))
        }
        moved => moved.map(drop),
    }
}

/// The group of a process; `None` where it has ended. It is not to be moved out of a group that cannot be named afterwards.
pub(super) fn home_of(
    proc: &Path,
    (pid, starttime): (Pid, u64),
    hierarchy: &Hierarchy,
) -> Result<Option<PathBuf>> {
    // A group that it has just left may be gone.
    let look = || place::home(proc, pid, hierarchy);
    let home = look().or_else(look);
    let has_ended = || {
        Stat::read(proc, pid)
            .map_or_else(|| is_gone(pid), |now| now.starttime != starttime || now.has_ended())
    };
    if home.is_some() || has_ended() {
        return Ok(home);
    }
    Err(Error::unavailable(format!(
        "process {pid} is in a cgroup that emu does not see below {}, and could not be moved back",
        hierarchy.mount.display()
    ))
    .hint("run emu where that group is seen: outside of this container or namespace"))
}

/// Records where a process comes from, if it may be put back there: a group of version 1 can be left by whoever may signal the
/// process, and entered by whoever may write its list.
fn record_return((pid, starttime): (Pid, u64), members: PathBuf, journal: &Journal) -> Result<()> {
    if !control_file::is_writable(&members) {
        return Err(Error::not_permitted(format!(
            "process {pid} could not be moved back: {} is not to be written",
            members.display()
        ))
        .hint(Hint::OwnGroup(vec![])));
    }
    journal.record(&Undo::Return { pid, starttime, members })
}

/// Returns whether the process had to be moved.
fn join(proc: &Path, (pid, starttime): (Pid, u64), to: &Move<'_>, journal: &Journal) -> Result<bool> {
    let Some(home) = home_of(proc, (pid, starttime), to.hierarchy)? else { return Ok(false) };
    // Children of moved processes are already in the group, or in a group nested in it.
    if to.list.parent().is_some_and(|group| home.starts_with(group)) {
        return Ok(false);
    }
    let members = home.join(PROCS);
    if members != to.return_to {
        record_return((pid, starttime), members, journal)?;
    }
    put(&to.list, pid)
}

fn put(list: &Path, task: Pid) -> Result<bool> {
    place::put(list, &task.to_string()).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => error.hint(format!(
            "a real-time task cannot join a group without real-time budget; look at `chrt -ap {task}`"
        )),
        Some(libc::EOPNOTSUPP) => error.hint(
            "the process is in a threaded cgroup, in which none can be made for processes: use a method that needs none",
        ),
        _ => error.hint_on(&[libc::EACCES, libc::EPERM, libc::EROFS], Hint::OwnGroup(vec![])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn only_what_has_ended_has_no_home() {
        let proc = Path::new("/proc");
        let own = std::process::id() as Pid;
        let starttime = Stat::read(proc, own).unwrap().starttime;
        let hierarchy = Hierarchy {
            version: 2,
            mount: "/nowhere".into(),
            shown: "/elsewhere".into(),
            controllers: vec![],
            granted: vec![],
            own: "/nowhere".into(),
            writable: true,
        };
        let home = |task| home_of(proc, task, &hierarchy);
        let why = home((own, starttime)).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::Unavailable, "{why}");
        for ended in [(own, starttime + 1), (Pid::MAX, starttime)] {
            assert_eq!(home(ended).unwrap(), None);
        }
    }

    #[test]
    fn only_a_lack_of_permission_is_one_of_a_group_of_ones_own() {
        let hint = |list: &str| put(Path::new(list), 1).unwrap_err().typed_hint().cloned();
        assert_eq!([hint("/dev/full"), hint("/nowhere/cgroup.procs")], [None, None]);
    }
}
