//! What emu takes from the tasks where it has only their one CPU.

use crate::sys::time::{self, Nanos};

/// The account from one hold to the next. What emu does during a hold costs the tasks nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnTime {
    /// CPU time of all threads of emu when the tasks were let go, and then.
    free: Nanos,
}

/// A moment at which the tasks are about to be held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    at: Nanos,
    cpu: Nanos,
}

impl OwnTime {
    /// The tasks run from now on.
    pub(super) fn start() -> Self {
        Self { free: time::process_cpu() }
    }

    /// The tasks are held next.
    pub(super) fn ask(self) -> Asked {
        Asked { cpu: time::process_cpu() - self.free, at: time::now() }
    }

    /// What was taken from the tasks since they were let go last, for a hold that was asked for then, began at
    /// `from`, and has ended at `free`.
    pub(super) fn taken(&mut self, asked: Asked, from: Nanos, free: Nanos) -> Nanos {
        let after = time::now() - free;
        *self = Self::start();
        asked.cpu + (from - asked.at).max(0) + after
    }
}
