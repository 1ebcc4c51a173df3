//! Below which groups emu can make groups of its own, and with which controllers
//! (Documentation/admin-guide/cgroup-v2.rst, "Delegation").

use std::fs;
use std::path::Path;

use super::controller::Controller;
use super::text;
use crate::control_file;

/// Lists a group's processes; a PID written to it joins the group.
pub(crate) const PROCS: &str = "cgroup.procs";
/// Lists the controllers of a version 2 group.
pub(crate) const CONTROLLERS: &str = "cgroup.controllers";
/// Lists the controllers which a version 2 group passes on to groups below it.
pub(crate) const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Whether groups can be made in it, and on version 2 tasks moved from it into them.
pub(crate) fn is_open(group: &Path, version: u8) -> bool {
    control_file::is_writable(group) && (version == 1 || control_file::is_writable(&group.join(PROCS)))
}

/// Whether a version 2 group can enable its controllers for the groups below it. Except for the root, a group with processes
/// cannot (cgroup-v2.rst, "No Internal Process Constraint"), unless emu `may_empty` it first.
pub(crate) fn can_enable(group: &Path, may_empty: bool) -> bool {
    is_open(group, 2)
        && control_file::is_writable(&group.join(SUBTREE_CONTROL))
        && (may_empty || is_root(group) || is_empty(group))
}

/// Of the hierarchy and not just of a namespace: only the root has no type.
fn is_root(group: &Path) -> bool {
    !group.join("cgroup.type").exists()
}

fn is_empty(group: &Path) -> bool {
    fs::read(group.join(PROCS)).is_ok_and(|text| text.is_empty())
}

/// Those of `controllers` that groups made by emu on v2 can have together: what one group passes on below which they are made.
/// A group that passes on `Cpu` is preferred, and then one that passes on `Cpuset`.
pub(super) fn granted(own: &Path, mount: &Path, controllers: &[Controller]) -> Vec<Controller> {
    let handed_on = |group: &Path| -> Vec<Controller> {
        // emu empties its own group for the `Cpu` controller only.
        let may_empty = group == own && controllers.contains(&Controller::Cpu);
        let names = if can_enable(group, may_empty) {
            text(&group.join(CONTROLLERS))
        } else if is_open(group, 2) {
            text(&group.join(SUBTREE_CONTROL))
        } else {
            String::new()
        };
        let has = |controller: &Controller| match controller {
            Controller::Cpuacct | Controller::Freezer => true,
            Controller::Cpu | Controller::Cpuset | Controller::Memory | Controller::Pids => {
                controller.is_in(&names)
            }
        };
        controllers.iter().copied().filter(has).collect()
    };
    lineage(own, mount)
        .map(handed_on)
        .max_by_key(|granted| [Controller::Cpu, Controller::Cpuset].map(|wanted| granted.contains(&wanted)))
        .unwrap_or_default()
}

/// The group and its ancestors, innermost first, as far as the mount shows them.
pub(super) fn lineage<'a>(own: &'a Path, mount: &'a Path) -> impl Iterator<Item = &'a Path> {
    own.ancestors().take_while(move |group| group.starts_with(mount))
}

#[cfg(test)]
mod tests {
    use super::super::cgroups::read;
    use super::super::testing::{tree, unified, with};
    use super::*;
    use crate::roots::Roots;

    #[test]
    fn a_v2_controller_is_granted_where_a_usable_group_passes_it_on() {
        // This process is in /user/scope, with others. The root and /user are not delegated: their
        // cgroup.procs cannot be written, which this tree shows by leaving the files out.
        const FILES: &[(&str, &str)] = &[
            ("proc/self/cgroup", "0::/user/scope\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n"),
            ("sys/fs/cgroup/cgroup.subtree_control", "cpu memory\n"),
            ("sys/fs/cgroup/user/cgroup.type", "domain\n"),
            ("sys/fs/cgroup/user/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/user/cgroup.subtree_control", "memory\n"),
            ("sys/fs/cgroup/user/scope/cgroup.type", "domain\n"),
            ("sys/fs/cgroup/user/scope/cgroup.procs", "77\n"),
            ("sys/fs/cgroup/user/scope/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/user/scope/cgroup.subtree_control", ""),
        ];
        let granted = |changes: &[(&str, &str)]| {
            let dir = tree(&with(FILES, changes));
            let cgroups = read(&Roots::below(dir.path()), Some((6, 1)));
            let unified = unified(&cgroups).unwrap();
            assert!(unified.writable);
            assert!(unified.controllers.contains(&Controller::Cpu), "it is in reach in any case");
            [Controller::Cpu, Controller::Cpuset].map(|controller| unified.granted.contains(&controller))
        };
        let own = "sys/fs/cgroup/user/scope/cgroup.controllers";
        assert_eq!(granted(&[]), [false, false], "not delegated");
        assert_eq!(granted(&[(own, "cpu memory\n")]), [true, false]);
        assert_eq!(granted(&[(own, "cpuset cpu memory\n")]), [true, true]);
        let ours = ("sys/fs/cgroup/user/cgroup.procs", "");
        assert_eq!(granted(&[ours]), [true, false], "the parent group is free to enable it");
        let busy = ("sys/fs/cgroup/user/cgroup.procs", "1\n");
        assert_eq!(granted(&[busy]), [false, false], "the parent group has processes");
        let enabled = ("sys/fs/cgroup/user/cgroup.subtree_control", "cpu memory\n");
        assert_eq!(granted(&[busy, enabled]), [true, false], "the parent group has enabled it already");
        let root = ("sys/fs/cgroup/cgroup.procs", "1\n");
        assert_eq!(granted(&[root]), [true, true], "the root may have processes");
        // All groups of emu are made below one group, which must pass on all controllers.
        let apart = [(own, "cpuset memory\n"), busy, enabled];
        assert_eq!(granted(&apart), [true, false]);
    }
}
