//! The CPUs and their topology, from `/sys/devices/system/cpu` (Documentation/ABI/testing/sysfs-devices-system-cpu,
//! Documentation/admin-guide/cputopology.rst).

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cpufreq::{Cpufreq, cppc_nominal};
use super::field;
use crate::control_file::{probe, probe_cpus};
use crate::cpu_list::{CpuId, CpuList};
use crate::roots::Roots;
use crate::speed::Hertz;

/// A logical CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// Whether the kernel schedules tasks on it now.
    pub online: bool,
    /// Whether it was isolated at boot (`isolcpus=`).
    pub isolated: bool,
    /// The online CPUs that share its core (SMT), itself included. An offline CPU has only itself,
    /// because the kernel does not report its topology.
    pub siblings: CpuList,
    /// `physical_package_id`, the socket.
    pub package: Option<u32>,
    /// `core_id` within the package.
    pub core: Option<u32>,
    /// Capacity relative to the biggest CPU of the machine, which has 1024; `None` where the kernel
    /// does not report it (Documentation/scheduler/sched-capacity.rst).
    pub capacity: Option<u32>,
    /// The base clock, where the kernel reports it (`base_frequency`, ACPI CPPC nominal).
    pub nominal: Option<Hertz>,
}

/// The CPUs that are present, by number. Without sysfs, these are the CPUs of `/proc/cpuinfo`, which lists the online ones.
pub(super) fn read(roots: &Roots, cpuinfo: &str, cpufreq: Option<&Cpufreq>) -> Vec<Cpu> {
    let dir = roots.cpus();
    let online = probe_cpus(&dir.join("online"));
    let isolated = probe_cpus(&dir.join("isolated")).unwrap_or_default();
    let present = probe_cpus(&dir.join("present"))
        .filter(|cpus| !cpus.is_empty())
        .or_else(|| online.clone().filter(|cpus| !cpus.is_empty()))
        .unwrap_or_else(|| processors(cpuinfo));
    let is_online = |id: CpuId| match &online {
        Some(online) => online.contains(id),
        None => probe::<u8>(&dir.join(format!("cpu{id}/online"))) != Some(0),
    };
    let online: CpuList = present.iter().filter(|&id| is_online(id)).collect();
    present
        .iter()
        .map(|id| {
            let cpu = dir.join(format!("cpu{id}"));
            Cpu {
                id,
                online: online.contains(id),
                isolated: isolated.contains(id),
                siblings: siblings(id, &cpu.join("topology"), &online),
                package: probe(&cpu.join("topology/physical_package_id")),
                core: probe(&cpu.join("topology/core_id")),
                capacity: probe(&cpu.join("cpu_capacity")),
                nominal: cpufreq
                    .and_then(|cpufreq| cpufreq.policy_of(id)?.base)
                    .or_else(|| cppc_nominal(roots, id)),
            }
        })
        .collect()
}

/// `core_cpus_list`, or its name before Linux 5.3, without offline CPUs and with the CPU itself.
fn siblings(id: CpuId, topology: &Path, online: &CpuList) -> CpuList {
    let named = probe_cpus(&topology.join("core_cpus_list"))
        .or_else(|| probe_cpus(&topology.join("thread_siblings_list")));
    let named = named.filter(|_| online.contains(id)).unwrap_or_default();
    named.intersection(online).iter().chain([id]).collect()
}

/// Each architecture writes its own `/proc/cpuinfo`: x86 has `model name`, POWER `cpu`, MIPS `cpu model`, RISC-V `uarch`,
/// 32-bit Arm `Hardware`; 64-bit Arm gives only the numbers of implementer and part.
pub(super) fn model(cpuinfo: &str) -> String {
    let arm = || {
        let (implementer, part) = (field(cpuinfo, "CPU implementer")?, field(cpuinfo, "CPU part")?);
        Some(format!("Arm implementer {implementer} part {part}"))
    };
    ["model name", "cpu model", "cpu", "uarch"]
        .into_iter()
        .filter_map(|key| field(cpuinfo, key))
        .find(|name| !name.is_empty())
        .map(str::to_owned)
        .or_else(arm)
        .or_else(|| field(cpuinfo, "Hardware").map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}

fn processors(cpuinfo: &str) -> CpuList {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(key, _)| key.trim() == "processor")
        .filter_map(|(_, number)| number.trim().parse().ok())
        .filter(|&id: &CpuId| id <= crate::cpu_list::CPU_ID_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    const DIR: &str = "sys/devices/system/cpu";

    /// Reads the CPUs of a tree with the given files below the folder of CPUs.
    fn cpus(files: &[(&str, &str)]) -> Vec<Cpu> {
        let paths: Vec<_> = files.iter().map(|(path, text)| (format!("{DIR}/{path}"), *text)).collect();
        let files: Vec<_> = paths.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let dir = tree(&files);
        read(&Roots::below(dir.path()), "", None)
    }

    fn cpu_list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn smt_siblings_offline_and_isolated_cpus_are_recognized() {
        // Documentation/admin-guide/cputopology.rst; two cores of two threads, CPU 3 offline: the
        // kernel removes its topology folder and its number from its sibling's list.
        let cpus = cpus(&[
            ("present", "0-3\n"),
            ("online", "0-2\n"),
            ("isolated", "1\n"),
            ("cpu0/topology/core_cpus_list", "0,2\n"),
            ("cpu0/topology/physical_package_id", "0\n"),
            ("cpu0/topology/core_id", "4\n"),
            ("cpu1/topology/core_cpus_list", "1\n"),
            ("cpu2/topology/thread_siblings_list", "0,2\n"),
            ("cpu2/topology/physical_package_id", "-1\n"),
            ("cpu3/online", "0\n"),
        ]);
        assert_eq!(cpus.len(), 4);
        assert_eq!(cpus[0].siblings, cpu_list("0,2"));
        assert_eq!((cpus[0].package, cpus[0].core), (Some(0), Some(4)));
        assert!(cpus[1].isolated && !cpus[0].isolated);
        assert_eq!(cpus[2].siblings, cpu_list("0,2"), "the older name of the file");
        assert_eq!(cpus[2].package, None, "-1 stands for unknown");
        assert!(!cpus[3].online);
        assert_eq!(cpus[3].siblings, cpu_list("3"));
    }

    #[test]
    fn siblings_that_are_offline_are_left_out() {
        let cpus = cpus(&[("present", "0-1"), ("online", "0"), ("cpu0/topology/core_cpus_list", "0-1")]);
        assert_eq!(cpus[0].siblings, cpu_list("0"));
    }

    #[test]
    fn without_the_list_of_online_cpus_each_cpu_is_asked() {
        let cpus =
            cpus(&[("present", "0-2"), ("online", "junk"), ("cpu1/online", "0"), ("cpu2/online", "1")]);
        assert_eq!(cpus.iter().map(|cpu| cpu.online).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn without_sysfs_the_processors_of_cpuinfo_are_taken() {
        let dir = tree(&[]);
        let cpuinfo =
            "processor\t: 0\nBogoMIPS\t: 50.00\n\nprocessor\t: 3\nprocessor\t: 99999\nprocessor\t: x\n";
        let cpus = read(&Roots::below(dir.path()), cpuinfo, None);
        assert_eq!(cpus.iter().map(|cpu| (cpu.id, cpu.online)).collect::<Vec<_>>(), [(0, true), (3, true)]);
        assert_eq!(read(&Roots::below(dir.path()), "", None), []);
    }

    #[test]
    fn capacities_of_unequal_cpus_are_read() {
        // Documentation/devicetree/bindings/cpu/cpu-capacity.txt, example 1: 1024 and 578 * 850 /
        // 1100.
        let cpus =
            cpus(&[("present", "0-1"), ("cpu0/cpu_capacity", "1024\n"), ("cpu1/cpu_capacity", "446\n")]);
        assert_eq!(cpus.iter().map(|cpu| cpu.capacity).collect::<Vec<_>>(), [Some(1024), Some(446)]);
    }

    #[test]
    fn the_nominal_clock_comes_from_acpi_if_not_from_cpufreq() {
        // Documentation/admin-guide/acpi/cppc_sysfs.rst: MHz.
        let cpus = cpus(&[
            ("present", "0-1"),
            ("cpu0/acpi_cppc/nominal_freq", "3300\n"),
            ("cpu1/acpi_cppc/nominal_freq", "0\n"),
        ]);
        assert_eq!(cpus[0].nominal, Some(Hertz(3_300_000_000)));
        assert_eq!(cpus[1].nominal, None);
    }

    #[test]
    fn the_model_is_found_on_each_architecture() {
        for (cpuinfo, name) in [
            ("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n", "AMD EPYC"),
            ("cpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
            ("uarch\t\t: sifive,u74-mc\n", "sifive,u74-mc"),
            ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "Arm implementer 0x41 part 0xd0c"),
            ("Hardware\t: BCM2835\n", "BCM2835"),
            ("model name\t:\n", "unknown"),
            ("", "unknown"),
        ] {
            assert_eq!(model(cpuinfo), name);
        }
    }
}
