//! Choosing the hierarchy for each controller, and finding existing groups in them.

use std::collections::BTreeSet;
use std::path::Path;

use super::folder::Folder;
use super::{lists, place};
use crate::error::{Error, Result};
use crate::host::delegation::PROCS;
use crate::host::{Controller, Hierarchy, Host, below};
use crate::sys::Pid;

/// How often two lists of processes are compared before they count as different.
const LOOKS: u32 = 20;

pub(super) fn is_vital(controller: Controller) -> bool {
    matches!(controller, Controller::Cpu | Controller::Freezer | Controller::Memory)
}

/// Freezing and accounting exist in version 2 beside version 1, and work better there; a writable hierarchy comes first.
pub(crate) fn hierarchy_for(host: &Host, controller: Controller) -> Option<&Hierarchy> {
    let having = host.cgroups.hierarchies.iter().filter(|h| h.controllers.contains(&controller));
    having.max_by_key(|hierarchy| (hierarchy.writable, hierarchy.version))
}

/// Whether groups of emu can have a controller, as far as `host` tells.
pub(crate) fn can_have(host: &Host, controller: Controller) -> bool {
    hierarchy_for(host, controller)
        .is_some_and(|hierarchy| hierarchy.writable && hierarchy.granted.contains(&controller))
}

/// Missing controllers that are not vital are left out.
pub(super) fn hierarchies<'a>(
    host: &'a Host,
    wanted: &[Controller],
) -> Vec<(&'a Hierarchy, Vec<Controller>)> {
    let mut chosen: Vec<(&Hierarchy, Vec<Controller>)> = Vec::new();
    for &controller in wanted {
        let Some(hierarchy) = hierarchy_for(host, controller) else { continue };
        if !hierarchy.writable && !is_vital(controller) {
            continue;
        }
        match chosen.iter_mut().find(|(known, _)| *known == hierarchy) {
            Some((_, controllers)) => controllers.push(controller),
            None => chosen.push((hierarchy, vec![controller])),
        }
    }
    chosen
}

/// The existing group `path` in the hierarchy in which it is used for a controller.
pub(crate) fn adopted<'a>(
    host: &'a Host,
    path: &Path,
    controller: Controller,
) -> Option<(&'a Hierarchy, Folder)> {
    let mut having = host.cgroups.hierarchies.iter().rev().filter(|h| h.controllers.contains(&controller));
    having.find_map(|hierarchy| Some((hierarchy, existing(hierarchy, path)?)))
}

pub(super) fn existing(hierarchy: &Hierarchy, path: &Path) -> Option<Folder> {
    let inside = path.strip_prefix(&hierarchy.shown).unwrap_or(path);
    let folder = below(&hierarchy.mount, inside).filter(|folder| place::is_group(folder))?;
    Some(Folder { version: hierarchy.version, path: folder })
}

pub(crate) fn folder_of<'a>(host: &'a Host, path: &Path) -> Result<(&'a Hierarchy, Folder)> {
    let mut hierarchies = host.cgroups.hierarchies.iter().rev();
    let found = hierarchies.find_map(|hierarchy| Some((hierarchy, existing(hierarchy, path)?)));
    found.ok_or_else(|| no_such_group(host, path, None))
}

/// Whether the existing group `path` has the same processes in every hierarchy that has a group of this path.
pub(crate) fn is_same_everywhere(host: &Host, path: &Path) -> Result<bool> {
    let folders: Vec<_> = host.cgroups.hierarchies.iter().filter_map(|h| existing(h, path)).collect();
    let members = |folder: &Folder| -> Result<BTreeSet<Pid>> {
        Ok(lists::read_all(&folder.path, PROCS)?.into_iter().collect())
    };
    // Processes start and end between two reads.
    for _ in 0..LOOKS {
        let members = folders.iter().map(members).collect::<Result<Vec<_>>>()?;
        if members.iter().zip(members.iter().skip(1)).all(|(one, next)| one == next) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The error for a path that is no group, or has no such controller.
pub(super) fn no_such_group(host: &Host, path: &Path, controller: Option<Controller>) -> Error {
    let mounts: Vec<_> = host
        .cgroups
        .hierarchies
        .iter()
        .filter(|hierarchy| controller.is_none_or(|wanted| hierarchy.controllers.contains(&wanted)))
        .map(|hierarchy| hierarchy.mount.display().to_string())
        .collect();
    let what = controller
        .map_or(String::new(), |controller| format!(" with the controller `{}`", controller.as_str()));
    Error::usage(format!("there is no cgroup {}{what}", path.display()))
        .hint(format!("give its path below {}, as in /proc/<pid>/cgroup", mounts.join(" or ")))
}
