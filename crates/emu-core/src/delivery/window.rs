//! What the tasks of a zone had between two readings.

use crate::cpu_list::{CpuId, CpuList};
use crate::sys::Pid;
use crate::sys::time::Nanos;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TaskWindow {
    pub(super) tid: Pid,
    /// At the begin and at the end of the window.
    pub(super) cpus: (CpuId, CpuId),
    /// How long the task was watched, ran, and waited on a run queue.
    pub(super) wall: Nanos,
    pub(super) run: Nanos,
    pub(super) wait: Nanos,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Window {
    pub(super) length: Nanos,
    pub(super) tasks: Vec<TaskWindow>,
    /// Whether these are all threads.
    pub(super) is_whole: bool,
    /// CPU time of all processes, those that have ended included, by the kernel's ticks; `None` where it is not known.
    pub(super) used: Option<Nanos>,
    /// CPUs that no busy task may use, as the program has bound them all to others.
    pub(super) out_of_reach: CpuList,
}

impl Window {
    /// CPU time of the threads that were there at both looks.
    pub(super) fn seen(&self) -> Nanos {
        self.tasks.iter().map(|task| task.run).sum()
    }

    /// Whether most was used by threads that began or ended in it.
    pub(super) fn is_of_passers(&self) -> bool {
        self.is_whole && self.used.is_some_and(|used| self.seen() < used / 2)
    }

    /// CPU time of all tasks; `None` where it is not known.
    pub(super) fn run(&self) -> Option<Nanos> {
        if self.is_whole { Some(self.seen().max(self.used.unwrap_or(0))) } else { self.used }
    }
}
