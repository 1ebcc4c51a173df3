//! Files of machines with each driver of frequencies, below `/sys/devices/system/cpu` but for [`BARE`].

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// The files of a table over those of another; of a file in both, the second text counts.
pub(in crate::doctor) fn with<'a>(
    base: &[(&'a str, &'a str)],
    changes: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [base, changes].concat()
}

/// Writes a table of paths and texts below a new temporary folder, to be read by [`Roots::below`](emu_core::Roots::below).
pub(in crate::doctor) fn tree(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(dir.path(), path, text.as_bytes());
    }
    dir
}

/// Writes one file of a tree, with the folders that it needs.
pub(in crate::doctor) fn write(root: &Path, path: &str, contents: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

/// A virtual machine with two CPUs of one thread each, every controller of interest in a version-1
/// hierarchy of its own beside an empty version-2 one, no cpufreq, and root's privileges. Taken from Linux 6.18
/// under KVM, and shortened.
pub(in crate::doctor) const VM_V1: &[(&str, &str)] = &[
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

/// What a machine of two CPUs without hypervisor shows of all that is not its frequency. Layouts by the documents
/// that the knobs cite; cgroup v2 as systemd mounts it.
pub(super) const BARE: &[(&str, &str)] = &[
    ("proc/cpuinfo", "processor\t: 0\nmodel name\t: x\nflags\t\t: fpu tsc\n\nprocessor\t: 1\n"),
    ("proc/stat", "cpu  100 0 50 1000 0 0 0 0 0 0\n"),
    ("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2  partition\t8388604\t2048\t-2\n"),
    ("proc/irq/8/smp_affinity_list", "0-1\n"),
    ("proc/irq/9/smp_affinity_list", "1\n"),
    ("proc/irq/default_smp_affinity", "3\n"),
    ("proc/sys/kernel/osrelease", "6.12.9\n"),
    ("proc/sys/kernel/random/boot_id", "6a1d7d1c-5a3c-4ac5-8d53-0f5d5f0a8f6e\n"),
    ("proc/sys/kernel/randomize_va_space", "2\n"),
    ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
    ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    ("proc/self/cgroup", "0::/user.slice\n"),
    ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
    ("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1\n"),
    ("proc/self/timerslack_ns", "50000\n"),
    ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm \n"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
    ("sys/devices/system/cpu/isolated", "\n"),
    ("sys/devices/system/cpu/nohz_full", "(null)\n"),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/present", "0-1\n"),
    ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
    ("sys/devices/system/cpu/cpuidle/current_governor", "menu\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C1\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state2/name", "C6\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state2/latency", "133\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "0\n"),
    ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "0\n"),
    ("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "0\n"),
    ("sys/devices/system/cpu/smt/active", "0\n"),
    ("sys/devices/system/cpu/smt/control", "on\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n"),
    ("sys/fs/cgroup/user.slice/cgroup.controllers", "cpu memory\n"),
    ("sys/fs/cgroup/cgroup.procs", ""),
    ("sys/fs/cgroup/user.slice/cgroup.procs", ""),
    ("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
    ("sys/kernel/mm/transparent_hugepage/defrag", "[always] defer defer+madvise madvise never\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
    ("dev/cpu_dma_latency", "\0\u{14}\0\0"),
];

/// Frequency control by acpi-cpufreq, one policy for each CPU; boost as in Documentation/admin-guide/pm/cpufreq.rst.
pub(super) const ACPI: &[(&str, &str)] = &[
    ("cpufreq/boost", "1\n"),
    ("cpufreq/policy0/related_cpus", "0\n"),
    ("cpufreq/policy0/scaling_driver", "acpi-cpufreq\n"),
    ("cpufreq/policy0/scaling_governor", "ondemand\n"),
    ("cpufreq/policy0/scaling_available_governors", "ondemand userspace performance \n"),
    ("cpufreq/policy1/related_cpus", "1\n"),
    ("cpufreq/policy1/scaling_driver", "acpi-cpufreq\n"),
    ("cpufreq/policy1/scaling_governor", "schedutil\n"),
    ("cpufreq/policy1/scaling_available_governors", "schedutil performance \n"),
];

/// `intel_pstate` in active mode with HWP (Documentation/admin-guide/pm/intel_pstate.rst).
pub(super) const INTEL_ACTIVE: &[(&str, &str)] = &[
    ("intel_pstate/status", "active\n"),
    ("intel_pstate/no_turbo", "0\n"),
    ("cpufreq/policy0/related_cpus", "0\n"),
    ("cpufreq/policy0/scaling_driver", "intel_pstate\n"),
    ("cpufreq/policy0/scaling_governor", "powersave\n"),
    ("cpufreq/policy0/scaling_available_governors", "performance powersave\n"),
    ("cpufreq/policy0/energy_performance_preference", "balance_performance\n"),
    ("cpufreq/policy1/related_cpus", "1\n"),
    ("cpufreq/policy1/scaling_driver", "intel_pstate\n"),
    ("cpufreq/policy1/scaling_governor", "performance\n"),
    ("cpufreq/policy1/scaling_available_governors", "performance powersave\n"),
    ("cpufreq/policy1/energy_performance_preference", "performance\n"),
];

/// The same without HWP (`intel_pstate=active,no_hwp`): its own two algorithms, and no preference to be told.
pub(super) const INTEL_ACTIVE_NO_HWP: &[(&str, &str)] = &[
    ("intel_pstate/status", "active\n"),
    ("intel_pstate/no_turbo", "0\n"),
    ("cpufreq/policy0/related_cpus", "0\n"),
    ("cpufreq/policy0/scaling_driver", "intel_pstate\n"),
    ("cpufreq/policy0/scaling_governor", "powersave\n"),
    ("cpufreq/policy0/scaling_available_governors", "performance powersave\n"),
    ("cpufreq/policy1/related_cpus", "1\n"),
    ("cpufreq/policy1/scaling_driver", "intel_pstate\n"),
    ("cpufreq/policy1/scaling_governor", "powersave\n"),
    ("cpufreq/policy1/scaling_available_governors", "performance powersave\n"),
];

/// The same in passive mode, where the driver goes by another name and takes the common governors.
pub(super) const INTEL_PASSIVE: &[(&str, &str)] = &[
    ("intel_pstate/status", "passive\n"),
    ("intel_pstate/no_turbo", "1\n"),
    ("cpufreq/policy0/related_cpus", "0 1\n"),
    ("cpufreq/policy0/scaling_driver", "intel_cpufreq\n"),
    ("cpufreq/policy0/scaling_governor", "schedutil\n"),
    ("cpufreq/policy0/scaling_available_governors", "schedutil performance \n"),
];

/// `amd-pstate` in active mode (Documentation/admin-guide/pm/amd-pstate.rst), boost for each policy.
pub(super) const AMD: &[(&str, &str)] = &[
    ("amd_pstate/status", "active\n"),
    ("cpufreq/policy0/related_cpus", "0\n"),
    ("cpufreq/policy0/scaling_driver", "amd-pstate-epp\n"),
    ("cpufreq/policy0/scaling_governor", "powersave\n"),
    ("cpufreq/policy0/scaling_available_governors", "performance powersave\n"),
    ("cpufreq/policy0/energy_performance_preference", "balance_performance\n"),
    ("cpufreq/policy0/boost", "1\n"),
    ("cpufreq/policy1/related_cpus", "1\n"),
    ("cpufreq/policy1/scaling_driver", "amd-pstate-epp\n"),
    ("cpufreq/policy1/scaling_governor", "powersave\n"),
    ("cpufreq/policy1/scaling_available_governors", "performance powersave\n"),
    ("cpufreq/policy1/energy_performance_preference", "performance\n"),
    ("cpufreq/policy1/boost", "0\n"),
];

/// `amd-pstate` in passive mode, which takes the common governors and no preference; its list is that of the cpupower
/// example in amd-pstate.rst. One boost for all, as in cpufreq.rst.
pub(super) const AMD_PASSIVE: &[(&str, &str)] = &[
    ("amd_pstate/status", "passive\n"),
    ("cpufreq/boost", "1\n"),
    ("cpufreq/policy0/related_cpus", "0\n"),
    ("cpufreq/policy0/scaling_driver", "amd-pstate\n"),
    ("cpufreq/policy0/scaling_governor", "schedutil\n"),
    (
        "cpufreq/policy0/scaling_available_governors",
        "ondemand conservative powersave userspace performance schedutil \n",
    ),
    ("cpufreq/policy1/related_cpus", "1\n"),
    ("cpufreq/policy1/scaling_driver", "amd-pstate\n"),
    ("cpufreq/policy1/scaling_governor", "powersave\n"),
    (
        "cpufreq/policy1/scaling_available_governors",
        "ondemand conservative powersave userspace performance schedutil \n",
    ),
];

/// Arm: cpufreq-dt with one policy for a cluster of two CPUs, and no boost, which takes `turbo-mode` in the table of
/// the device tree (Documentation/devicetree/bindings/opp/opp-v2-base.yaml). The frequencies are examples.
pub(super) const ARM: &[(&str, &str)] = &[
    ("cpufreq/policy0/related_cpus", "0 1\n"),
    ("cpufreq/policy0/scaling_driver", "cpufreq-dt\n"),
    ("cpufreq/policy0/scaling_governor", "schedutil\n"),
    (
        "cpufreq/policy0/scaling_available_governors",
        "conservative ondemand userspace powersave performance schedutil \n",
    ),
    ("cpufreq/policy0/scaling_available_frequencies", "450000 800000 1100000 \n"),
    ("cpufreq/policy0/scaling_min_freq", "450000\n"),
    ("cpufreq/policy0/scaling_max_freq", "1100000\n"),
];
