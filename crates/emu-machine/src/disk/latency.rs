//! How long operations took, from when each was meant to begin.

use std::time::Duration;

use emu_core::{Error, ErrorKind, Result};
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest time that is told apart: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Significant digits: times are kept to 1 %, the largest as well.
const DIGITS: u8 = 2;

#[derive(Debug)]
pub(super) struct Times(Histogram<u64>);

impl Times {
    /// All memory is taken here, none when a time is added.
    pub(super) fn new() -> Result<Self> {
        Histogram::new_with_bounds(1, LONGEST_NS, DIGITS)
            .map(Self)
            .map_err(|cause| Error::new(ErrorKind::Failed, "cannot make a histogram").caused_by(cause))
    }

    #[inline]
    pub(super) fn take(&mut self, time: Duration) {
        // As nanoseconds in 64 bits for 584 years.
        self.0.saturating_record(time.as_nanos() as u64);
    }

    pub(super) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so that it cannot fail.
        let _ = self.0.add(&other.0);
    }

    pub(super) fn summary(&self) -> Option<Latency> {
        let times = &self.0;
        // Of fewer operations the slowest alone would make the figure.
        let percentile =
            |share: f64, least: u64| (times.len() >= least).then(|| times.value_at_quantile(share));
        (!times.is_empty()).then(|| Latency {
            operations: times.len(),
            mean_ns: times.mean(),
            p50_ns: percentile(0.5, 2),
            p90_ns: percentile(0.9, 10),
            p99_ns: percentile(0.99, 100),
            p99_9_ns: percentile(0.999, 1000),
            max_ns: times.max(),
        })
    }
}

/// The distribution of the times of operations, each to 1 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// How many operations there were.
    pub operations: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Half of the operations took this long or less.
    pub p50_ns: Option<u64>,
    /// The 90th percentile; `None` for fewer than 10 operations.
    pub p90_ns: Option<u64>,
    /// The 99th percentile; `None` for fewer than 100 operations.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile; `None` for fewer than 1000 operations.
    pub p99_9_ns: Option<u64>,
    /// The slowest.
    pub max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_1_percent_with_enough_operations() {
        let mut times = Times::new().unwrap();
        assert_eq!(times.summary(), None);
        (1..=1000).for_each(|us| times.take(Duration::from_micros(us)));
        let latency = times.summary().unwrap();
        let near = |is: Option<u64>, must: f64| (is.unwrap() as f64 / must - 1.0).abs() < 0.01;
        assert!(near(latency.p50_ns, 500e3) && near(latency.p99_9_ns, 999e3), "{latency:?}");
        assert!((latency.mean_ns / 500.5e3 - 1.0).abs() < 0.01);

        let mut few = Times::new().unwrap();
        (0..50).for_each(|_| few.take(Duration::from_micros(7)));
        let of_few = few.summary().unwrap();
        assert_eq!((of_few.p99_ns, of_few.p90_ns.is_some()), (None, true));
        times.add(&few);
        assert_eq!(times.summary().unwrap().operations, 1050);
    }

    #[test]
    fn times_out_of_bounds_are_counted_at_the_bound() {
        let mut times = Times::new().unwrap();
        times.take(Duration::ZERO);
        times.take(Duration::from_secs(100_000));
        assert_eq!(times.summary().unwrap().operations, 2);
    }
}
