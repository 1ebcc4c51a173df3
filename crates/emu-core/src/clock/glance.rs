//! The core clock at a moment, taken by the thread whose work it drives.

use super::{PAIR_CYCLES, timed_pair};

/// Timings of a glance: enough for one of each chain that nothing has interrupted.
const PAIRS: usize = 4;

/// The core clock in Hz of the CPU on which the calling thread is, now; `None` where all timings were interrupted. Takes
/// some 150 000 cycles.
///
/// Called between two steps of some work it tells the clock that the work has, whatever stops and goes around it; see
/// [`measure`](super::measure) for one CPU at rest.
pub fn glance() -> Option<f64> {
    // An interrupt makes a chain longer, never shorter.
    let least = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.min(b.1));
    let (short, long) = (0..PAIRS).map(|_| timed_pair()).reduce(least)?;
    (long > short).then(|| PAIR_CYCLES as f64 * 1e9 / (long - short) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_sees_about_what_a_measurement_does() {
        let glances: Vec<f64> = (0..50).filter_map(|_| glance()).collect();
        assert!(glances.len() > 40);
        assert!(glances.iter().all(|clock| (1e8..1e10).contains(clock)), "{glances:?}");
    }
}
