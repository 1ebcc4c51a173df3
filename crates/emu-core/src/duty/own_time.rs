//! The CPU time that emu takes from the tasks in a zone of one CPU, which both share.

use crate::sys::time::{self, Nanos};

/// Counts what emu's own work costs the tasks in each stop. Its methods are called at the steps of a stop, in order. What emu
/// does while the tasks are stopped costs them nothing. A step costs no more than the CPU time that emu used for it: without
/// real-time priority, the tasks may preempt emu in the middle of a step.
///
/// Without it, `cpu-freeze` at 10 % of 20 ms was 2.0 % slower in a quiet guest, and `cpu-lim` 8.2 %.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnTime {
    /// When the last step began, and the CPU time of all threads of emu at that moment.
    at: Nanos,
    cpu: Nanos,
    /// What this stop has cost the tasks so far.
    taken: Nanos,
}

impl OwnTime {
    /// To be called while the tasks run.
    pub(super) fn start() -> Self {
        Self { at: time::now(), cpu: time::process_cpu(), taken: 0 }
    }

    /// The tasks have run until now and are stopped next.
    pub(super) fn before_stop(&mut self) {
        let before = std::mem::replace(self, Self::start());
        self.taken = self.cpu - before.cpu;
    }

    pub(super) fn stopped(&mut self, from: Nanos) {
        self.taken += (from - self.at).clamp(0, time::process_cpu() - self.cpu);
    }

    pub(super) fn before_resume(&mut self) {
        self.cpu = time::process_cpu();
    }

    /// Returns what this stop cost the tasks.
    pub(super) fn resumed(&mut self, resumed: Nanos) -> Nanos {
        let before = std::mem::replace(self, Self::start());
        before.taken + (self.at - resumed).clamp(0, self.cpu - before.cpu)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_without_the_cpu_is_not_taken_from_the_tasks() {
        let mut own_time = OwnTime::start();
        own_time.before_stop();
        own_time.before_resume();
        let free = time::now();
        // As if the tasks had preempted this thread. Other tests use CPU time of this process
        // meanwhile.
        std::thread::sleep(Duration::from_millis(20));
        let cpu = time::process_cpu() - own_time.cpu;
        assert!(own_time.resumed(free) <= cpu + 1_000_000);
    }
}
