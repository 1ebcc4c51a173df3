//! Recorded hosts for tests of all modules: trees of kernel files below a temporary folder.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{Cgroups, Hierarchy, Host};
use crate::roots::Roots;

/// A virtual machine with two CPUs of one thread each, every controller of interest in a version-1 hierarchy of its own beside
/// an empty version-2 one, no cpufreq, and root's privileges. Taken from Linux 6.18 under KVM, and shortened.
pub(crate) const VM_V1: &[(&str, &str)] = &[
    (
        "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu tsc hypervisor\n\nprocessor\t: 1\n",
    ),
    ("proc/sys/kernel/osrelease", "6.18.44\n"),
    ("proc/sys/kernel/random/boot_id", "6a1d7d1c-5a3c-4ac5-8d53-0f5d5f0a8f6e\n"),
    ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
    ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
    (
        "proc/self/cgroup",
        "9:name=systemd:/\n6:freezer:/\n4:memory:/api/3b8c\n3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n",
    ),
    ("proc/self/limits", "Max realtime priority     0                    0                    \n"),
    (
        "proc/self/mountinfo",
        "23 27 0:22 / /sys rw,relatime - sysfs sysfs rw\n\
         31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
         32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
         33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
         34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
         37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n\
         40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n\
         41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
    ),
    (
        "proc/self/status",
        "Name:\temu\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1\n",
    ),
    ("proc/self/uid_map", "         0          0 4294967295\n"),
    ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc kvm-clock \n"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
    ("sys/devices/system/cpu/isolated", "\n"),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/present", "0-1\n"),
    ("sys/devices/system/cpu/cpu0/cpu_capacity", "1024\n"),
    ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0\n"),
    ("sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
    ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
    ("sys/devices/system/cpu/cpu1/cpu_capacity", "1024\n"),
    ("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "1\n"),
    ("sys/devices/system/cpu/cpu1/topology/core_id", "1\n"),
    ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
    ("sys/fs/cgroup/cpu/cgroup.procs", ""),
    ("sys/fs/cgroup/cpu/cpu.rt_runtime_us", "950000\n"),
    ("sys/fs/cgroup/cpuacct/cgroup.procs", ""),
    ("sys/fs/cgroup/cpuset/cgroup.procs", ""),
    ("sys/fs/cgroup/freezer/cgroup.procs", ""),
    ("sys/fs/cgroup/unified/cgroup.controllers", "\n"),
    ("sys/fs/cgroup/unified/cgroup.procs", ""),
];

pub(crate) fn with<'a>(
    base: &[(&'a str, &'a str)],
    changes: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [base, changes].concat()
}

/// To be read by [`Roots::below`].
pub(crate) fn tree(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(dir.path(), path, text.as_bytes());
    }
    dir
}

pub(crate) fn write(root: &Path, path: &str, contents: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

/// The host of [`VM_V1`]. Its files are already deleted, so tests cannot change anything through it.
pub(crate) fn host() -> Host {
    host_of(VM_V1)
}

pub(crate) fn host_of(files: &[(&str, &str)]) -> Host {
    Host::detect(&Roots::below(tree(files).path())).unwrap()
}

/// The hierarchy of version 2.
pub(crate) fn unified(cgroups: &Cgroups) -> Option<&Hierarchy> {
    cgroups.hierarchies.iter().find(|hierarchy| hierarchy.version == 2)
}
