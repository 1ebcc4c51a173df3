//! The kernel's limits for real-time tasks (Documentation/scheduler/sched-rt-group.rst, sched-deadline.rst).

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cgroups::Cgroups;
use super::controller::Controller;
use crate::control_file::probe;
use crate::cpu_list::CpuId;
use crate::roots::Roots;

/// The per-CPU deadline server that reserves time for normal tasks beside real-time ones (Linux
/// 6.12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FairServer {
    /// CPU time reserved for normal tasks in each period.
    pub runtime: Duration,
    /// The period.
    pub period: Duration,
}

/// The limits for real-time tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RealTime {
    /// `sched_rt_runtime_us`; `None` when unlimited (-1) or unknown.
    pub runtime: Option<Duration>,
    /// `sched_rt_period_us`.
    pub period: Option<Duration>,
    /// The file `sched_rt_runtime_us`, where present.
    pub runtime_file: Option<PathBuf>,
    /// `cpu.rt_runtime_us` of this process's cgroup, where the kernel divides real-time budgets
    /// among groups (`CONFIG_RT_GROUP_SCHED` on cgroup v1). Zero means that no thread in the group
    /// can be real-time. `None` without such budgets, and for an unlimited group (-1).
    pub group_runtime: Option<Duration>,
    /// `cpu.rt_period_us` of that cgroup. The budget is one for each CPU.
    pub group_period: Option<Duration>,
    /// `/sys/kernel/debug/sched/fair_server/cpuN` of the first online CPU, where it can be read.
    pub fair_server: Option<FairServer>,
    /// `RLIMIT_RTPRIO`: the highest real-time priority without `CAP_SYS_NICE`; 0 is none.
    pub rtprio_limit: u64,
    /// `RLIMIT_RTTIME`: the longest time for which a real-time thread may compute without waiting, after which its process is
    /// sent a signal that ends it. `None` without a limit.
    #[serde(default)]
    pub rttime_limit: Option<Duration>,
}

impl RealTime {
    /// The largest share of a CPU that real-time tasks of this cgroup may use, 1 without a limit: the smaller of what real-time
    /// throttling allows and what the fair server, where it can be read, does not reserve.
    pub fn largest_share(&self) -> f64 {
        self.throttled_share().min(self.unthrottled_share())
    }

    /// What the fair server leaves, where it can be read: it runs also without throttling.
    pub(crate) fn unthrottled_share(&self) -> f64 {
        let kept = self.fair_server.as_ref().and_then(|server| share(server.runtime, server.period));
        1.0 - kept.unwrap_or(0.0)
    }

    /// The smaller of the limit for all and the budget of this cgroup.
    pub(crate) fn throttled_share(&self) -> f64 {
        self.system_share().min(self.group_share())
    }

    /// What the limit for all real-time tasks of a CPU allows; 1 without a limit.
    pub(crate) fn system_share(&self) -> f64 {
        allowed(self.runtime, self.period)
    }

    /// What the budget of this cgroup allows; 1 without a budget. Without a limit for all, the kernel ignores the budgets, too
    /// (`update_curr_rt`, kernel/sched/rt.c).
    pub(crate) fn group_share(&self) -> f64 {
        self.runtime.map_or(1.0, |_| allowed(self.group_runtime, self.group_period))
    }
}

/// 1 where there is no limit, or where it is not completely known.
fn allowed(runtime: Option<Duration>, period: Option<Duration>) -> f64 {
    runtime.zip(period).and_then(|(runtime, period)| share(runtime, period)).unwrap_or(1.0)
}

fn share(runtime: Duration, period: Duration) -> Option<f64> {
    (!period.is_zero()).then(|| (runtime.as_secs_f64() / period.as_secs_f64()).min(1.0))
}

/// `limits` is `/proc/self/limits`.
pub(super) fn read(roots: &Roots, limits: &str, cgroups: &Cgroups, first: Option<CpuId>) -> RealTime {
    let kernel = roots.proc.join("sys/kernel");
    let runtime_file = kernel.join("sched_rt_runtime_us");
    let own_group = cgroups.with(Controller::Cpu).filter(|hierarchy| hierarchy.version == 1);
    RealTime {
        runtime: micros(&runtime_file),
        period: micros(&kernel.join("sched_rt_period_us")),
        group_runtime: own_group.and_then(|group| micros(&group.own.join("cpu.rt_runtime_us"))),
        group_period: own_group.and_then(|group| micros(&group.own.join("cpu.rt_period_us"))),
        fair_server: first.and_then(|cpu| fair_server(roots, cpu)),
        rtprio_limit: rtprio_limit(limits),
        rttime_limit: rttime_limit(limits),
        runtime_file: runtime_file.exists().then_some(runtime_file),
    }
}

/// `None` for -1, which means unlimited.
fn micros(path: &Path) -> Option<Duration> {
    probe(path).map(Duration::from_micros)
}

/// The two files are in nanoseconds (kernel/sched/debug.c).
fn fair_server(roots: &Roots, cpu: CpuId) -> Option<FairServer> {
    let dir = roots.sys.join(format!("kernel/debug/sched/fair_server/cpu{cpu}"));
    Some(FairServer {
        runtime: Duration::from_nanos(probe(&dir.join("runtime"))?),
        period: Duration::from_nanos(probe(&dir.join("period"))?),
    })
}

pub(super) fn cpu_time_limit(limits: &str) -> Option<Duration> {
    soft_limit(limits, "Max cpu time")?.parse().ok().map(Duration::from_secs)
}

fn rttime_limit(limits: &str) -> Option<Duration> {
    soft_limit(limits, "Max realtime timeout")?.parse().ok().map(Duration::from_micros)
}

fn rtprio_limit(limits: &str) -> u64 {
    match soft_limit(limits, "Max realtime priority") {
        Some("unlimited") => u64::MAX,
        Some(number) => number.parse().unwrap_or_default(),
        None => 0,
    }
}

/// The soft limit in the line of this name (`proc_pid_limits(5)`).
fn soft_limit<'a>(limits: &'a str, name: &str) -> Option<&'a str> {
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    values.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{VM_V1, tree, with};
    use super::*;
    use crate::host::Host;

    const SERVER: &str = "sys/kernel/debug/sched/fair_server/cpu0";

    fn real_time(files: &[(&str, &str)]) -> RealTime {
        let dir = tree(&with(VM_V1, files));
        Host::detect(&Roots::below(dir.path())).unwrap().real_time
    }

    #[test]
    fn the_default_limit_leaves_95_percent() {
        // Documentation/scheduler/sched-rt-group.rst: the defaults, and the budget of a group on
        // cgroup v1.
        let limits = real_time(&[]);
        assert_eq!(limits.runtime, Some(Duration::from_millis(950)));
        assert_eq!(limits.period, Some(Duration::from_secs(1)));
        assert_eq!(limits.group_runtime, Some(Duration::from_millis(950)));
        assert!((limits.largest_share() - 0.95).abs() < 1e-9);
        assert!(limits.runtime_file.unwrap().ends_with("proc/sys/kernel/sched_rt_runtime_us"));
    }

    #[test]
    fn a_group_without_budget_differs_from_one_without_limit() {
        let budget = "sys/fs/cgroup/cpu/cpu.rt_runtime_us";
        assert_eq!(real_time(&[(budget, "0\n")]).group_runtime, Some(Duration::ZERO));
        assert_eq!(real_time(&[(budget, "-1\n")]).group_runtime, None);
    }

    #[test]
    fn a_budget_below_the_limit_for_all_counts() {
        let period = ("sys/fs/cgroup/cpu/cpu.rt_period_us", "1000000\n");
        for (runtime, expected) in [("100000\n", 0.1), ("0\n", 0.0), ("960000\n", 0.95), ("-1\n", 0.95)] {
            let limits = real_time(&[("sys/fs/cgroup/cpu/cpu.rt_runtime_us", runtime), period]);
            assert_eq!(limits.group_period, Some(Duration::from_secs(1)));
            assert!((limits.largest_share() - expected).abs() < 1e-9, "{runtime}");
        }
        let unlimited = ("proc/sys/kernel/sched_rt_runtime_us", "-1\n");
        let limits = real_time(&[("sys/fs/cgroup/cpu/cpu.rt_runtime_us", "100000\n"), period, unlimited]);
        assert!((limits.largest_share() - 1.0).abs() < 1e-9, "the kernel ignores budgets then");
    }

    #[test]
    fn without_throttling_only_the_fair_server_limits() {
        let unlimited = ("proc/sys/kernel/sched_rt_runtime_us", "-1\n");
        let limits = real_time(&[unlimited]);
        assert_eq!(limits.runtime, None);
        assert!((limits.largest_share() - 1.0).abs() < 1e-9);

        // kernel/sched/deadline.c, the server's defaults: 50 ms in each second.
        let (runtime, period) = (format!("{SERVER}/runtime"), format!("{SERVER}/period"));
        let limits = real_time(&[unlimited, (&runtime, "50000000\n"), (&period, "1000000000\n")]);
        let server = FairServer { runtime: Duration::from_millis(50), period: Duration::from_secs(1) };
        assert_eq!(limits.fair_server, Some(server));
        assert!((limits.largest_share() - 0.95).abs() < 1e-9);
    }

    #[test]
    fn a_period_of_zero_does_not_divide() {
        let (runtime, period) = (format!("{SERVER}/runtime"), format!("{SERVER}/period"));
        let zero = ("proc/sys/kernel/sched_rt_period_us", "0\n");
        let share = real_time(&[zero, (&runtime, "0\n"), (&period, "0\n")]).largest_share();
        assert!((share - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_time_limit_is_the_soft_one() {
        for (line, limit) in [
            ("Max realtime timeout      200000               400000               us\n", Some(200)),
            ("Max realtime timeout      unlimited            unlimited            us\n", None),
            ("Max realtime priority     10                   99                   \n", None),
        ] {
            assert_eq!(rttime_limit(line), limit.map(Duration::from_millis), "{line}");
        }
        let line = "Max cpu time              60                   unlimited            seconds   \n";
        assert_eq!(cpu_time_limit(line), Some(Duration::from_secs(60)));
        assert_eq!(cpu_time_limit(&line.replace("60 ", "unlimited ")), None);
    }

    #[test]
    fn the_priority_limit_is_the_soft_one() {
        // proc_pid_limits(5).
        let header = "Limit                     Soft Limit           Hard Limit           Units\n";
        for (line, limit) in [
            ("Max realtime priority     10                   99                   \n", 10),
            ("Max realtime priority     unlimited            unlimited            \n", u64::MAX),
            ("Max realtime priority     junk\n", 0),
            ("Max realtime timeout      7                    7                    us\n", 0),
        ] {
            assert_eq!(rtprio_limit(&format!("{header}{line}")), limit, "{line}");
        }
    }
}
