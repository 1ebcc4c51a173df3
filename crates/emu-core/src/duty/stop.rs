//! What a way of holding tasks has to be able to do.

use crate::error::Result;
use crate::sys::Pid;
use crate::sys::time::Nanos;

/// A way of holding all tasks of a zone at once. Dropping it lets them go.
pub(crate) trait Stop: Send + 'static {
    /// Holds every task; may go on looking whether all are held until `deadline`.
    ///
    /// # Errors
    /// The tasks cannot be held (any more).
    fn stop(&mut self, deadline: Nanos) -> Result<Stopped>;

    /// Lets those tasks go that only go on sleeping, where that is possible: their way out of the hold is at nobody's
    /// cost while the others are held still. Returns which part of all tasks that were.
    fn resume_sleepers(&mut self) -> f64 {
        0.0
    }

    /// Lets every task go; returns from when on they ran.
    ///
    /// # Errors
    /// Some may still be held.
    fn resume(&mut self) -> Result<Nanos>;

    /// Lets every task go for good; a way of holding that the journal knows of has it know that, too.
    ///
    /// # Errors
    /// It cannot be recorded.
    fn release(&mut self) -> Result<()> {
        Ok(())
    }

    /// Whether somebody else holds the tasks, who is to let them go himself: the period is skipped then.
    fn is_stopped_by_others(&mut self) -> bool {
        false
    }

    /// CPU time that tasks had in the last hold because they came to be held late.
    fn overrun(&self) -> Nanos {
        0
    }

    /// Takes in which of the tasks that the last census has named are busy; called while the tasks are held.
    fn set_busy(&mut self, _busy: &[Pid]) {}

    /// How many tasks, that is threads, there are, and which are some of them: others in each `turn`.
    fn census(&mut self, turn: usize) -> Census;
}

/// A hold that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// From when on no task ran.
    pub(crate) from: Nanos,
    /// Whether the kernel has confirmed that all are held.
    pub(crate) is_confirmed: bool,
}

/// Of so many tasks the CPU time is read, at most.
pub(super) const SAMPLE_MAX: usize = 16;

/// The tasks of a zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// How many there are, that is threads.
    pub(crate) count: usize,
    /// Some of them.
    pub(super) sample: Vec<Pid>,
}

impl Census {
    /// Of that many tasks, among them these; of many of these, others in each `turn`.
    pub(crate) fn of(count: usize, listed: &[Pid], turn: usize) -> Self {
        let step = listed.len().div_ceil(SAMPLE_MAX).max(1);
        Self { count, sample: listed.iter().copied().skip(turn % step).step_by(step).collect() }
    }

    /// The same with another one for each that is looked at.
    pub(crate) fn map(self, another: impl FnMut(Pid) -> Pid) -> Self {
        Self { sample: self.sample.into_iter().map(another).collect(), ..self }
    }
}
