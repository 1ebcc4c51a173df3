//! What emu takes from the tasks where it has only their one CPU.

use crate::sys::time::{self, Nanos};

/// Counts what each hold costs the tasks; its methods are called at the steps of a hold, in order. What emu does while
/// the tasks are held costs them nothing.
///
/// A step costs them no more than the CPU time that emu had for it: without real-time priority, emu may lose the CPU in the
/// middle of a step to the very tasks that it lets go.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnTime {
    /// When the last step began, and the CPU time of all threads of emu then.
    at: Nanos,
    cpu: Nanos,
    /// What has been taken from the tasks for this hold.
    taken: Nanos,
}

impl OwnTime {
    /// The tasks run.
    pub(super) fn start() -> Self {
        Self { at: time::now(), cpu: time::process_cpu(), taken: 0 }
    }

    /// The tasks have been running, and are to be held next.
    pub(super) fn before_stop(&mut self) {
        let before = std::mem::replace(self, Self::start());
        self.taken = self.cpu - before.cpu;
    }

    /// They have been held from then on.
    pub(super) fn stopped(&mut self, from: Nanos) {
        self.taken += (from - self.at).clamp(0, time::process_cpu() - self.cpu);
    }

    /// They are to be let go next.
    pub(super) fn before_resume(&mut self) {
        self.cpu = time::process_cpu();
    }

    /// They have been let go then; returns what was taken from them for this hold.
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
        // As if the tasks had sent this thread off the CPU. Other tests have CPU time of the same process meanwhile.
        std::thread::sleep(Duration::from_millis(20));
        let cpu = time::process_cpu() - own_time.cpu;
        assert!(own_time.resumed(free) <= cpu + 1_000_000);
    }
}
