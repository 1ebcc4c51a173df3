//! What a thread or a process has used, as the kernel counts it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::cpu_list::CpuId;
use crate::process::{self, Stat};
use crate::sys::Pid;
use crate::sys::time::{self, Nanos, USER_TICK};

/// The clock is read before and after a thread's account. Where more time than this lies between, in nanoseconds, something
/// came between, and it is read again, so often.
const TOGETHER: Nanos = 100_000;
const TRIES: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ThreadTime {
    pub(super) at: Nanos,
    pub(super) run: Nanos,
    pub(super) wait: Nanos,
    pub(super) cpu: CpuId,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProcessTime {
    pub(super) parent: Pid,
    pub(super) starttime: u64,
    pub(super) cpu_time: Nanos,
    /// With that of those of its children that it has waited for.
    pub(super) used: Nanos,
    pub(super) faults_of_children: u64,
    /// Where it ignores SIGCHLD, or has set `SA_NOCLDWAIT`, its children end without a trace, and nobody has what they used
    /// (wait(2)).
    pub(super) reaps: bool,
}

impl ProcessTime {
    /// `cpu_time` is what its threads have used, where that is known to the nanosecond.
    pub(super) fn of(stat: &Stat, cpu_time: Option<Nanos>) -> Self {
        let cpu_time = cpu_time.unwrap_or((stat.used as Nanos) * USER_TICK);
        Self {
            parent: stat.parent,
            starttime: stat.starttime,
            cpu_time,
            used: cpu_time + (stat.used_by_children as Nanos) * USER_TICK,
            faults_of_children: stat.faults_of_children,
            reaps: true,
        }
    }
}

impl ThreadTime {
    /// From `schedstat` (Documentation/scheduler/sched-stats.rst); `None` where the thread has ended or the kernel keeps no
    /// such account. `cpu` is where it runs, if that is known.
    pub(super) fn read(proc: &Path, tid: Pid, cpu: Option<CpuId>) -> Option<Self> {
        let cpu = cpu.or_else(|| Stat::read(proc, tid)?.cpu)?;
        let file = proc.join(tid.to_string()).join("schedstat");
        let mut best: Option<(Nanos, Self)> = None;
        for _ in 0..TRIES {
            let mut text = String::with_capacity(64);
            let before = time::now();
            File::open(&file).ok()?.read_to_string(&mut text).ok()?;
            let after = time::now();
            let (run, wait) = process::times_in_schedstat(&text).filter(|times| *times != (0, 0))?;
            let taken = after - before;
            if best.is_none_or(|(least, _)| taken < least) {
                best = Some((taken, Self { at: before.midpoint(after), run, wait, cpu }));
            }
            if taken <= TOGETHER {
                break;
            }
        }
        best.map(|(_, time)| time)
    }
}
