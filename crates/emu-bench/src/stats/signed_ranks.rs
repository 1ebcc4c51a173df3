//! The confidence interval of few paired differences.

use super::interval::{Interval, Level};
use super::sample::{Sample, order_statistic};

impl Interval {
    /// The median of a few independent differences, with the interval that inverts Wilcoxon's signed-rank test: between the k-th
    /// smallest and the k-th largest mean of two of them (Hollander, Wolfe & Chicken, *Nonparametric Statistical Methods*, § 3.3).
    ///
    /// It assumes that differences are as often so much too large as too small, and no other shape. So of eight pairs it is
    /// little wider than Student's, and single disturbed pairs do not move it; without that assumption it would be the whole
    /// range. Under 6 differences none reaches 95 %, and the whole range is returned with the level it has (5: 93.75 %).
    pub(crate) fn of_differences(sample: &Sample, level: Level) -> Self {
        let values = sample.sorted();
        let means = values
            .iter()
            .enumerate()
            .flat_map(|(at, one)| values.iter().take(at + 1).map(move |other| f64::midpoint(*one, *other)));
        let mut means: Vec<f64> = means.collect();
        means.sort_unstable_by(f64::total_cmp);
        let (rank, level) = rank(values.len(), level);
        let median = sample.median();
        Self {
            estimate: median,
            low: order_statistic(&means, rank - 1).min(median),
            high: order_statistic(&means, means.len() - rank).max(median),
            level,
        }
    }
}

/// The largest rank of which the interval reaches `level`, at least 1, and the level that it has.
fn rank(count: usize, level: Level) -> (usize, f64) {
    // In how many of the 2^count ways of giving them a sign the ranks above zero have each sum.
    let mut ways = vec![1.0];
    for rank in 1..=count {
        let mut with = vec![0.0; ways.len() + rank];
        for (sum, of_sum) in ways.iter().enumerate() {
            for target in [sum, sum + rank] {
                if let Some(slot) = with.get_mut(target) {
                    *slot += of_sum;
                }
            }
        }
        ways = with;
    }
    let all = 2.0_f64.powi(count as i32);
    let mut outside = 0.0;
    let levels = ways.iter().map(|of_sum| {
        outside += 2.0 * of_sum / all;
        1.0 - outside
    });
    let levels: Vec<f64> = levels.collect();
    let reached = levels.iter().take_while(|reached| **reached >= level.get()).count().max(1);
    (reached, levels.get(reached - 1).copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_pcg::Pcg64;

    fn sample(values: &[f64]) -> Sample {
        Sample::new(values.to_vec()).unwrap()
    }

    /// Critical values for 5 %, two-sided, as in every table of the test: the rank is one more.
    #[test]
    fn ranks_agree_with_the_tables() {
        let critical = [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (12, 13), (15, 25), (20, 52)];
        for (count, sum) in critical {
            let (rank, reached) = rank(count, Level::P95);
            assert_eq!(rank, sum + 1, "{count}");
            assert!((0.95..0.97).contains(&reached), "{count}: {reached}");
        }
        assert_eq!(rank(5, Level::P95), (1, 0.9375));
        assert_eq!(rank(1, Level::P95), (1, 0.0));
    }

    #[test]
    fn the_interval_is_between_means_of_two() {
        // Of 1 to 7: 1, 1.5, 2, 2 … are the smallest means.
        let seven = Interval::of_differences(&sample(&[4.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0]), Level::P95);
        assert_eq!((seven.estimate, seven.low, seven.high), (4.0, 2.0, 6.0));
        let one = Interval::of_differences(&sample(&[3.0]), Level::P95);
        assert_eq!((one.estimate, one.low, one.high, one.level), (3.0, 3.0, 3.0, 0.0));
    }

    #[test]
    fn the_interval_covers_at_its_level_with_and_without_tails() {
        const TRIES: usize = 4000;
        let mut rng = Pcg64::seed_from_u64(7);
        let mut uniform = move || rng.random_range(-1.0..1.0_f64);
        // Close together, and one in eight far off.
        let mut tailed = move || if uniform() > 0.75 { 10.0 * uniform() } else { uniform() };
        for count in [6, 8, 9] {
            let covers = |_: &usize| {
                let values: Vec<f64> = (0..count).map(|_| tailed()).collect();
                Interval::of_differences(&sample(&values), Level::P95).contains(0.0)
            };
            let covered = (0..TRIES).filter(covers).count() as f64 / TRIES as f64;
            assert!((0.94..0.985).contains(&covered), "{count}: {covered}");
        }
    }
}
