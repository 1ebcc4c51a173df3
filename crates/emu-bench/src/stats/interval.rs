//! Confidence intervals of a mean, a median and a share.

use emu_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::bootstrap::Bootstrap;
use super::distribution::{normal_quantile, t_critical};
use super::sample::{Sample, order_statistic, quantile};

/// A confidence level, 0.8..=0.999.
///
/// Below, an interval says next to nothing; above, it would rest on tails that no number of runs shows.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Level(f64);

impl Level {
    /// 95 %, the level of the published figures.
    pub const P95: Self = Self(0.95);

    /// A level as a share: 0.95 for 95 %.
    ///
    /// # Errors
    /// Usage, outside 0.8..=0.999.
    pub fn new(level: f64) -> Result<Self> {
        if !(0.8..=0.999).contains(&level) {
            return Err(Error::usage(format!("cannot use the confidence level {level}"))
                .hint("give a share from 0.8 to 0.999; 0.95 is usual"));
        }
        Ok(Self(level))
    }

    /// The level as a share.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Default for Level {
    fn default() -> Self {
        Self::P95
    }
}

/// An estimate and the range that covers the true value with probability `level`, in the unit of the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    /// The mean with Student's t interval, as in the published figures.
    ///
    /// Assumes independent measurements whose mean is about normal: true for normal data of any number, and
    /// for skewed data from some 30 on (Student 1908).
    ///
    /// # Errors
    /// Usage, for a single measurement.
    pub fn of_mean(sample: &Sample, level: Level) -> Result<Self> {
        let sd = sample.sd().ok_or_else(|| {
            Error::usage("cannot give an interval for the mean of 1 measurement").hint("take at least two")
        })?;
        let n = sample.count() as f64;
        let half = t_critical(level.0, n - 1.0)? * sd / n.sqrt();
        Ok(Self::around(sample.mean(), half, level.0))
    }

    /// The median: by order statistics below [`Bootstrap::UNITS_MIN`] measurements, else by the percentile
    /// bootstrap. The percentile kind is used because the acceleration of `BCa` does not converge for a median
    /// (Efron & Tibshirani 1993, § 11.6).
    ///
    /// Order statistics assume independent measurements of one continuous distribution and nothing of its
    /// shape (Conover, *Practical Nonparametric Statistics*, § 3.2). The interval from the k-th smallest to
    /// the k-th largest of n has a level of 1 − 2·P(B < k), B binomial (n, ½). It is the narrowest that
    /// reaches `level`; under 6 measurements none reaches 95 %, and the whole range is returned with the
    /// level it does have (5: 93.75 %, 3: 75 %, 1: 0).
    ///
    /// # Errors
    /// Usage, when the bootstrap has too few resamples for `level`.
    pub fn of_median(sample: &Sample, level: Level, bootstrap: &Bootstrap) -> Result<Self> {
        if sample.count() < Bootstrap::UNITS_MIN {
            return Ok(by_order_statistics(sample, level));
        }
        let mut values = Vec::with_capacity(sample.count());
        bootstrap.percentile(sample.values(), level, |resample| {
            values.clear();
            values.extend(resample.iter().copied().copied());
            values.sort_unstable_by(f64::total_cmp);
            quantile(&values, 0.5)
        })
    }

    /// The share of `successes` in `trials` with Wilson's score interval, which stays honest near 0 and 1
    /// (Wilson 1927; Brown, Cai & `DasGupta` 2001). Assumes independent trials of equal chance.
    ///
    /// # Errors
    /// Usage, for no trial at all or more successes than trials.
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

    /// `estimate` ± `half`.
    pub(super) fn around(estimate: f64, half: f64, level: f64) -> Self {
        Self { estimate, low: estimate - half, high: estimate + half, level }
    }

    /// The same interval on another scale, for a function that never falls.
    pub(super) fn map(self, rising: impl Fn(f64) -> f64) -> Self {
        Self { estimate: rising(self.estimate), low: rising(self.low), high: rising(self.high), ..self }
    }

    /// The longer of the two arms.
    pub(super) fn half_width(&self) -> f64 {
        (self.high - self.estimate).max(self.estimate - self.low)
    }
}

fn by_order_statistics(sample: &Sample, level: Level) -> Interval {
    let n = sample.count();
    // P(B < rank) for rank = 1, then grown one binomial term at a time while the level still holds.
    let mut rank = 1;
    let mut term = 0.5_f64.powi(n as i32);
    let mut tail = term;
    while 2 * (rank + 1) <= n {
        term *= (n - rank + 1) as f64 / rank as f64;
        if 1.0 - 2.0 * (tail + term) < level.0 {
            break;
        }
        tail += term;
        rank += 1;
    }
    Interval {
        estimate: sample.median(),
        low: order_statistic(sample.sorted(), rank - 1),
        high: order_statistic(sample.sorted(), n - rank),
        level: 1.0 - 2.0 * tail,
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
        assert_eq!(Level::new(0.95).unwrap(), Level::default());
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
    fn a_single_measurement_has_no_mean_interval() {
        assert!(Interval::of_mean(&one_to(1), Level::P95).is_err());
    }

    #[test]
    fn order_statistics_agree_with_the_binomial_distribution() {
        for &(n, level, rank, reached) in &oracles().median_ranks {
            let interval = by_order_statistics(&one_to(n), Level::new(level).unwrap());
            assert_eq!((interval.low, interval.high), (f64::from(rank), f64::from(n + 1 - rank)), "n = {n}");
            assert!((interval.level - reached).abs() < 1e-12, "n = {n}: {}", interval.level);
        }
    }

    #[test]
    fn below_six_measurements_the_interval_admits_a_lower_level() {
        let five = Interval::of_median(&one_to(5), Level::P95, &Bootstrap::new(1)).unwrap();
        assert_eq!((five.low, five.high, five.level), (1.0, 5.0, 0.9375));
        assert!(!five.reaches(Level::P95));
        let six = Interval::of_median(&one_to(6), Level::P95, &Bootstrap::new(1)).unwrap();
        assert_eq!((six.low, six.high, six.level), (1.0, 6.0, 0.96875));
        assert!(six.reaches(Level::P95));
        let one = Interval::of_median(&one_to(1), Level::P95, &Bootstrap::new(1)).unwrap();
        assert_eq!((one.estimate, one.level), (1.0, 0.0));
    }

    #[test]
    fn ten_measurements_are_enough_for_the_bootstrap() {
        let ten = Interval::of_median(&one_to(10), Level::P95, &Bootstrap::new(1)).unwrap();
        assert_eq!((ten.estimate, ten.level), (5.5, 0.95));
        assert!(ten.low > 1.0 && ten.high < 10.0, "{ten:?}");
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
        fn intervals_contain_their_estimate_and_widen_with_the_level(
            values in prop::collection::vec(-1e3..1e3, 2..25), seed: u64,
        ) {
            let sample = Sample::new(values).unwrap();
            let bootstrap = Bootstrap { seed, resamples: 1000 };
            let (loose, strict) = (Level::new(0.8).unwrap(), Level::P95);
            for (narrow, wide) in [
                (Interval::of_mean(&sample, loose).unwrap(), Interval::of_mean(&sample, strict).unwrap()),
                (
                    Interval::of_median(&sample, loose, &bootstrap).unwrap(),
                    Interval::of_median(&sample, strict, &bootstrap).unwrap(),
                ),
            ] {
                prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
                prop_assert!(wide.contains(wide.estimate));
            }
        }

        #[test]
        fn a_share_interval_stays_within_zero_and_one(trials in 1_usize..2000, part in 0.0..=1.0_f64) {
            let successes = (trials as f64 * part) as usize;
            let share = Interval::of_share(successes, trials, Level::P95).unwrap();
            prop_assert!(share.low >= 0.0 && share.high <= 1.0 && share.contains(share.estimate));
        }
    }
}
