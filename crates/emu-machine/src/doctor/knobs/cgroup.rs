//! What the cgroups that this process is in may use.

use std::path::Path;

use emu_bench::numbers::rounded_size;
use emu_core::control_file::{probe, probe_cpus};
use emu_core::{Controller, CpuList, Hierarchy, Host, QuotaLimit};

use crate::doctor::{Finding, Knob, Machine, Takes};

/// From so many bytes on a limit is none: version 1 has no word for that, and holds the largest number of whole pages.
const UNLIMITED: u64 = 1 << 62;

pub(in crate::doctor) static CGROUP: Knob = Knob {
    name: "cgroup",
    better: "no quota on the CPU time of the group that runs are in, nor above it; more memory and tasks than \
             they need",
    why: "a quota stops all tasks of the group for the rest of each period (100 ms by default) once it is used \
          up: the same work takes longer when it happens to be spread over more threads. Above memory.high \
          tasks are slowed down until memory is given back; at memory.max they wait for that, and are killed \
          where there is none; beyond pids.max no task can be started",
    source: "Linux Documentation/scheduler/sched-bwc.rst, admin-guide/cgroup-v2.rst (cpu.max, memory.high, \
             memory.max, pids.max, cpuset.cpus.effective), admin-guide/cgroup-v1/memory.rst, pids.rst, cpusets.rst",
    takes: Takes::Hand,
    look,
};

fn look(machine: &Machine) -> Finding {
    let host = &machine.host;
    let cpu = host.cgroups.with(Controller::Cpu);
    let (quota, memory) = (cpu.and_then(quota), memory(host));
    let first = match (&quota, cpu) {
        (Some(quota), _) => quota.found.clone(),
        (None, Some(_)) => "no quota".to_owned(),
        (None, None) => "no cgroup with CPU control can be seen; an outer one may hold a limit".to_owned(),
    };
    let others = memory.iter().map(|limit| limit.found.clone()).chain(tasks(host)).chain(cpuset(host));
    let found = std::iter::once(first).chain(others).collect::<Vec<_>>().join("; ");
    let hints: Vec<_> = quota.iter().chain(&memory).map(|limit| limit.hint.as_str()).collect();
    let hint = hints.join("; ");
    if quota.is_some() {
        Finding::hand(found, hint)
    } else if !memory.is_empty() {
        Finding::advice(found, hint)
    } else if cpu.is_some() {
        Finding::ready(found)
    } else {
        Finding::unseen(found)
    }
}

struct Limit {
    found: String,
    hint: String,
}

impl Limit {
    fn new(found: String, what: &str, group: &Path) -> Self {
        let hint = format!("{what} is that of {}: raise it there, or start runs elsewhere", group.display());
        Self { found, hint }
    }
}

fn quota(hierarchy: &Hierarchy) -> Option<Limit> {
    let QuotaLimit { cpus, group, throttled } = QuotaLimit::tightest(hierarchy)?;
    let throttled = throttled.map_or(String::new(), |times| format!(", used up {times} times"));
    Some(Limit::new(format!("{cpus} CPUs{throttled}"), "the quota", &group))
}

fn memory(host: &Host) -> Vec<Limit> {
    let Some(hierarchy) = host.cgroups.with(Controller::Memory) else { return Vec::new() };
    let files: &[&str] = match hierarchy.version {
        2 => &["memory.high", "memory.max"],
        _ => &["memory.limit_in_bytes"],
    };
    let limit = |file: &&str| {
        let (bytes, group) = hierarchy.least(file).filter(|(bytes, _)| *bytes < UNLIMITED)?;
        Some(Limit::new(format!("{file} {}", rounded_size(bytes)), file, group))
    };
    files.iter().filter_map(limit).collect()
}

fn tasks(host: &Host) -> Option<String> {
    let (most, group) = host.cgroups.with(Controller::Pids)?.least("pids.max")?;
    let now = probe::<u64>(&group.join("pids.current"));
    Some(now.map_or_else(|| format!("at most {most} tasks"), |now| format!("{now} of at most {most} tasks")))
}

/// The CPUs that may be used, where these are not all, and by whose doing as far as that can be seen.
fn cpuset(host: &Host) -> Option<String> {
    let online = host.online();
    if host.allowed == online {
        return None;
    }
    let set = host.cgroups.with(Controller::Cpuset).and_then(cpus).map(|cpus| cpus.intersection(&online));
    let by = match set {
        Some(set) if set != online => format!(" (cpuset {set})"),
        Some(_) => " (affinity)".to_owned(),
        None => String::new(),
    };
    Some(format!("CPUs {} of {online}{by}", host.allowed))
}

/// The CPUs that the cpuset of our group leaves, or that of the nearest above it that has one.
fn cpus(hierarchy: &Hierarchy) -> Option<CpuList> {
    let name = if hierarchy.version == 2 { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
    hierarchy.lineage().find_map(|group| probe_cpus(&group.join(name)))
}

#[cfg(test)]
mod tests {
    use crate::doctor::finding::State;
    use crate::doctor::tests::trees::{VM_V1, with};
    use crate::doctor::tests::{bare, found, machine, owned, seen};

    /// Our group in another with limits, on version 2.
    const NESTED: &[(&str, &str)] = &[
        ("proc/self/cgroup", "0::/user.slice/run.scope\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory pids\n"),
        ("sys/fs/cgroup/user.slice/memory.high", "max\n"),
        ("sys/fs/cgroup/user.slice/memory.max", "536870912\n"),
        ("sys/fs/cgroup/user.slice/pids.max", "100\n"),
        ("sys/fs/cgroup/user.slice/pids.current", "7\n"),
        ("sys/fs/cgroup/user.slice/run.scope/cgroup.procs", ""),
        ("sys/fs/cgroup/user.slice/run.scope/memory.high", "268435456\n"),
        ("sys/fs/cgroup/user.slice/run.scope/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/user.slice/run.scope/pids.max", "max\n"),
    ];

    /// [`VM_V1`] in groups of memory and tasks with these limits.
    fn version_1(memory: &str, above: &str, tasks: &str) -> Vec<(String, String)> {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        let changes = [
            ("proc/self/cgroup", "8:pids:/a\n4:memory:/a/b\n1:cpu:/\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/memory/a/b/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", memory),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", above),
            ("sys/fs/cgroup/pids/a/cgroup.procs", ""),
            ("sys/fs/cgroup/pids/a/pids.max", tasks),
        ];
        owned(&with(VM_V1, &changes))
    }

    #[test]
    fn the_tightest_limits_of_memory_and_tasks_name_their_groups() {
        let expected = "no quota; memory.high 256 MiB; memory.max 512 MiB; 7 of at most 100 tasks";
        assert_eq!(seen(&bare(NESTED), "cgroup"), (State::Advice, expected.into()));
        let (_dir, machine) = machine(&bare(NESTED));
        let hint = found(&machine, "cgroup").hint.unwrap();
        let parts =
            ["memory.high is that of ", "run.scope: raise", "; memory.max is that of ", "user.slice: raise"];
        for part in parts {
            assert!(hint.contains(part), "{part} in {hint}");
        }
    }

    #[test]
    fn a_quota_disturbs_and_stands_before_other_limits() {
        let quota = [("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n")];
        let expected = "1.5 CPUs; memory.high 256 MiB; memory.max 512 MiB; 7 of at most 100 tasks";
        assert_eq!(seen(&bare(&with(NESTED, &quota)), "cgroup"), (State::Hand, expected.into()));
    }

    #[test]
    fn version_1_writes_no_limit_of_memory_as_a_large_number() {
        let none = "9223372036854771712\n";
        for (memory, above, tasks, state, expected) in [
            (none, none, "max\n", State::Ready, "no quota"),
            (none, "1073741824\n", "max\n", State::Advice, "no quota; memory.limit_in_bytes 1 GiB"),
            ("4194304\n", "1073741824\n", "max\n", State::Advice, "no quota; memory.limit_in_bytes 4 MiB"),
            (none, none, "4096\n", State::Ready, "no quota; at most 4096 tasks"),
        ] {
            assert_eq!(seen(&version_1(memory, above, tasks), "cgroup"), (state, expected.into()));
        }
    }

    #[test]
    fn without_cpu_control_the_other_limits_are_told_all_the_same() {
        let unseen = "no cgroup with CPU control can be seen; an outer one may hold a limit";
        let controllers = [
            ("sys/fs/cgroup/cgroup.controllers", "memory pids\n"),
            ("sys/fs/cgroup/user.slice/cgroup.controllers", "memory pids\n"),
        ];
        let files = bare(&with(NESTED, &controllers));
        let expected = format!("{unseen}; memory.high 256 MiB; memory.max 512 MiB; 7 of at most 100 tasks");
        assert_eq!(seen(&files, "cgroup"), (State::Advice, expected));
        let tasks = with(&controllers, &[("sys/fs/cgroup/user.slice/pids.max", "100\n")]);
        assert_eq!(seen(&bare(&tasks), "cgroup"), (State::Unseen, format!("{unseen}; at most 100 tasks")));
    }

    #[test]
    fn a_cpuset_is_told_from_an_affinity() {
        let status = ("proc/self/status", "Uid:\t0\t0\t0\t0\nCpus_allowed_list:\t1\n");
        for (file, cpus, expected) in [
            ("sys/fs/cgroup/user.slice/cpuset.cpus.effective", "1\n", "no quota; CPUs 1 of 0-1 (cpuset 1)"),
            ("sys/fs/cgroup/cpuset.cpus.effective", "0-1\n", "no quota; CPUs 1 of 0-1 (affinity)"),
            ("sys/fs/cgroup/cpuset.cpus.effective", "junk\n", "no quota; CPUs 1 of 0-1"),
        ] {
            assert_eq!(seen(&bare(&[status, (file, cpus)]), "cgroup"), (State::Ready, expected.into()));
        }
        let version_1 = [
            status,
            ("proc/self/cgroup", "3:cpuset:/\n1:cpu:/\n"),
            ("sys/fs/cgroup/cpuset/cpuset.effective_cpus", "1\n"),
        ];
        let expected = "no quota; CPUs 1 of 0-1 (cpuset 1)";
        assert_eq!(seen(&owned(&with(VM_V1, &version_1)), "cgroup"), (State::Ready, expected.into()));
    }
}
