//! A host of files, for tests that plan nodes or watch members.

use std::fs;
use std::path::Path;

pub(super) fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A host with these CPUs and one hierarchy of cgroups, of version 2.
pub(super) fn write_host(root: &Path, cpus: &str) {
    let status = format!("Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t{cpus}\n");
    for (path, text) in [
        ("proc/sys/kernel/osrelease", "6.18.44\n"),
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"),
        ("proc/self/status", &status),
        ("sys/devices/system/cpu/online", &format!("{cpus}\n")),
        ("sys/devices/system/cpu/present", &format!("{cpus}\n")),
        ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu memory\n"),
        ("sys/fs/cgroup/cgroup.procs", ""),
    ] {
        write(root, path, text);
    }
}
