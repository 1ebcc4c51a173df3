//! A reading of a group's counters.

use crate::cgroup::Throttling;
use crate::sys::time::Nanos;

/// A reading of a group's counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// When.
    pub(crate) at: Nanos,
    /// CPU time used; `None` where it is not accounted.
    pub(crate) usage: Option<Nanos>,
    /// Periods.
    pub(crate) throttling: Throttling,
}
