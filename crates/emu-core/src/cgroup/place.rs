//! Finding the place for a new group, and preparing it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::lists;
use crate::control_file;
use crate::cpu_list::CpuId;
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::host::delegation::{CONTROLLERS, PROCS, SUBTREE_CONTROL, can_enable, is_open};
use crate::host::{Controller, Hierarchy, below, group_in};
use crate::process::living_thread;
use crate::sys::Pid;
use crate::undo::{Journal, Undo};

pub(crate) const PREFIX: &str = "emu-";

/// Whether the folder is a group of emu, or below one.
pub(crate) fn is_ours(folder: &Path) -> bool {
    folder.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(PREFIX.as_bytes()))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) parent: PathBuf,
    /// The `cgroup.procs` that takes the tasks when emu's group is removed.
    pub(crate) return_to: PathBuf,
}

/// The folder, as the mount shows it, of a process's group; `None` when the process has ended or the mount does not show it.
pub(crate) fn home(proc: &Path, pid: Pid, hierarchy: &Hierarchy) -> Option<PathBuf> {
    let task = living_thread(proc, pid).to_string();
    let text = fs::read(proc.join(task).join("cgroup")).ok()?;
    let path = group_in(&text, hierarchy.version, &hierarchy.controllers)?;
    below(&hierarchy.mount, path.strip_prefix(&hierarchy.shown).ok()?).filter(|folder| is_group(folder))
}

/// The innermost group of a process that is not emu's.
pub(crate) fn foreign(proc: &Path, pid: Pid, hierarchy: &Hierarchy) -> Option<PathBuf> {
    home(proc, pid, hierarchy)?.ancestors().find(|group| !is_ours(group)).map(Path::to_owned)
}

/// The outermost group that this very process has made and `pid` is in. A name alone does not tell: a service may be called
/// `emu-ci`, and the caller may run in another emu's group.
pub(crate) fn own_group(proc: &Path, pid: Pid, hierarchy: &Hierarchy) -> Option<PathBuf> {
    outermost_own(&home(proc, pid, hierarchy)?, std::process::id())
}

/// The group of a task that is in none of a living emu's.
pub(crate) fn outside(proc: &Path, tid: Pid, hierarchy: &Hierarchy) -> Option<PathBuf> {
    let is_inside =
        |home: &PathBuf| outermost_own(home, std::process::id()).is_some() || other_emu(proc, home).is_some();
    home(proc, tid, hierarchy).filter(|home| !is_inside(home))
}

fn outermost_own(home: &Path, own: u32) -> Option<PathBuf> {
    home.ancestors().filter(|group| maker(group) == Some(own)).last().map(Path::to_owned)
}

/// The process that has made a group, by the group's name: `emu-PID-NUMBER`.
fn maker(group: &Path) -> Option<u32> {
    let (pid, number) = group.file_name()?.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    number.parse::<u32>().ok().and(pid.parse().ok())
}

/// The makers of a group and those above it, as far as these are groups of an emu.
pub(crate) fn makers(home: &Path) -> impl Iterator<Item = u32> {
    home.ancestors().filter_map(maker)
}

/// The maker of the innermost group that a living emu, other than this process, has made.
pub(crate) fn other_emu(proc: &Path, home: &Path) -> Option<u32> {
    let lives = |pid: &u32| *pid != std::process::id() && proc.join(pid.to_string()).exists();
    makers(home).find(lives)
}

/// The group of a CPU, below the zone's, where each has one.
pub(crate) fn of_cpu(zone: &Path, cpu: CpuId) -> PathBuf {
    zone.join(format!("cpu{cpu}"))
}

/// Whether a group has a name as [`of_cpu`] gives it.
pub(crate) fn is_of_cpu(group: &Path) -> bool {
    let number = group.file_name().and_then(|name| name.to_str()?.strip_prefix("cpu"));
    number.is_some_and(|number| number.parse::<CpuId>().is_ok())
}

pub(crate) fn is_group(folder: &Path) -> bool {
    folder.join(PROCS).exists()
}

/// Finds the group below which one for tasks from `home` can be made, and prepares it if necessary. `needed` are the
/// controllers that version 2 must enable for it.
///
/// Without such controllers this is `home` itself, so tasks keep their limits. With them it is the nearest ancestor that
/// enables them already, else the nearest that can. A group with processes cannot; as a last resort, if `may_empty`, the
/// processes of `home` are first moved into a group of their own below it. [`Hierarchy::granted`] predicts the result.
pub(crate) fn find(
    hierarchy: &Hierarchy,
    home: &Path,
    needed: &[Controller],
    may_empty: bool,
    journal: &Journal,
) -> Result<Site> {
    let home = if is_open(home, hierarchy.version) { home } else { &hierarchy.own };
    let return_to = home.join(PROCS);
    if hierarchy.version == 1 || needed.is_empty() {
        return Ok(Site { parent: home.to_owned(), return_to });
    }
    let above = || home.ancestors().take_while(|group| group.starts_with(&hierarchy.mount));
    if let Some(parent) = above().find(|group| is_open(group, 2) && has(group, SUBTREE_CONTROL, needed)) {
        enable(parent, needed, journal)?;
        return Ok(Site { parent: parent.to_owned(), return_to });
    }
    if let Some(parent) = above().find(|group| can_enable(group, false) && has(group, CONTROLLERS, needed)) {
        enable(parent, needed, journal)?;
        return Ok(Site { parent: parent.to_owned(), return_to });
    }
    if may_empty && can_enable(home, true) && has(home, CONTROLLERS, needed) {
        let leaf = empty(home, journal)?;
        enable(home, needed, journal)?;
        return Ok(Site { parent: home.to_owned(), return_to: leaf.join(PROCS) });
    }
    let names: Vec<_> = needed.iter().map(|controller| controller.as_str()).collect();
    Err(Error::new(
        ErrorKind::NotPermitted,
        format!("cannot make a cgroup with `{}` at or above {}", names.join(" "), home.display()),
    )
    .hint(Hint::OwnGroup(names)))
}

/// Makes a group of emu, recorded in the journal before.
pub(crate) fn make(site: &Site, journal: &Journal) -> Result<PathBuf> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let path = loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = site.parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        // An earlier emu with the same PID may have left a group that could not be removed.
        if !path.exists() {
            break path;
        }
    };
    journal.record(&Undo::Group {
        path: path.clone(),
        members: PROCS.into(),
        return_to: site.return_to.clone(),
    })?;
    fs::create_dir(&path)
        .map_err(|e| Error::file("make the cgroup", &path, e))
        .map_err(|e| e.hint_on(&[libc::EACCES, libc::EPERM, libc::EROFS], Hint::OwnGroup(vec![])))?;
    Ok(path)
}

fn has(group: &Path, list: &str, needed: &[Controller]) -> bool {
    let text = fs::read_to_string(group.join(list)).unwrap_or_default();
    needed.iter().all(|controller| text.split_whitespace().any(|name| name == controller.as_str()))
}

/// Returns `false` where the process has ended.
pub(crate) fn put(list: &Path, pid: &str) -> Result<bool> {
    match control_file::write(list, pid) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        written => written.map(|()| true),
    }
}

/// Moves the processes into a group of their own below this one.
fn empty(group: &Path, journal: &Journal) -> Result<PathBuf> {
    let procs = group.join(PROCS);
    let leaf = make(&Site { parent: group.to_owned(), return_to: procs.clone() }, journal)?;
    let target = leaf.join(PROCS);
    // Processes fork meanwhile: each pass leaves only the new ones.
    for _ in 0..super::folder::PASSES {
        let listed = control_file::read(&procs)?;
        if listed.is_empty() {
            return Ok(leaf);
        }
        let mut pids = lists::named(&listed).peekable();
        if pids.peek().is_none() {
            return Err(Error::unavailable(format!(
                "cannot empty the cgroup {}: it has processes of a PID namespace that emu does not see",
                group.display()
            ))
            .hint("be in a group of your own, or in the initial PID namespace"));
        }
        for pid in pids {
            put(&target, &pid.to_string()).map_err(|error| error.hint(Hint::OwnGroup(vec![])))?;
        }
    }
    Err(Error::unavailable(format!("cannot empty the cgroup {}: processes keep coming", group.display()))
        .hint(Hint::OwnGroup(vec![])))
}

/// Enables controllers for the groups below this one until the session ends.
pub(crate) fn enable(group: &Path, needed: &[Controller], journal: &Journal) -> Result<()> {
    let file = group.join(SUBTREE_CONTROL);
    let names: Vec<_> = needed.iter().map(|controller| controller.as_str()).collect();
    journal.claim(&file, &names)?;
    // Checked after recording: another emu that had enabled them may just have ended.
    if has(group, SUBTREE_CONTROL, needed) {
        return Ok(());
    }
    let asked: Vec<_> = names.iter().map(|name| format!("+{name}")).collect();
    control_file::write(&file, &asked.join(" ")).map_err(|error| {
        error.hint(
            "real-time tasks outside the root group, or threaded groups, can stand in the way; use cpu-hogs",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::cpufreq::simulated;

    #[test]
    fn only_a_group_of_this_process_is_its_own() {
        let own = |home: &str| outermost_own(Path::new(home), 12);
        for foreign in
            ["/x", "/emu-ci.service", "/emu-ci.service/a", "/emu-7-0", "/emu-12", "/emu-12-a", "/emu-123-0"]
        {
            assert_eq!(own(foreign), None, "{foreign}");
        }
        assert_eq!(own("/emu-ci.service/emu-7-0/emu-12-3"), Some("/emu-ci.service/emu-7-0/emu-12-3".into()));
        assert_eq!(own("/a/emu-12-3/emu-12-4/b"), Some("/a/emu-12-3".into()));
    }

    #[test]
    fn a_group_is_found_whatever_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let (proc, mount) = (dir.path().join("proc"), dir.path().join("fs"));
        let name = OsStr::from_bytes(b"a:\xff");
        let group = mount.join(name);
        fs::create_dir_all(&group).unwrap();
        fs::create_dir_all(proc.join("7")).unwrap();
        fs::write(group.join(PROCS), "").unwrap();
        fs::write(proc.join("7/cgroup"), b"4:cpu,cpuacct:/b\n0::/a:\xff\n").unwrap();
        let hierarchy = Hierarchy {
            version: 2,
            mount: mount.clone(),
            shown: "/".into(),
            controllers: vec![],
            granted: vec![],
            own: mount,
            writable: true,
        };
        assert_eq!(home(&proc, 7, &hierarchy), Some(group));
    }

    #[test]
    fn a_controller_enabled_by_another_emu_outlives_that_one() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, first) = simulated::journal(dir.path());
        let second = Journal::open(&roots, &"1".parse().unwrap(), "cpu-hogs", "other").unwrap();
        let mount = roots.sys.join("fs/cgroup");
        fs::create_dir_all(&mount).unwrap();
        let file = mount.join(SUBTREE_CONTROL);
        for (name, text) in [(PROCS, ""), (CONTROLLERS, "cpuset cpu memory\n"), (SUBTREE_CONTROL, "memory\n")]
        {
            fs::write(mount.join(name), text).unwrap();
        }
        let hierarchy = Hierarchy {
            version: 2,
            mount: mount.clone(),
            shown: "/".into(),
            controllers: vec![Controller::Cpuset],
            granted: vec![Controller::Cpuset],
            own: mount.clone(),
            writable: true,
        };
        let find = |journal| find(&hierarchy, &mount, &[Controller::Cpuset], false, journal).unwrap();
        let site = find(&first);
        assert_eq!(fs::read_to_string(&file).unwrap(), "+cpuset");
        // As the kernel would.
        fs::write(&file, "cpuset memory\n").unwrap();
        assert_eq!(find(&second), site);
        first.undo_all().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "cpuset memory\n");
        second.undo_all().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "-cpuset");
    }
}
