//! Brings tasks back that the kernel has moved out of a version 1 cpuset whose last CPU went offline.
//!
//! The kernel moves them to the nearest ancestor group that has CPUs, and leaves them there when the CPUs come back
//! (cgroups-v1/cpusets.rst, "How do I use cpusets?"). There they may use CPUs that are not slowed.

use std::path::{Path, PathBuf};

use super::folder::PASSES;
use super::{lists, place};
use crate::error::{Error, Result};
use crate::host::Hierarchy;
use crate::host::delegation::PROCS;
use crate::process::{Descendants, Stat};
use crate::sys::Pid;

#[derive(Debug)]
pub(crate) struct CpusetRepair {
    proc: PathBuf,
    hierarchy: Hierarchy,
    folder: PathBuf,
    members: Vec<Pid>,
    /// The members and their descendants, while they are moved out.
    away: Option<Descendants>,
}

impl CpusetRepair {
    pub(super) fn new(proc: &Path, hierarchy: &Hierarchy, folder: &Path) -> Self {
        let (proc, hierarchy, folder) = (proc.to_owned(), hierarchy.clone(), folder.to_owned());
        Self { proc, hierarchy, folder, members: Vec::new(), away: None }
    }

    /// To be called while the cpuset has CPUs.
    pub(super) fn remember(&mut self) -> Result<()> {
        self.members = lists::read_all(&self.folder, PROCS)?;
        Ok(())
    }

    /// To be called while it has none: processes that are started meanwhile also belong to it.
    pub(super) fn follow(&mut self) -> Result<()> {
        if let Some(descendants) = &mut self.away {
            return descendants.look();
        }
        let is_alive = |pid: &Pid| Stat::read(&self.proc, *pid).is_some_and(|stat| !stat.has_ended());
        loop {
            self.members.retain(is_alive);
            match Descendants::of(&self.proc, &self.members) {
                Ok(descendants) => self.away = Some(descendants),
                // One has ended meanwhile.
                Err(_) if !self.members.iter().all(is_alive) => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    /// To be called when it has CPUs again. A process that has been moved elsewhere stays. Where the kernel refuses to move
    /// one, the others are moved, and the call can be repeated.
    pub(super) fn bring_back(&mut self) -> Result<()> {
        let Some(descendants) = &mut self.away else { return Ok(()) };
        let list = self.folder.join(PROCS);
        for _ in 0..PASSES {
            descendants.look()?;
            let (mut is_new, mut result) = (false, Ok(()));
            for &pid in descendants.members().keys() {
                let home = place::home(&self.proc, pid, &self.hierarchy);
                if !home.is_some_and(|home| home != self.folder && self.folder.starts_with(home)) {
                    continue;
                }
                match place::put(&list, &pid.to_string()) {
                    Ok(moved) => is_new |= moved,
                    Err(error) => result = Err(error),
                }
            }
            result?;
            if !is_new {
                self.away = None;
                return Ok(());
            }
        }
        Err(Error::unavailable("processes are made faster than they are moved back"))
    }
}
