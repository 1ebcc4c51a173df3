//! The confidence interval of a median.

use emu_core::Result;

use super::bootstrap::Bootstrap;
use super::interval::{Interval, Level};
use super::sample::{Sample, order_statistic, quantile};

impl Interval {
    /// The median: by order statistics below [`Bootstrap::UNITS_MIN`] measurements, else by the percentile bootstrap, as the
    /// acceleration of `BCa` does not converge for a median (Efron & Tibshirani 1993, § 11.6).
    ///
    /// Order statistics assume independent measurements of one continuous distribution of any shape (Conover, *Practical
    /// Nonparametric Statistics*, § 3.2). Of n measurements, the k-th smallest and the k-th largest enclose the median at a
    /// level of 1 − 2·P(B < k), B binomial (n, ½): k is the largest that reaches `level`. Under 6 measurements none reaches 95
    /// %, and the whole range is returned with the level it has (5: 93.75 %, 3: 75 %, 1: 0).
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
}

fn by_order_statistics(sample: &Sample, level: Level) -> Interval {
    let n = sample.count();
    // P(B < rank) for rank = 1, then grown one binomial term at a time while the level still holds.
    let mut rank = 1;
    let mut term = 0.5_f64.powi(n as i32);
    let mut tail = term;
    while 2 * (rank + 1) <= n {
        term *= (n - rank + 1) as f64 / rank as f64;
        if 1.0 - 2.0 * (tail + term) < level.get() {
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
    use super::super::oracles::oracles;
    use super::*;
    use proptest::prelude::*;

    fn one_to(n: u32) -> Sample {
        Sample::new((1..=n).map(f64::from).collect::<Vec<_>>()).unwrap()
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
    }
}
