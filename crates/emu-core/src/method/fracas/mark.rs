//! A reading of a group's counters.

use crate::cgroup::Throttling;
use crate::sys::time::Nanos;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) at: Nanos,
    /// CPU time used; `None` where it is not accounted.
    pub(crate) usage: Option<Nanos>,
    pub(crate) throttling: Throttling,
}
