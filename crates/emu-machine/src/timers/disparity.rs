//! How far CPU time and wall time of the same computation are apart, by the size of the problem.
//!
//! P. Luszczek et al. 2011 (*Evaluation of the HPC Challenge benchmarks in virtualized environments*) give
//! |`T_cpu`/`T_wall` − 1| by problem size, and count timer inversions: computations that used more CPU time than time
//! passed.

use std::time::Duration;

use emu_bench::stats::{Interval, Level, Sample};
use emu_core::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::ledger::Ledger;
use super::problem;

/// Repetitions of a size, as time allows.
const REPETITIONS_MIN: u32 = 3;
const REPETITIONS_MAX: u32 = 25;

/// All repetitions of a size for one clock take about this time.
const TIME: Duration = Duration::from_millis(300);
const TIME_QUICK: Duration = Duration::from_millis(30);

pub(super) fn repetitions(took: Duration, quick: bool) -> u32 {
    let time = if quick { TIME_QUICK } else { TIME };
    let fitting = time.as_secs_f64() / took.as_secs_f64().max(1e-9);
    (fitting as u32).clamp(REPETITIONS_MIN, REPETITIONS_MAX)
}

/// CPU time and wall time of one computation, in nanoseconds. The CPU clock is read within the reads of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// By the CPU clock.
    pub cpu_ns: i64,
    /// By the wall clock.
    pub wall_ns: i64,
}

impl Times {
    pub(super) fn of(cpu: &dyn Clock, wall: &dyn Clock, steps: u64) -> Result<Self> {
        let wall_begin = wall.read(0);
        let cpu_begin = cpu.read(0);
        let result = problem::solve(steps);
        let cpu_end = cpu.read(0);
        let wall_end = wall.read(0);
        problem::verify(steps, result)?;
        Ok(Self { cpu_ns: cpu_end - cpu_begin, wall_ns: wall_end - wall_begin })
    }

    /// `T_cpu`/`T_wall` − 1.
    pub fn difference(&self) -> f64 {
        self.cpu_ns as f64 / self.wall_ns.max(1) as f64 - 1.0
    }

    fn excess_ns(&self) -> i64 {
        self.cpu_ns - self.wall_ns
    }
}

/// The computations of one size by one CPU clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfSize {
    /// Steps of the computation.
    pub steps: u64,
    /// Every time it was done.
    pub times: Vec<Times>,
    /// Where the time of all of them went; `None` in records of older emus.
    pub account: Option<Ledger>,
}

impl OfSize {
    fn differences(&self) -> Option<Sample> {
        let differences: Vec<f64> = self.times.iter().map(|times| times.difference().abs()).collect();
        Sample::new(differences).ok()
    }

    /// The middle of |`T_cpu`/`T_wall` − 1|; `None` without any.
    pub fn disparity(&self) -> Option<f64> {
        self.differences().map(|sample| sample.median())
    }

    /// The quarter and the three quarters of |`T_cpu`/`T_wall` − 1|; `None` without any.
    pub fn quartiles(&self) -> Option<(f64, f64)> {
        let sample = self.differences()?;
        Some((sample.quantile(0.25).ok()?, sample.quantile(0.75).ok()?))
    }
}

/// One CPU clock against the wall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disparity {
    /// The CPU clock.
    pub clock: String,
    /// By how much a difference of times may be wrong by the steps of both clocks, in nanoseconds.
    pub error_ns: f64,
    /// Share of the computations with more CPU time than wall time, with its interval.
    pub inverted: Interval,
    /// The same, counting only what the steps of the clocks do not explain.
    pub inverted_beyond_error: Interval,
    /// The largest excess of CPU time over wall time, in nanoseconds; 0 without an inversion.
    pub worst_excess_ns: i64,
    /// Each size.
    pub sizes: Vec<OfSize>,
}

impl Disparity {
    pub(super) fn new(clock: String, error_ns: f64, sizes: Vec<OfSize>) -> Result<Self> {
        let excesses: Vec<i64> = sizes.iter().flat_map(|size| &size.times).map(Times::excess_ns).collect();
        let share = |is_meant: &dyn Fn(i64) -> bool| {
            let count = excesses.iter().filter(|excess| is_meant(**excess)).count();
            Interval::of_share(count, excesses.len(), Level::P95)
        };
        Ok(Self {
            inverted: share(&|excess| excess > 0)?,
            inverted_beyond_error: share(&|excess| excess as f64 > error_ns)?,
            worst_excess_ns: excesses.iter().copied().max().unwrap_or(0).max(0),
            clock,
            error_ns,
            sizes,
        })
    }

    /// The smallest size from which on the disparity stays within a share; `None` where it never does.
    pub fn agrees_from(&self, share: f64) -> Option<&OfSize> {
        let agrees = |size: &&OfSize| size.disparity().is_some_and(|disparity| disparity <= share);
        self.sizes.iter().rev().take_while(agrees).last()
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::testing::{RIGHT, Synthetic};
    use super::super::clock::{Counts, SystemClock};
    use super::*;

    /// A CPU clock against a wall clock.
    fn against(wall: &dyn Clock, cpu: &dyn Clock, error_ns: f64) -> Disparity {
        let times = |steps| (0..10).map(|_| Times::of(cpu, wall, steps).unwrap()).collect();
        let size = |steps| OfSize { steps, times: times(steps), account: None };
        Disparity::new(cpu.name().into(), error_ns, vec![size(50_000), size(500_000)]).unwrap()
    }

    #[test]
    fn a_cpu_clock_that_gains_is_found_by_its_inversions() {
        let fast = Synthetic { counts: Counts::Process, gain: 0.5, ..RIGHT };
        let found = against(&RIGHT, &fast, 100.0);
        assert!((found.inverted.estimate - 1.0).abs() < 1e-9 && found.inverted.low > 0.8, "{found:?}");
        assert!((found.inverted_beyond_error.estimate - 1.0).abs() < 1e-9);
        for size in &found.sizes {
            assert!((size.disparity().unwrap() - 0.5).abs() < 0.1, "{size:?}");
        }
        assert!(found.worst_excess_ns > 0 && found.agrees_from(0.01).is_none());
    }

    #[test]
    fn a_cpu_clock_that_is_right_has_no_inversion() {
        let right = Synthetic { counts: Counts::Process, ..RIGHT };
        let found = against(&RIGHT, &right, 0.0);
        assert!(found.inverted.estimate.abs() < 1e-12 && found.inverted.high < 0.3, "{found:?}");
        assert_eq!(found.worst_excess_ns, 0);
    }

    #[test]
    fn the_cpu_clocks_of_this_machine_are_right_within_their_error() {
        for clock in [SystemClock::PROCESS, SystemClock::THREAD] {
            // The test has other threads, whose CPU time counts for the process.
            if clock.counts() == Counts::Thread {
                let found = against(&SystemClock::RAW, &clock, 100.0);
                assert!(found.inverted_beyond_error.estimate < 0.2, "{found:?}");
            }
        }
    }

    #[test]
    fn a_tick_makes_inversions_that_its_step_explains() {
        let times =
            [(10_000_000, 4_000_000), (0, 4_000_000), (10_000_000, 9_000_000), (15_000_000, 4_000_000)];
        let times = times.map(|(cpu_ns, wall_ns)| Times { cpu_ns, wall_ns });
        let sizes = vec![OfSize { steps: 1, times: times.to_vec(), account: None }];
        let found = Disparity::new("times".into(), 1e7, sizes).unwrap();
        assert!((found.inverted.estimate - 0.75).abs() < 1e-12);
        assert!((found.inverted_beyond_error.estimate - 0.25).abs() < 1e-12);
        assert_eq!(found.worst_excess_ns, 11_000_000);
    }

    #[test]
    fn clocks_agree_from_the_size_beyond_which_none_disagrees() {
        let size = |steps, cpu_ns| {
            let times = vec![Times { cpu_ns, wall_ns: 1000 }];
            OfSize { steps, times, account: None }
        };
        let sizes = vec![size(1, 1000), size(2, 500), size(4, 995), size(8, 1005)];
        let found = Disparity::new("x".into(), 0.0, sizes).unwrap();
        assert_eq!(found.agrees_from(0.01).map(|size| size.steps), Some(4));
        assert_eq!(found.agrees_from(0.001), None);
    }

    #[test]
    fn short_computations_are_repeated_more_often() {
        let often = |millis, quick| repetitions(Duration::from_millis(millis), quick);
        assert_eq!([often(0, false), often(30, false), often(1000, false)], [25, 10, 3]);
        assert_eq!([often(0, true), often(3, true), often(30, true)], [25, 10, 3]);
    }
}
