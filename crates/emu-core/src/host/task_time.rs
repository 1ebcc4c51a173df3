//! The CPU time that all tasks together have used on some CPUs.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cgroups::Cgroups;
use super::controller::Controller;
use super::cpu_times::CpuTimes;
use super::cpu_times::line_of;
use crate::cpu_list::{CpuId, CpuList};
use crate::roots::Roots;
use crate::sys::time::{Nanos, USER_TICK};

/// The kernel's account of the CPU time of all tasks on each CPU, in nanoseconds. (`/proc/stat`
/// counts ticks.)
///
/// The kernel updates it when a task leaves its CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TaskTime {
    /// `cpuacct.usage_percpu` of the root group
    /// (`Documentation/admin-guide/cgroup-v1/cpuacct.rst`).
    Cpuacct(PathBuf),
    /// `schedstat` in this procfs (`Documentation/scheduler/sched-stats.rst`), of kernels with
    /// `CONFIG_SCHEDSTATS`.
    Schedstat(PathBuf),
}

/// CPU time since some moment of this boot. Sums wrap around.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AllTasks {
    pub(crate) time: Nanos,
    /// The largest part of `time` that may be interrupts and steal. Kernels that account for these exclude them from the time
    /// of tasks and groups. `None` where `time` contains none of it (cpuacct).
    pub(crate) interrupts: Option<Nanos>,
}

impl TaskTime {
    /// A container's own cgroup mount is not used, because it has the container's tasks only.
    pub(super) fn find(roots: &Roots, cgroups: &Cgroups) -> Option<Self> {
        let is_root = |mount: &Path| mount.join("release_agent").exists();
        let cpuacct = cgroups
            .hierarchies
            .iter()
            .filter(|hierarchy| {
                hierarchy.version == 1 && hierarchy.controllers.contains(&Controller::Cpuacct)
            })
            .filter(|hierarchy| is_root(&hierarchy.mount))
            .map(|hierarchy| Self::Cpuacct(hierarchy.mount.join("cpuacct.usage_percpu")));
        cpuacct.chain([Self::Schedstat(roots.proc.clone())]).find(|time| fs::metadata(time.file()).is_ok())
    }

    fn file(&self) -> PathBuf {
        match self {
            Self::Cpuacct(file) => file.clone(),
            Self::Schedstat(proc) => proc.join("schedstat"),
        }
    }

    /// The sum over these CPUs; `None` where one has no account, such as an offline CPU in `/proc/schedstat`.
    pub(crate) fn read(&self, cpus: &CpuList) -> Option<AllTasks> {
        let text = fs::read_to_string(self.file()).ok()?;
        let sum = |of_cpu: &dyn Fn(CpuId) -> Option<Nanos>| {
            cpus.iter().try_fold(0, |sum: Nanos, cpu| Some(sum.wrapping_add(of_cpu(cpu)?)))
        };
        match self {
            Self::Cpuacct(_) => {
                let of_cpu = |cpu| text.split_ascii_whitespace().nth(cpu)?.parse().ok();
                Some(AllTasks { time: sum(&of_cpu)?, interrupts: None })
            }
            Self::Schedstat(proc) => {
                let ticks = fs::read_to_string(proc.join("stat")).ok()?;
                let interrupts = |cpu| {
                    let times = CpuTimes::of(&ticks, cpu)?;
                    Nanos::try_from(times.interrupts + times.stolen).ok()
                };
                let interrupts = sum(&interrupts)?.wrapping_mul(USER_TICK);
                Some(AllTasks { time: sum(&|cpu| in_schedstat(&text, cpu))?, interrupts: Some(interrupts) })
            }
        }
    }
}

/// The time that tasks ran is the seventh number of the CPU's line.
fn in_schedstat(text: &str, cpu: CpuId) -> Option<Nanos> {
    line_of(text, cpu)?.split_ascii_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::host::testing;

    const CPUACCT: &str = "sys/fs/cgroup/cpuacct/cpuacct.usage_percpu";
    const ROOT: (&str, &str) = ("sys/fs/cgroup/cpuacct/release_agent", "\n");
    const SCHEDSTAT: &str = "proc/schedstat";
    const CPUS: &str = "version 15\n\
                        timestamp 4294892911\n\
                        cpu0 0 0 0 0 0 0 7000000001 2 3\n\
                        domain0 3 1 2 3 4 5 6 7 8 9\n\
                        cpu1 0 0 0 0 0 0 500 2 3\n\
                        cpu10 0 0 0 0 0 0 60 2 3\n";
    const STAT: (&str, &str) = ("proc/stat", "cpu0 1 0 1 9 0 2 3 4\ncpu1 1 0 1 9 0 0 0 1\ncpu10 1 0 1 9\n");

    fn read(files: &[(&str, &str)], cpus: &str) -> Option<(Nanos, Option<Nanos>)> {
        let dir = testing::tree(&testing::with(testing::VM_V1, files));
        let host = Host::detect(&Roots::below(dir.path())).unwrap();
        host.task_time?.read(&cpus.parse().unwrap()).map(|all| (all.time, all.interrupts))
    }

    #[test]
    fn both_accounts_are_read_for_the_cpus_asked_for() {
        assert_eq!(read(&[(CPUACCT, "10 200 3000 \n"), ROOT], "0,2"), Some((3010, None)));
        for (cpus, time, ticks) in [("1,10", 560, 1), ("0", 7_000_000_001, 9)] {
            assert_eq!(read(&[(SCHEDSTAT, CPUS), STAT], cpus), Some((time, Some(ticks * USER_TICK))));
        }
    }

    #[test]
    fn the_account_of_a_container_is_not_that_of_all_tasks() {
        assert_eq!(read(&[(CPUACCT, "10 20\n")], "0"), None);
        let both = [(CPUACCT, "10 20\n"), (SCHEDSTAT, CPUS), STAT];
        assert_eq!(read(&both, "1").map(|(time, _)| time), Some(500));
    }

    #[test]
    fn a_cpu_without_an_account_or_a_strange_file_is_none() {
        assert_eq!(read(&[(CPUACCT, "10 200\n"), ROOT], "0,2"), None);
        assert_eq!(read(&[(SCHEDSTAT, CPUS), STAT], "2"), None);
        assert_eq!(read(&[(SCHEDSTAT, CPUS)], "0"), None);
        for text in ["", "x", "cpu0 1 2 3", "cpu0 0 0 0 0 0 0 x 2 3"] {
            assert_eq!(read(&[(SCHEDSTAT, text), STAT], "0"), None, "{text}");
            assert_eq!(read(&[(CPUACCT, text), ROOT], "0"), None, "{text}");
        }
    }
}
