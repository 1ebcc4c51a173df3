//! Everything `unsafe`: one safe wrapper for each system call or instruction that no crate wraps safely.

pub(crate) mod affinity;
pub(crate) mod chain;
pub(crate) mod fork;
pub(crate) mod refused;
pub(crate) mod sched;
pub(crate) mod shared;
pub(crate) mod signal;
pub(crate) mod spawn;
pub(crate) mod time;
pub(crate) mod timer_prearm;
pub(crate) mod times;
pub(crate) mod tsc;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A process ID.
pub type Pid = i32;

/// For what is valid after any step: a thread that panicked with it does not take it along.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
