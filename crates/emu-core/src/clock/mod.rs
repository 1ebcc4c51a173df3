//! The real core clock without performance counters, and the clock that a program perceives.
//!
//! A short and a long chain of dependent additions are timed in turn. The difference of their times is a known number of core
//! cycles; the loop around them, the call and the clock reads are the same in both and cancel. Idea: `mhz.c` of lmbench (L.
//! `McVoy`, C. Staelin, 1996) and W. Tarreau's `mhz`.

mod delivered;
mod glance;
mod reading;

pub use delivered::{Delivered, delivered};
pub use glance::glance;
pub use reading::{BUDGET, ClockReading, mean, measure, measure_all};

use crate::sys::{chain, time};

/// Rounds of one timed chain: the long one takes 25 000 cycles, some 7 µs at 3.6 GHz. Long enough for the 20 ns of a clock read
/// to vanish, short enough that few are hit by an interrupt.
const ROUNDS: u32 = 100;

/// Cycles by which the long chain of [`ROUNDS`] rounds is longer than the short one.
pub(crate) const PAIR_CYCLES: u64 = chain::DIFFERENCE * ROUNDS as u64;

/// In nanoseconds: the short chain, then the long one.
pub(crate) fn timed_pair() -> (i64, i64) {
    let begin = time::now();
    chain::short(ROUNDS);
    let middle = time::now();
    chain::long(ROUNDS);
    let end = time::now();
    (middle - begin, end - middle)
}
