//! The interface between the duty loop and a method that stops and resumes tasks.

use crate::error::Result;
use crate::sys::Pid;
use crate::sys::time::Nanos;

/// A way of stopping all tasks of a zone at once. Dropping it resumes them.
pub(crate) trait Stop: Send + 'static {
    /// May check until `deadline` that all tasks have stopped.
    fn stop(&mut self, deadline: Nanos) -> Result<Stopped>;

    /// Resumes the sleeping tasks ahead of the others, where the method can: they go back to sleep at no one's cost while the
    /// other tasks are stopped. Returns their part of all tasks.
    fn resume_sleepers(&mut self) -> f64 {
        0.0
    }

    /// Returns the moment from which the tasks ran. After an error, some may still be stopped.
    fn resume(&mut self) -> Result<Nanos>;

    /// Resumes every task for good, and records that in the journal where the stop is recorded there.
    fn release(&mut self) -> Result<()> {
        Ok(())
    }

    /// Whether another program has stopped the tasks. Only it may resume them, so the period is skipped.
    fn is_stopped_by_others(&mut self) -> bool {
        false
    }

    /// CPU time that tasks used during the last stop because they were stopped late.
    fn overrun(&self) -> Nanos {
        0
    }

    /// Tells which tasks of the last census are busy; called while the tasks are stopped.
    fn set_busy(&mut self, _busy: &[Pid]) {}

    /// The number of tasks (threads) and a sample of them, a different one for each `turn`.
    fn census(&mut self, turn: usize) -> Census;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// No task ran from this moment on.
    pub(crate) from: Nanos,
    pub(crate) is_confirmed: bool,
}

/// The largest number of tasks whose CPU time is read in each period.
pub(super) const SAMPLE_MAX: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) count: usize,
    pub(super) sample: Vec<Pid>,
}

impl Census {
    /// Each `turn` takes a different sample of those `listed`.
    pub(crate) fn of(count: usize, listed: &[Pid], turn: usize) -> Self {
        let step = listed.len().div_ceil(SAMPLE_MAX).max(1);
        Self { count, sample: listed.iter().copied().skip(turn % step).step_by(step).collect() }
    }

    pub(crate) fn map(self, another: impl FnMut(Pid) -> Pid) -> Self {
        Self { sample: self.sample.into_iter().map(another).collect(), ..self }
    }
}
