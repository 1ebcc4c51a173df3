//! How much CPU time tasks have had on some CPUs, whoever's they are.

use std::fs;
use std::path::PathBuf;

use super::{Controller, Host};
use crate::sys::time::Nanos;
use crate::{CpuId, CpuList};

/// Reads the CPU time of all tasks on some CPUs, to the nanosecond: `/proc/stat` counts ticks.
///
/// The kernel brings it up to date when a task leaves its CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskTime {
    source: Source,
    cpus: CpuList,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// `cpuacct.usage_percpu` of the topmost group that is shown (`Documentation/admin-guide/cgroup-v1/cpuacct.rst`).
    Cpuacct(PathBuf),
    /// `/proc/schedstat` (`Documentation/scheduler/sched-stats.rst`), on kernels with `CONFIG_SCHEDSTATS`.
    Schedstat(PathBuf),
}

impl TaskTime {
    /// Of `cpus`; `None` where the kernel tells it nowhere.
    pub(crate) fn of(host: &Host, cpus: &CpuList) -> Option<Self> {
        let cpuacct = host
            .cgroups
            .hierarchies
            .iter()
            .filter(|hierarchy| {
                hierarchy.version == 1 && hierarchy.controllers.contains(&Controller::Cpuacct)
            })
            .map(|hierarchy| Source::Cpuacct(hierarchy.mount.join("cpuacct.usage_percpu")));
        let schedstat = Source::Schedstat(host.roots.proc.join("schedstat"));
        cpuacct
            .chain([schedstat])
            .map(|source| Self { source, cpus: cpus.clone() })
            .find(|time| time.read().is_some())
    }

    /// Nanoseconds on all of them since some moment of this boot; `None` where a CPU has no account.
    pub(crate) fn read(&self) -> Option<Nanos> {
        let (Source::Cpuacct(file) | Source::Schedstat(file)) = &self.source;
        let text = fs::read_to_string(file).ok()?;
        let of_cpu = |cpu| match self.source {
            Source::Cpuacct(_) => text.split_ascii_whitespace().nth(cpu)?.parse().ok(),
            Source::Schedstat(_) => in_schedstat(&text, cpu),
        };
        self.cpus.iter().map(of_cpu).sum()
    }

    /// Whether interrupts, and what a hypervisor took, are counted as time of the task that they struck, also by a
    /// kernel that leaves them out of its other accounts.
    pub(crate) fn has_interrupts(&self) -> bool {
        matches!(self.source, Source::Schedstat(_))
    }
}

/// The seventh number of a CPU's line: time spent running by tasks.
fn in_schedstat(text: &str, cpu: CpuId) -> Option<Nanos> {
    let name = format!("cpu{cpu} ");
    let line = text.lines().find_map(|line| line.strip_prefix(name.as_str()))?;
    line.split_ascii_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roots;
    use crate::host::testing;

    const CPUACCT: &str = "sys/fs/cgroup/cpuacct/cpuacct.usage_percpu";
    const SCHEDSTAT: &str = "proc/schedstat";
    const CPUS: &str = "version 15\n\
                             timestamp 4294892911\n\
                             cpu0 0 0 0 0 0 0 7000000001 2 3\n\
                             domain0 3 1 2 3 4 5 6 7 8 9\n\
                             cpu1 0 0 0 0 0 0 500 2 3\n\
                             cpu10 0 0 0 0 0 0 60 2 3\n";

    fn time_of(file: &str, text: &str, cpus: &str) -> Option<Nanos> {
        let dir = testing::tree(&testing::with(testing::VM_V1, &[(file, text)]));
        let host = Host::detect(&Roots::below(dir.path())).unwrap();
        TaskTime::of(&host, &cpus.parse().unwrap())?.read()
    }

    #[test]
    fn both_accounts_are_read_for_the_cpus_asked_for() {
        assert_eq!(time_of(CPUACCT, "10 200 3000 \n", "0,2"), Some(3010));
        assert_eq!(time_of(SCHEDSTAT, CPUS, "1,10"), Some(560));
        assert_eq!(time_of(SCHEDSTAT, CPUS, "0"), Some(7_000_000_001));
    }

    #[test]
    fn a_cpu_without_an_account_or_a_strange_file_is_none() {
        assert_eq!(time_of(CPUACCT, "10 200\n", "0,2"), None);
        assert_eq!(time_of(SCHEDSTAT, CPUS, "2"), None);
        for text in ["", "x", "cpu0 1 2 3", "cpu0 0 0 0 0 0 0 x 2 3"] {
            assert_eq!(time_of(SCHEDSTAT, text, "0"), None, "{text}");
            assert_eq!(time_of(CPUACCT, text, "0"), None, "{text}");
        }
    }
}
