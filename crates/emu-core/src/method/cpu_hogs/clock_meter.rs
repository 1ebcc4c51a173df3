//! The burner as a frequency meter: part of a burn is spent on a chain of instructions whose length in cycles is known.

use crate::clock;
use crate::speed::Target;
use crate::sys::time::{self, Nanos};

/// The clock is measured in burns at least this long, and this often.
pub(super) const BURN: Nanos = 60_000;
pub(super) const EVERY: Nanos = 5_000_000;
/// So long after that, a target in hertz has it measured whatever is to be burned: at nearly full speed that is little.
pub(super) const LATE: Nanos = 1_000_000_000;
/// Readings over which the clock's median is taken. An interrupt spoils one, a CPU that the hypervisor has given to others
/// several in a row: with fewer, the clock is not sure.
pub(super) const READINGS: usize = 9;
/// Nor is it where it is further than this part from the reference that the target was made with.
const OFF: f64 = 0.3;

#[derive(Debug, Default)]
pub(super) struct ClockMeter {
    /// The latest readings, in hertz.
    readings: [f64; READINGS],
    taken: usize,
    pub(super) next: Nanos,
}

impl ClockMeter {
    pub(super) fn is_due(&self, target: Target, now: Nanos, burn: Nanos) -> bool {
        let patience = if self.sure(target).is_some() { LATE } else { 0 };
        let is_late = target.clock.is_some() && now >= self.next + patience;
        is_late || burn > BURN && now >= self.next
    }

    /// The median of the readings, once there are enough.
    pub(super) fn read(&mut self) -> Option<f64> {
        let (short, long) = clock::timed_pair();
        self.add(clock::PAIR_CYCLES as f64 * 1e9 / (long - short).max(1) as f64);
        self.next = time::now() + EVERY;
        self.median()
    }

    pub(super) fn add(&mut self, clock: f64) {
        if let Some(slot) = self.readings.get_mut(self.taken % READINGS) {
            *slot = clock;
            self.taken += 1;
        }
    }

    /// The share that tasks are to have now: for a target in hertz it follows the clock, once that is sure.
    pub(super) fn share(&self, target: Target) -> f64 {
        match (target.clock, self.sure(target)) {
            (Some(wanted), Some(clock)) => (wanted.as_f64() / clock).min(1.0),
            _ => target.share,
        }
    }

    /// The clock, where it agrees with the reference.
    pub(super) fn sure(&self, target: Target) -> Option<f64> {
        let reference = target.clock?.as_f64() / target.share;
        let clock = self.median()?;
        ((clock / reference - 1.0).abs() <= OFF).then_some(clock)
    }

    fn median(&self) -> Option<f64> {
        let mut readings = self.readings;
        readings.sort_by(f64::total_cmp);
        readings.get(READINGS / 2).copied().filter(|_| self.taken >= READINGS)
    }
}
