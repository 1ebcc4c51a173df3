//! Confidence intervals, and those of a mean and a share.

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distribution::{normal_quantile, t_critical};
use super::sample::Sample;

/// A confidence level, 0.8..=0.999.
///
/// Below, an interval says next to nothing; above, it would rest on tails that no number of runs shows.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Level(f64);

impl Level {
    /// 95 %, the level of the published figures.
    pub const P95: Self = Self(0.95);

    /// A level as a share, 0.8..=0.999: 0.95 for 95 %.
    pub fn new(level: f64) -> Result<Self> {
        if !(0.8..=0.999).contains(&level) {
            return Err(Error::usage(format!("cannot use the confidence level {level}"))
                .hint("give a share from 0.8 to 0.999; 0.95 is usual"));
        }
        Ok(Self(level))
    }

    /// The level of each of so many intervals at which all of them hold together 95 % of the time (Bonferroni). Of more than
    /// 50 it is above 99.9 %.
    pub fn of_each(intervals: usize) -> Self {
        Self(1.0 - 0.05 / intervals.max(1) as f64)
    }

    /// The level as a share.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// An estimate and the range that covers the true value with probability `level`, in the unit of the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// The estimate itself.
    pub estimate: f64,
    /// Lower end; never above the upper one.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The coverage that the method promises, as a share. Exact for order statistics, and there it can be
    /// less than was asked for: see [`of_median`](Self::of_median) and [`reaches`](Self::reaches).
    pub level: f64,
}

impl Interval {
    /// The mean of two or more measurements with Student's t interval, as in the published figures. Assumes that the mean is
    /// about normal: true for normal data of any number, and for skewed data from some 30 on (Student 1908).
    pub fn of_mean(sample: &Sample, level: Level) -> Result<Self> {
        let sd = sample.sd().ok_or_else(|| {
            Error::usage("cannot give an interval for the mean of 1 measurement").hint("take at least two")
        })?;
        let n = sample.count() as f64;
        let half = t_critical(level.0, n - 1.0)? * sd / n.sqrt();
        Ok(Self::around(sample.mean(), half, level.0))
    }

    /// The ratio of the geometric means of two samples, by Welch's t interval of the logarithms (Welch 1947): for rates
    /// whose scatter is a share of them.
    ///
    /// # Errors
    /// Usage, for a sample of one measurement, or one with a value that is not above 0.
    pub fn of_ratio(dividend: &Sample, divisor: &Sample, level: Level) -> Result<Self> {
        // Squared standard error of a mean, and its degrees of freedom.
        let of = |sample: &Sample| -> Result<(f64, f64, f64)> {
            let logs = sample.map(f64::ln)?;
            let n = logs.count() as f64;
            let sd = logs.sd().ok_or_else(|| {
                Error::usage("cannot give an interval for the ratio of 1 measurement")
                    .hint("take at least two")
            })?;
            Ok((logs.mean(), sd * sd / n, n - 1.0))
        };
        let ((mean, square, df), (by_mean, by_square, by_df)) = (of(dividend)?, of(divisor)?);
        let both = square + by_square;
        let half = if both > 0.0 {
            let df = both * both / (square * square / df + by_square * by_square / by_df);
            t_critical(level.0, df)? * both.sqrt()
        } else {
            0.0
        };
        Ok(Self::around(mean - by_mean, half, level.0).map(f64::exp))
    }

    /// The share of `successes` in `trials` with Wilson's score interval, which stays honest near 0 and 1
    /// (Wilson 1927; Brown, Cai & `DasGupta` 2001). Assumes independent trials of equal chance.
    pub fn of_share(successes: usize, trials: usize, level: Level) -> Result<Self> {
        if trials == 0 || successes > trials {
            return Err(Error::usage(format!("cannot take the share of {successes} in {trials} trials")));
        }
        let (n, share) = (trials as f64, successes as f64 / trials as f64);
        let z = normal_quantile(f64::midpoint(1.0, level.0));
        let weight = 1.0 + z * z / n;
        let centre = (share + z * z / (2.0 * n)) / weight;
        let half = z * (share * (1.0 - share) / n + (z / (2.0 * n)).powi(2)).sqrt() / weight;
        // The exact ends at 0 and n successes are 0 and 1; rounding must not miss them.
        let low = if successes == 0 { 0.0 } else { centre - half };
        let high = if successes == trials { 1.0 } else { centre + half };
        Ok(Self { estimate: share, low, high, level: level.0 })
    }

    /// Whether `value` is between the ends or on one of them.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Whether the interval really has the confidence asked for.
    pub fn reaches(&self, level: Level) -> bool {
        self.level >= level.0
    }

    pub(super) fn around(estimate: f64, half: f64, level: f64) -> Self {
        Self { estimate, low: estimate - half, high: estimate + half, level }
    }

    /// The same interval on another scale, for a function that never falls.
    #[must_use]
    pub fn map(self, rising: impl Fn(f64) -> f64) -> Self {
        Self { estimate: rising(self.estimate), low: rising(self.low), high: rising(self.high), ..self }
    }

    /// The longer of the two arms.
    pub(super) fn half_width(&self) -> f64 {
        (self.high - self.estimate).max(self.estimate - self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracles::{close, oracles};
    use super::*;
    use proptest::prelude::*;

    fn one_to(n: u32) -> Sample {
        Sample::new((1..=n).map(f64::from).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn levels_outside_the_useful_range_are_refused() {
        for bad in [0.79, 0.9991, 1.0, 95.0, f64::NAN] {
            assert!(Level::new(bad).is_err(), "{bad}");
        }
        assert_eq!(Level::new(0.95).unwrap(), Level::P95);
        assert_eq!([0, 1].map(Level::of_each), [Level::P95; 2]);
        assert!((Level::of_each(80).get() - 0.999_375).abs() < 1e-12);
    }

    #[test]
    fn mean_intervals_agree_with_scipy() {
        for case in &oracles().samples {
            let sample = Sample::new(case.values.clone()).unwrap();
            for &(level, low, high) in &case.mean_intervals {
                let interval = Interval::of_mean(&sample, Level::new(level).unwrap()).unwrap();
                close(interval.low, low, "low end");
                close(interval.high, high, "high end");
            }
        }
    }

    #[test]
    fn a_ratio_has_the_interval_of_welch() {
        let of =
            |values: &[f64]| Sample::new(values.iter().map(|log| log.exp()).collect::<Vec<_>>()).unwrap();
        let ratio = Interval::of_ratio(&of(&[1.0, 1.1, 1.2]), &of(&[0.0, 0.1, 0.2]), Level::P95).unwrap();
        // Standard error √(2 · 0.01/3), 4 degrees of freedom: t = 2.776445.
        let half = 2.776_445 * (0.02_f64 / 3.0).sqrt();
        close(ratio.estimate, 1.0_f64.exp(), "estimate");
        assert!(
            (ratio.low.ln() - (1.0 - half)).abs() < 1e-6 && (ratio.high.ln() - (1.0 + half)).abs() < 1e-6
        );
        let exact = Interval::of_ratio(&of(&[1.0, 1.0]), &of(&[0.0, 0.0]), Level::P95).unwrap();
        close(exact.low, exact.high, "no scatter");
        assert!(Interval::of_ratio(&of(&[1.0]), &of(&[0.0, 0.1]), Level::P95).is_err());
        assert!(Interval::of_ratio(&one_to(2), &Sample::new([0.0, 1.0]).unwrap(), Level::P95).is_err());
    }

    #[test]
    fn a_single_measurement_has_no_mean_interval() {
        assert!(Interval::of_mean(&one_to(1), Level::P95).is_err());
    }

    #[test]
    fn share_intervals_agree_with_statsmodels() {
        for &(successes, trials, level, low, high) in &oracles().shares {
            let share = Interval::of_share(successes, trials, Level::new(level).unwrap()).unwrap();
            assert!((share.low - low).abs() < 1e-12 && (share.high - high).abs() < 1e-12, "{share:?}");
        }
        assert!(Interval::of_share(0, 0, Level::P95).is_err());
        assert!(Interval::of_share(2, 1, Level::P95).is_err());
    }

    proptest! {
        #[test]
        fn a_share_interval_stays_within_zero_and_one(trials in 1_usize..2000, part in 0.0..=1.0_f64) {
            let successes = (trials as f64 * part) as usize;
            let share = Interval::of_share(successes, trials, Level::P95).unwrap();
            prop_assert!(share.low >= 0.0 && share.high <= 1.0 && share.contains(share.estimate));
        }
    }
}
