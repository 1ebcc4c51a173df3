//! What `emu attach` acts on, checked before anything is changed.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use emu_core::{Error, Host, Pid, Result, Roots, Tasks, line_of, named};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

use super::TargetArgs;
use crate::signals::readable;

#[derive(Debug)]
pub(crate) enum Target {
    /// Processes with a descriptor each, which becomes readable at the end of its process.
    Processes { pids: Vec<Pid>, fds: Vec<OwnedFd> },
    /// A cgroup by its path below the hierarchy.
    Cgroup {
        path: PathBuf,
        /// One for each hierarchy that has it.
        folders: Vec<Folder>,
        /// What it is of, where that may make it again: a unit or container that is restarted.
        of: Option<String>,
    },
}

/// The folder of a cgroup; another one may take its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    path: PathBuf,
    inode: u64,
}

impl Folder {
    fn open(path: PathBuf) -> Option<Self> {
        let inode = fs::metadata(path.join("cgroup.procs")).ok()?.ino();
        Some(Self { path, inode })
    }

    fn is_there(&self) -> bool {
        Self::open(self.path.clone()).as_ref() == Some(self)
    }

    fn members(&self) -> Vec<Pid> {
        if self.is_there() { members(&self.path) } else { Vec::new() }
    }
}

impl Target {
    /// Fails where a process or the cgroup is not there, or emu itself is in it.
    pub(super) fn find(host: &Host, args: &TargetArgs) -> Result<Self> {
        let TargetArgs { pid, cgroup, unit, container, name } = args;
        match (cgroup, unit, container, name) {
            (Some(path), ..) => Self::cgroup(host, path, None),
            (_, Some(unit), ..) => {
                Self::cgroup(host, &named::unit(host, unit)?, Some(format!("unit {unit}")))
            }
            (_, _, Some(container), _) => {
                let path = named::container(host, container)?;
                Self::cgroup(host, &path, Some(format!("container {container}")))
            }
            (.., Some(name)) => Self::named(&host.roots, name),
            _ => Self::processes(&host.roots, pid),
        }
    }

    /// All processes of a name but emu itself and those that it descends from.
    pub(crate) fn named(roots: &Roots, name: &str) -> Result<Self> {
        Self::processes(roots, &named::processes(roots, name, &own_line(roots))?)
    }

    pub(crate) fn processes(roots: &Roots, pids: &[Pid]) -> Result<Self> {
        let own_line = own_line(roots);
        if let Some(pid) = pids.iter().find(|pid| own_line.contains(pid)) {
            return Err(Error::usage(format!("emu itself is process {pid} or a child of it")).hint(
                "attach from a shell that is not to be slowed down, or start the program with `emu run`",
            ));
        }
        let fds = pids.iter().map(|&pid| open(pid)).collect::<Result<_>>()?;
        Ok(Self::Processes { pids: pids.to_vec(), fds })
    }

    pub(crate) fn cgroup(host: &Host, path: &Path, of: Option<String>) -> Result<Self> {
        let target = Self::group(host, path, of)?;
        target.check_outside(path)?;
        Ok(target)
    }

    /// A cgroup that emu itself may be in.
    pub(crate) fn group(host: &Host, path: &Path, of: Option<String>) -> Result<Self> {
        let wrong =
            |why: &str| bad_cgroup(path, why).hint("name it as /proc/PID/cgroup does, or by its folder");
        let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !path.is_absolute() || !path.components().all(is_plain) {
            return Err(wrong("it must be an absolute path without `..`"));
        }
        let hierarchies = &host.cgroups.hierarchies;
        let below = hierarchies.iter().find_map(|hierarchy| path.strip_prefix(&hierarchy.mount).ok());
        let below = below.unwrap_or_else(|| path.strip_prefix("/").unwrap_or(path));
        let folders: Vec<_> =
            hierarchies.iter().filter_map(|hierarchy| Folder::open(hierarchy.mount.join(below))).collect();
        if folders.is_empty() {
            return Err(wrong("no hierarchy has such a group"));
        }
        Ok(Self::Cgroup { path: Path::new("/").join(below), folders, of })
    }

    /// Fails where emu itself is in this cgroup, which the user has named by `path`.
    pub(crate) fn check_outside(&self, path: &Path) -> Result<()> {
        if !self.pids().contains(&(std::process::id() as Pid)) {
            return Ok(());
        }
        Err(bad_cgroup(path, "emu itself is in it").hint("attach from a shell that is outside of the group"))
    }

    pub(super) fn of(&self) -> Option<&str> {
        match self {
            Self::Processes { .. } => None,
            Self::Cgroup { of, .. } => of.as_deref(),
        }
    }

    /// This target after it was started again; `None` while it is not.
    pub(super) fn again(&self, host: &Host) -> Option<Self> {
        let Self::Cgroup { path, of: Some(of), .. } = self else { return None };
        Self::cgroup(host, path, Some(of.clone())).ok().filter(Self::is_alive)
    }

    pub(super) fn tasks(&self) -> Tasks {
        match self {
            Self::Processes { pids, .. } => Tasks::Processes(pids.clone()),
            Self::Cgroup { path, .. } => Tasks::Cgroup(path.clone()),
        }
    }

    pub(crate) fn pids(&self) -> Vec<Pid> {
        match self {
            Self::Processes { pids, .. } => pids.clone(),
            Self::Cgroup { folders, .. } => {
                folders.iter().flat_map(Folder::members).collect::<BTreeSet<_>>().into_iter().collect()
            }
        }
    }

    /// Whether its cgroups are still the same ones.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::Processes { .. } => true,
            Self::Cgroup { folders, .. } => folders.iter().all(Folder::is_there),
        }
    }

    /// What other emus and messages call the zone.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Processes { pids, .. } => {
                let pids: Vec<_> = pids.iter().map(Pid::to_string).collect();
                format!("process {}", pids.join(","))
            }
            Self::Cgroup { of: Some(of), .. } => of.clone(),
            Self::Cgroup { path, .. } => format!("cgroup {}", path.display()),
        }
    }

    /// Descriptors one of which becomes readable when a process ends; none for a cgroup.
    pub(super) fn ends(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            // An end that has been noticed would end every wait.
            Self::Processes { fds, .. } => fds.iter().filter(|fd| !has_ended(fd)).map(AsFd::as_fd).collect(),
            Self::Cgroup { .. } => vec![],
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        match self {
            Self::Processes { fds, .. } => !fds.iter().all(has_ended),
            Self::Cgroup { folders, .. } => folders.iter().any(|folder| !folder.members().is_empty()),
        }
    }
}

fn bad_cgroup(path: &Path, why: &str) -> Error {
    Error::usage(format!("bad cgroup `{}`: {why}", path.display()))
}

fn open(pid: Pid) -> Result<OwnedFd> {
    let none = || Error::usage(format!("there is no process {pid}")).hint("look it up with ps or pgrep");
    let raw = rustix::process::Pid::from_raw(pid).ok_or_else(none)?;
    match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(fd) => Ok(fd),
        Err(Errno::SRCH) => Err(none()),
        // Newer kernels have another word for it.
        Err(Errno::INVAL | Errno::NOENT) => Err(Error::usage(format!("{pid} is a thread, not a process"))
            .hint(format!("its process is the Tgid in /proc/{pid}/status"))),
        Err(e) => Err(Error::io(format!("cannot watch process {pid}"), e.into())),
    }
}

fn has_ended(fd: &OwnedFd) -> bool {
    readable(&[fd.as_fd()], Duration::ZERO).is_ok_and(|is_readable| is_readable == [true])
}

fn own_line(roots: &Roots) -> Vec<Pid> {
    line_of(&roots.proc, std::process::id() as Pid)
}

fn members(folder: &Path) -> Vec<Pid> {
    let own = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<Pid> = own.lines().filter_map(|line| line.parse().ok()).collect();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        pids.extend(members(&entry.path()));
    }
    pids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emu_and_its_ancestors_are_not_to_be_attached_to() {
        let parent = std::os::unix::process::parent_id() as Pid;
        let own = std::process::id() as Pid;
        assert!(own_line(&Roots::system()).starts_with(&[own, parent]));
        for pid in [own, parent] {
            let error = Target::processes(&Roots::system(), &[pid]).unwrap_err();
            assert!(error.to_string().contains("emu itself"), "{error}");
        }
    }

    #[test]
    fn a_target_lives_as_long_as_one_of_its_processes() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let target = Target::processes(&Roots::system(), &[sleeper.id() as Pid]).unwrap();
        assert!(target.is_alive());
        assert_eq!(target.ends().len(), 1);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(!target.is_alive());
        assert!(target.ends().is_empty());
        assert!(Target::processes(&Roots::system(), &[sleeper.id() as Pid]).is_err());
    }

    #[test]
    fn members_of_nested_groups_count() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inner")).unwrap();
        fs::write(dir.path().join("cgroup.procs"), "1\n2\n").unwrap();
        fs::write(dir.path().join("inner/cgroup.procs"), "3\n").unwrap();
        assert_eq!(members(dir.path()), [1, 2, 3]);
    }
}
