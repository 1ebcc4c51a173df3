//! Why a zone gets something else than what was asked for, as far as the kernel shows it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::reading::{Watch, name};
use super::window::Window;
use crate::cgroup::{Folder, place, tightest_of};
use crate::control_file;
use crate::cpu_list::{CpuId, CpuList};
use crate::host::{CpuTimes, Host};
use crate::process::{KernelPolicy, Stat, status_field};
use crate::roots::Roots;
use crate::sys::Pid;
use crate::sys::affinity;

type Shares = BTreeMap<CpuId, f64>;

/// Why tasks are too fast: what lets the one that used the most escape, or `by_quota` a scheduler that need not know quotas.
pub(super) fn of_excess(
    roots: &Roots,
    watch: &Watch,
    window: &Window,
    shares: &Shares,
    by_quota: bool,
) -> Option<String> {
    let mut tasks: Vec<_> = window.tasks.iter().collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(task.run));
    let outside = |tid| watch.thread_outside(tid);
    let escaped =
        tasks.iter().take(4).find_map(|task| escape(&roots.proc, task.tid, task.cpus.1, shares, outside));
    // Documentation/scheduler/sched-ext.rst
    let state = roots.sys.join("kernel/sched_ext/state");
    let is_replaced = || by_quota && control_file::probe::<String>(&state).as_deref() == Some("enabled");
    escaped.or_else(|| {
        is_replaced().then(|| "a scheduler of sched_ext is at work, which may not know quotas".to_owned())
    })
}

fn escape(
    proc: &Path,
    tid: Pid,
    cpu: CpuId,
    shares: &Shares,
    outside: impl Fn(Pid) -> Option<PathBuf>,
) -> Option<String> {
    let stat = Stat::read(proc, tid)?;
    let task = format!("task {tid} ({})", name(proc, tid));
    match stat.policy.and_then(KernelPolicy::of) {
        Some(KernelPolicy::RealTime) => {
            return Some(format!("{task} has real-time priority, and goes before what slows it"));
        }
        Some(KernelPolicy::Deadline) => {
            return Some(format!("{task} runs by deadlines, and goes before what slows it"));
        }
        _ => {}
    }
    if let Some(tracer) = tracer(proc, tid) {
        return Some(format!("{task} is traced by process {tracer}, which continues what is stopped"));
    }
    if let Some(group) = outside(tid) {
        return Some(format!("{task} is in the cgroup {}, and in none of the zone's there", group.display()));
    }
    if !shares.contains_key(&cpu) {
        return Some(format!("{task} runs on CPU {cpu}, outside the zone"));
    }
    let allowed = affinity::get(tid).ok()?;
    let zone: CpuList = shares.keys().copied().collect();
    let outside = allowed.difference(&zone);
    (!outside.is_empty()).then(|| format!("{task} may run on CPUs {outside}, outside the zone"))
}

fn tracer(proc: &Path, tid: Pid) -> Option<String> {
    status_field(proc, tid, "TracerPid").filter(|tracer| tracer != "0")
}

/// What keeps the busiest task from its speed: a quota of others that is tighter, or a tracer.
pub(super) fn of_limit(host: &Host, watch: &Watch, window: &Window, shares: &Shares) -> Option<String> {
    let busiest = window.tasks.iter().max_by_key(|task| task.run + task.wait)?.tid;
    let asked: f64 = shares.values().sum();
    let quota = host.cgroups.hierarchies.iter().find_map(|hierarchy| {
        let path = place::home(&host.roots.proc, busiest, hierarchy)?;
        let folder = Folder { version: hierarchy.version, path };
        // Also one of the program's own, below emu's group.
        let is_others = |group: &Path| !watch.is_set_by_emu(hierarchy, group);
        tightest_of(&folder, &hierarchy.mount, is_others).filter(|(cpus, _)| *cpus < asked)
    });
    if let Some((cpus, group)) = quota {
        let (percent, group) = (100.0 * cpus, group.display());
        return Some(format!("the cgroup {group} has a quota of {percent:.0} % of a CPU"));
    }
    let tracer = tracer(&host.roots.proc, busiest)?;
    let name = name(&host.roots.proc, busiest);
    Some(format!("task {busiest} ({name}) is traced by process {tracer}, which stops it"))
}

/// What else the CPUs' time went to. `burned` is the part of it that emu burns. Where emu `stops` the tasks, others may have the
/// rest of the time, and take only what tasks wait for.
pub(super) fn of_load(
    window: &Window,
    [before, after]: [&BTreeMap<CpuId, CpuTimes>; 2],
    shares: &Shares,
    burned: f64,
    stops: bool,
) -> Option<String> {
    let spent = |of: fn(&CpuTimes) -> u64| {
        let (mut all, mut part) = (0, 0);
        for cpu in shares.keys() {
            let (from, to) = (before.get(cpu)?, after.get(cpu)?);
            let span = to.since(*from);
            (all, part) = (all + span.all, part + of(&span));
        }
        (all > 0).then(|| part as f64 / all as f64)
    };
    let stolen = spent(|span| span.stolen)?;
    if stolen > NOTICED {
        return Some(format!("the hypervisor gave {:.0} % of the CPUs' time to others", 100.0 * stolen));
    }
    let own = window.run()? as f64 / (window.length as f64 * shares.len() as f64);
    let mut others = spent(|span| span.all - span.idle - span.stolen)? - own - burned;
    if stops {
        let waited = window.tasks.iter().map(|task| task.wait as f64 / task.wall as f64);
        others = others.min(waited.fold(0.0, f64::max));
    }
    (others > NOTICED).then(|| format!("other programs took {:.0} % of the CPUs' time", 100.0 * others))
}

/// From this part of the CPUs' time on, something is a reason.
const NOTICED: f64 = 0.05;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn proc(tid: Pid, stat: &str, status: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(tid.to_string());
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in [("stat", stat), ("status", status), ("comm", "busy\n")] {
            fs::write(folder.join(file), text).unwrap();
        }
        dir
    }

    fn stat(policy: u32) -> String {
        format!("7 (busy) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 {} 0 0 {policy} 0", ["0"; 16].join(" "))
    }

    #[test]
    fn what_a_task_escapes_by_is_named() {
        let tid = std::process::id() as Pid;
        let allowed = affinity::get(0).unwrap();
        let cpu = allowed.first().unwrap();
        let zone: Shares = allowed.iter().map(|cpu| (cpu, 0.4)).collect();
        let none = "Name:\tbusy\nTracerPid:\t0\n";
        for (stat, status, group, cpu, said) in [
            (stat(1), none, None, cpu, "real-time priority"),
            (stat(6), none, None, cpu, "by deadlines"),
            (stat(0), "TracerPid:\t12\n", None, cpu, "traced by process 12"),
            (stat(0), none, None, 9999, "runs on CPU 9999, outside"),
            (stat(0), none, Some("/user"), cpu, "in the cgroup /user,"),
        ] {
            let proc = proc(tid, &stat, status);
            let reason = escape(proc.path(), tid, cpu, &zone, |_| group.map(Into::into)).unwrap();
            assert!(reason.contains(said) && reason.contains("(busy)"), "{reason}");
        }
        let proc = proc(tid, &stat(0), none);
        assert_eq!(escape(proc.path(), tid, cpu, &zone, |_| None), None);
        let one: Shares = [(9999, 0.4)].into();
        assert!(escape(proc.path(), tid, 9999, &one, |_| None).unwrap().contains("outside the zone"));
    }
}
