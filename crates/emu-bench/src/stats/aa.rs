//! The A/A self-test: what the harness finds where there is nothing to find.

use emu_core::{Error, Result};
use serde::Serialize;

use super::equivalence::Band;
use super::interval::{Interval, Level};
use super::paired::{Centre, Pair, PairedRatios};
use super::power::detectable;

/// What pairs of native against native show about this machine, in this run.
///
/// Every difference found here is false, and no difference smaller than [`detectable`](Self::detectable) can
/// be told from chance. Assumes that the A/A pairs were taken as the compared ones were: same workload, same
/// blocks, same machine, interleaved with them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AaTest {
    /// Ratio over all pairs; its interval should contain 1.
    pub ratio: Interval,
    /// How many comparisons could be made of the pairs.
    pub comparisons: usize,
    /// In how many of them the interval alone excluded 1: expected is 1 − level of them. Many more mean that
    /// the pairs are not independent (drift, order) and that intervals on this machine are too narrow.
    pub excluded: usize,
    /// In how many of them a difference was claimed by [`confirms`](Self::confirms).
    pub false_alarms: usize,
    /// False alarms per comparison, with Wilson's interval.
    pub false_alarm_rate: Interval,
    /// Minimum detectable effect of a comparison, as a share: 0.02 when a change of 2 % is found four times
    /// in five.
    pub detectable: f64,
    /// Mean |ln ratio| of the pairs: the error that a perfect method shows here.
    pub floor: f64,
}

impl AaTest {
    /// Cuts the pairs, in the order they were taken, into comparisons of `size` pairs (as many as a real
    /// comparison has) and makes each as a real one is made. Pairs left over count for
    /// [`ratio`](Self::ratio) and [`floor`](Self::floor) only.
    ///
    /// The detectable effect follows from the mean width of the intervals (see the power calculation of
    /// [`Verdict::NotEnoughData`](super::Verdict::NotEnoughData)).
    ///
    /// # Errors
    /// Usage, when `size` is below 2 or above the number of pairs, or too small for an interval of `level`:
    /// the median needs 6 pairs for 95 %.
    pub fn of(pairs: &[Pair], size: usize, centre: Centre, level: Level) -> Result<Self> {
        if size < 2 || size > pairs.len() {
            return Err(Error::usage(format!(
                "cannot compare {size} at a time of {} A/A pairs",
                pairs.len()
            ))
            .hint("give from 2 to the number of pairs"));
        }
        let all = PairedRatios::new(pairs)?;
        let ratios = pairs
            .chunks_exact(size)
            .map(|chunk| PairedRatios::new(chunk)?.ratio(centre, level))
            .collect::<Result<Vec<_>>>()?;
        if ratios.iter().any(|ratio| !ratio.reaches(level)) {
            return Err(Error::usage(format!("cannot compare {size} pairs at the level {}", level.get()))
                .hint("the median needs more pairs; 6 for 95 %"));
        }
        let half_width =
            ratios.iter().map(|ratio| ratio.map(f64::ln).half_width()).sum::<f64>() / ratios.len() as f64;
        let mut test = Self {
            ratio: all.ratio(centre, level)?,
            comparisons: ratios.len(),
            excluded: ratios.iter().filter(|ratio| !ratio.contains(1.0)).count(),
            false_alarms: 0,
            false_alarm_rate: Interval::of_share(0, ratios.len(), level)?,
            detectable: detectable(half_width, size, level)?.exp_m1(),
            floor: all.logs().map(f64::abs)?.mean(),
        };
        test.false_alarms = ratios.iter().filter(|ratio| test.confirms(ratio, None)).count();
        test.false_alarm_rate = Interval::of_share(test.false_alarms, ratios.len(), level)?;
        Ok(test)
    }

    /// Whether a ratio from a comparison of the same size may be called a difference: its interval excludes 1,
    /// and it is further from 1 than the detectable effect and than the band that the user cares about.
    pub fn confirms(&self, ratio: &Interval, band: Option<Band>) -> bool {
        let matters = band.is_none_or(|band| ratio.estimate < band.low() || band.high() < ratio.estimate);
        matters && !ratio.contains(1.0) && ratio.estimate.ln().abs() > self.detectable.ln_1p()
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

    #[test]
    fn two_hundred_simulated_runs_raise_false_alarms_in_at_most_five_percent() {
        for (centre, seed) in [(Centre::Mean, 1), (Centre::Mean, 2), (median(1), 1), (median(2), 2)] {
            let test = AaTest::of(&pairs(200 * 12, 0.01, 0.0, seed), 12, centre, Level::P95).unwrap();
            assert_eq!(test.comparisons, 200);
            assert!(test.false_alarms <= 10, "{test:?}");
            assert!(test.ratio.contains(1.0), "{test:?}");
            // The intervals alone: 5 % of 200 within three standard deviations, neither too wide nor too narrow.
            assert!((1..=20).contains(&test.excluded), "{test:?}");
        }
    }

    #[test]
    fn an_effect_of_the_detectable_size_is_found_four_times_in_five_by_its_interval() {
        let aa = AaTest::of(&pairs(2400, 0.01, 0.0, 3), 12, Centre::Mean, Level::P95).unwrap();
        let shifted = pairs(400 * 12, 0.01, aa.detectable.ln_1p(), 4);
        let found = shifted
            .chunks_exact(12)
            .filter(|chunk| {
                let ratio = PairedRatios::new(chunk).unwrap().ratio(Centre::Mean, Level::P95).unwrap();
                !ratio.contains(1.0)
            })
            .count();
        assert!((290..=350).contains(&found), "{found} of 400");
    }

    #[test]
    fn an_effect_of_twice_the_detectable_size_is_confirmed() {
        for centre in [Centre::Mean, median(5)] {
            let aa = AaTest::of(&pairs(240, 0.01, 0.0, 5), 12, centre, Level::P95).unwrap();
            let shifted = pairs(12, 0.01, 2.0 * aa.detectable.ln_1p(), 6);
            let ratio = PairedRatios::new(&shifted).unwrap().ratio(centre, Level::P95).unwrap();
            assert!(aa.confirms(&ratio, None), "{ratio:?} {aa:?}");
            assert!(!aa.confirms(&ratio, Some(Band::new(0.5).unwrap())), "within the band of the user");
        }
    }

    /// An order effect (the second of each pair 2 % slower) is what a self-test must find.
    #[test]
    fn a_biased_harness_is_found_out() {
        let test = AaTest::of(&pairs(120, 0.005, -0.02, 7), 12, Centre::Mean, Level::P95).unwrap();
        assert!(!test.ratio.contains(1.0) && test.excluded == 10 && test.false_alarms >= 8, "{test:?}");
    }

    #[test]
    fn the_floor_of_normal_noise_is_its_mean_deviation() {
        let test = AaTest::of(&pairs(20_000, 0.01, 0.0, 8), 20, Centre::Mean, Level::P95).unwrap();
        // Each side has a spread of 0.01, their log ratio √2 of it; E|N(0, σ)| = σ √(2/π).
        let expected = 0.01 * (4.0 / std::f64::consts::PI).sqrt();
        assert!((test.floor / expected - 1.0).abs() < 0.02, "{} {expected}", test.floor);
    }

    #[test]
    fn a_silent_machine_detects_everything() {
        let test = AaTest::of(&[Pair::new(3.0, 3.0).unwrap(); 12], 6, Centre::Mean, Level::P95).unwrap();
        assert_eq!((test.comparisons, test.false_alarms, test.excluded), (2, 0, 0));
        assert_eq!((test.detectable, test.floor), (0.0, 0.0));
        // Wilson's upper end for 0 of n is z² / (n + z²), z² = 3.8415 at 95 %.
        assert!((test.false_alarm_rate.high - 3.8415 / 5.8415).abs() < 1e-4, "{test:?}");
    }

    #[test]
    fn sizes_that_allow_no_comparison_are_refused() {
        let twelve = pairs(12, 0.01, 0.0, 9);
        for size in [0, 1, 13] {
            assert!(AaTest::of(&twelve, size, Centre::Mean, Level::P95).is_err(), "{size}");
        }
        assert!(
            AaTest::of(&twelve, 5, median(1), Level::P95).is_err(),
            "five have no 95 % interval of a median"
        );
        assert!(AaTest::of(&[], 2, Centre::Mean, Level::P95).is_err());
    }
}
