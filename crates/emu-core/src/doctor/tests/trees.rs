//! Files of machines with each driver of frequencies, below `/sys/devices/system/cpu` but for [`BARE`].

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
