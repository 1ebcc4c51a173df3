//! Which cgroups may have groups of ours, and with which controllers (Documentation/admin-guide/cgroup-v2.rst,
//! "Delegation").

use std::fs;
use std::path::Path;

use super::controller::Controller;
use super::text;
use crate::control_file;

/// The file that lists a group's processes, and takes new ones.
pub(crate) const PROCS: &str = "cgroup.procs";
/// The controllers that a version 2 group has.
pub(crate) const CONTROLLERS: &str = "cgroup.controllers";
/// Those of them that groups below it have.
pub(crate) const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Whether groups can be made in it, and on version 2 tasks moved out of it into them.
pub(crate) fn is_open(group: &Path, version: u8) -> bool {
    control_file::is_writable(group) && (version == 1 || control_file::is_writable(&group.join(PROCS)))
}

/// Whether a version 2 group can enable controllers that it has for the groups below it. One that holds processes
/// cannot (cgroup-v2.rst, "No Internal Process Constraint"; the root can), unless it `may_empty` itself first.
pub(crate) fn can_enable(group: &Path, may_empty: bool) -> bool {
    is_open(group, 2)
        && control_file::is_writable(&group.join(SUBTREE_CONTROL))
        && (may_empty || is_root(group) || is_empty(group))
}

/// The root of the whole hierarchy, and not just of a namespace, has no type.
fn is_root(group: &Path) -> bool {
    !group.join("cgroup.type").exists()
}

fn is_empty(group: &Path) -> bool {
    fs::read(group.join(PROCS)).is_ok_and(|text| text.is_empty())
}

/// Those of `controllers` that groups of ours on v2 can have at once: what the group hands on below which they are
/// made. Of several such groups one that hands on `Cpu` comes first, and of these one that hands on `Cpuset`, too.
pub(super) fn granted(own: &Path, mount: &Path, controllers: &[Controller]) -> Vec<Controller> {
    let handed_on = |group: &Path| -> Vec<Controller> {
        // Only for `Cpu` are the processes of our own group moved into one below it.
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

/// A group and those above it, innermost first, as far as the mount shows them.
pub(super) fn lineage<'a>(own: &'a Path, mount: &'a Path) -> impl Iterator<Item = &'a Path> {
    own.ancestors().take_while(move |group| group.starts_with(mount))
}

#[cfg(test)]
mod tests {
    use super::super::cgroups::read;
    use super::super::testing::{tree, with};
    use super::*;
    use crate::roots::Roots;

    #[test]
    fn a_v2_controller_is_granted_where_a_group_that_we_may_use_hands_it_on() {
        // We are in /user/scope, with other processes. The root and /user are not ours: we cannot write to their
        // cgroup.procs, which stands here for that by being absent.
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
            let unified = cgroups.unified().unwrap();
            assert!(unified.writable);
            assert!(unified.controllers.contains(&Controller::Cpu), "it is in reach in any case");
            [Controller::Cpu, Controller::Cpuset].map(|controller| unified.granted.contains(&controller))
        };
        let own = "sys/fs/cgroup/user/scope/cgroup.controllers";
        assert_eq!(granted(&[]), [false, false], "not delegated");
        assert_eq!(granted(&[(own, "cpu memory\n")]), [true, false]);
        assert_eq!(granted(&[(own, "cpuset cpu memory\n")]), [true, true]);
        let ours = ("sys/fs/cgroup/user/cgroup.procs", "");
        assert_eq!(granted(&[ours]), [true, false], "the group above is free to enable it");
        let busy = ("sys/fs/cgroup/user/cgroup.procs", "1\n");
        assert_eq!(granted(&[busy]), [false, false], "it has processes");
        let enabled = ("sys/fs/cgroup/user/cgroup.subtree_control", "cpu memory\n");
        assert_eq!(granted(&[busy, enabled]), [true, false], "it has enabled it already");
        let root = ("sys/fs/cgroup/cgroup.procs", "1\n");
        assert_eq!(granted(&[root]), [true, true], "the root may have processes");
        // Groups of ours are made below one group: what no group has together cannot be had together.
        let apart = [(own, "cpuset memory\n"), busy, enabled];
        assert_eq!(granted(&apart), [true, false]);
    }
}
