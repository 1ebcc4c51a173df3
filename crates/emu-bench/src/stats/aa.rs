//! The A/A self-test: what the harness finds where there is nothing to find.

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::interval::{Interval, Level};
use super::paired::{Centre, Pair, PairedRatios};
use super::power::detectable;

/// What pairs of native against native show about this machine, in this run.
///
/// Every difference found here is false, and no difference smaller than [`detectable`](Self::detectable) can
/// be told from chance. Assumes that the A/A pairs were taken as the compared ones were: same workload, same
/// blocks, same machine, interleaved with them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct AaTest {
    /// Ratio over all pairs; its interval should contain 1.
    pub ratio: Interval,
    /// Minimum detectable effect of a comparison of as many pairs, as a share: 0.02 when a change of 2 % is found four
    /// times in five. [`bias`](Self::bias) adds to it, as no effect of that size can be told from it.
    pub detectable: f64,
    /// Mean |ln ratio| of the pairs: the error that a perfect method shows here.
    pub floor: f64,
}

impl AaTest {
    /// Compares native with native as a real comparison is made: the median needs 6 pairs for 95 %. The detectable effect
    /// follows from the width of the interval (see [`Verdict::NotEnoughData`](super::Verdict::NotEnoughData)).
    pub fn of(pairs: &[Pair], centre: Centre, level: Level) -> Result<Self> {
        let all = PairedRatios::new(pairs)?;
        let ratio = all.ratio(centre, level)?;
        if !ratio.reaches(level) {
            let count = pairs.len();
            return Err(Error::usage(format!("cannot compare {count} pairs at the level {}", level.get()))
                .hint("the median needs more pairs; 6 for 95 %"));
        }
        let mut test = Self { ratio, detectable: 0.0, floor: all.logs().map(f64::abs)?.mean() };
        let by_chance = detectable(ratio.map(f64::ln).half_width(), pairs.len(), level)?;
        test.detectable = (by_chance + test.bias().map_or(0.0, |bias| bias.ln_1p().abs())).exp_m1();
        Ok(test)
    }

    /// The difference that is seen although there is none, as a share: that of the estimate, where the interval does not
    /// contain 1.
    pub fn bias(&self) -> Option<f64> {
        (!self.ratio.contains(1.0)).then_some(self.ratio.estimate - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bootstrap::Bootstrap;
    use super::super::oracles::Normals;
    use super::*;

    /// A/A pairs on a machine whose speed drifts by a third over the run, with `noise` on every rate.
    fn pairs(count: usize, noise: f64, bias: f64, seed: u64) -> Vec<Pair> {
        let mut normals = Normals::new(seed);
        (0..count)
            .map(|index| {
                let clock = 100.0 + 30.0 * index as f64 / count as f64;
                let mut rate = |bias: f64| clock * (bias + noise * normals.draw()).exp();
                Pair::new(rate(bias), rate(0.0)).unwrap()
            })
            .collect()
    }

    fn median(seed: u64) -> Centre {
        Centre::Median(Bootstrap { seed, resamples: 500 })
    }

    /// The tests of comparisons of 12 pairs each.
    fn tests(pairs: &[Pair], centre: Centre) -> Vec<AaTest> {
        pairs.chunks_exact(12).map(|twelve| AaTest::of(twelve, centre, Level::P95).unwrap()).collect()
    }

    fn excluded(tests: &[AaTest]) -> usize {
        tests.iter().filter(|test| test.bias().is_some()).count()
    }

    #[test]
    fn simulated_runs_exclude_the_truth_as_often_as_they_say() {
        for (centre, seed) in [(Centre::Mean, 1), (Centre::Mean, 2), (median(1), 1), (median(2), 2)] {
            let excluded = excluded(&tests(&pairs(200 * 12, 0.01, 0.0, seed), centre));
            // 5 % of 200 within three standard deviations: neither too wide nor too narrow.
            assert!((1..=20).contains(&excluded), "{excluded}");
        }
    }

    #[test]
    fn an_effect_of_detectable_size_is_found_four_times_in_five() {
        let tests_of_nothing = tests(&pairs(2400, 0.01, 0.0, 3), Centre::Mean);
        let detectable =
            tests_of_nothing.iter().map(|test| test.detectable).sum::<f64>() / tests_of_nothing.len() as f64;
        let found = excluded(&tests(&pairs(400 * 12, 0.01, detectable.ln_1p(), 4), Centre::Mean));
        assert!((290..=350).contains(&found), "{found} of 400");
    }

    /// An order effect (the second of each pair 2 % slower) is what a self-test must find.
    #[test]
    fn a_biased_harness_is_found_out() {
        assert_eq!(excluded(&tests(&pairs(120, 0.005, -0.02, 7), Centre::Mean)), 10);
    }

    #[test]
    fn no_effect_below_the_bias_of_the_controls_is_detectable() {
        for bias in [-0.06, 0.06] {
            let of = |bias: f64| AaTest::of(&pairs(12, 0.002, bias, 7), Centre::Mean, Level::P95).unwrap();
            let (biased, fair) = (of(bias), of(0.0));
            assert!((biased.bias().unwrap() - bias).abs() < 0.003, "{biased:?}");
            assert!(biased.detectable > 0.06 && fair.detectable < 0.004, "{biased:?} {fair:?}");
        }
    }

    #[test]
    fn the_floor_of_normal_noise_is_its_mean_deviation() {
        let test = AaTest::of(&pairs(20_000, 0.01, 0.0, 8), Centre::Mean, Level::P95).unwrap();
        // Each side has a spread of 0.01, their log ratio √2 of it; E|N(0, σ)| = σ √(2/π).
        let expected = 0.01 * (4.0 / std::f64::consts::PI).sqrt();
        assert!((test.floor / expected - 1.0).abs() < 0.02, "{} {expected}", test.floor);
    }

    #[test]
    fn a_silent_machine_detects_everything() {
        let test = AaTest::of(&[Pair::new(3.0, 3.0).unwrap(); 12], Centre::Mean, Level::P95).unwrap();
        assert!(test.ratio.contains(1.0));
        assert_eq!((test.detectable, test.floor), (0.0, 0.0));
    }

    #[test]
    fn too_few_pairs_for_an_interval_are_refused() {
        let twelve = pairs(12, 0.01, 0.0, 9);
        assert!(AaTest::of(&twelve[..5], median(1), Level::P95).is_err(), "five have none of 95 %");
        assert!(AaTest::of(&twelve[..6], median(1), Level::P95).is_ok());
        for few in [0, 1] {
            assert!(AaTest::of(&twelve[..few], Centre::Mean, Level::P95).is_err(), "{few}");
        }
    }
}
