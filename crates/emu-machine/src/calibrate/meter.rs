//! The core clock while work is done, taken by the threads that do it.
//!
//! Before and after a sample the CPUs are as busy as the meter makes them, whatever the quota: a governor that lowers the
//! clock at little load is not seen there. Threads that look between two steps of their work are throttled with it, and
//! see the clock that it has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use emu_core::clock;

/// From one look to the next, in microseconds: a look takes some 50, which is 0.2 % of one CPU.
const EVERY_US: u64 = 25_000;

#[derive(Debug)]
pub(super) struct Meter {
    begin: Instant,
    due_us: AtomicU64,
    clocks_hz: Mutex<Vec<f64>>,
}

impl Meter {
    pub(super) fn start() -> Self {
        Self { begin: Instant::now(), due_us: AtomicU64::new(0), clocks_hz: Mutex::new(Vec::new()) }
    }

    pub(super) fn look(&self) {
        let now = self.begin.elapsed().as_micros() as u64;
        let due = self.due_us.load(Ordering::Relaxed);
        // One thread of all that come at once.
        let is_ours = now >= due
            && self
                .due_us
                .compare_exchange(due, now + EVERY_US, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if let Some(hz) = is_ours.then(clock::glance).flatten() {
            self.clocks_hz.lock().unwrap_or_else(PoisonError::into_inner).push(hz);
        }
    }

    /// The mean clock of all looks in Hz: cycles by the time in which the work ran; `None` without a look.
    pub(super) fn mean_hz(self) -> Option<f64> {
        let clocks = self.clocks_hz.into_inner().unwrap_or_else(PoisonError::into_inner);
        (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_taken_when_due_and_their_mean_is_a_clock() {
        let meter = Meter::start();
        (0..100).for_each(|_| meter.look());
        let taken = meter.clocks_hz.lock().unwrap().len();
        assert!((1..100).contains(&taken), "{taken}");
        assert!(meter.mean_hz().is_some_and(|hz| (1e8..1e10).contains(&hz)));
        assert_eq!(Meter::start().mean_hz(), None);
    }
}
