//! Moments of a long series at which less was done than usual.

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sample::Sample;

/// A value is dipped so many standard deviations below the median: one in three million normal values lies there.
const DEVIATIONS: f64 = 5.0;

/// Standard deviation of normal values by their median absolute deviation (Hampel 1974, *The influence curve and its role in
/// robust estimation*).
const NORMAL: f64 = 1.4826;

/// A value that is less than this share of the median below it is no dip, however quiet the others are.
const SHARE_MIN: f64 = 0.01;

/// A threshold at less than this share of the median finds only what nobody would overlook.
const THRESHOLD_MIN: f64 = 0.5;

/// Dips from which a period can be told.
const PERIODIC_MIN: usize = 4;

/// How far the distances of periodic dips may lie from their median, as a share of it.
const REGULAR: f64 = 0.1;

/// Neighbouring values that are all dipped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dip {
    /// Which value is its first, from 0.
    pub begin: usize,
    /// How many values it has.
    pub values: usize,
    /// Its lowest value as a share of the median.
    pub lowest: f64,
}

/// The dips of a series of values, which were taken at even intervals.
///
/// Centre and spread are medians, which the dips themselves do not move as long as they are fewer than half of the
/// values. Nothing else is assumed of the distribution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dips {
    /// The median of all values.
    pub median: f64,
    /// Values below this one are dipped; 0 where values scatter by so much that none can be.
    pub threshold: f64,
    /// The standard deviation of the values beside the dips, as a share of the median: by the median absolute deviation.
    pub scatter: f64,
    /// The dips, in order.
    pub dips: Vec<Dip>,
    /// Share of the values that are dipped: of the time.
    pub share: f64,
    /// What the dips lack, as a share of what the median makes in the whole time: of the work.
    pub lost_share: f64,
    /// Values from the begin of a dip to that of the next; the median. `None` where dips come irregularly, or are
    /// fewer than four.
    pub period_values: Option<f64>,
}

impl Dips {
    /// Finds the dips of a series whose median is above 0.
    pub fn of(series: &Sample) -> Result<Self> {
        let median = series.median();
        if median <= 0.0 {
            return Err(Error::usage(format!("cannot find dips of a series whose median is {median:e}")));
        }
        let scatter = NORMAL * series.mad() / median;
        let threshold = median * (1.0 - (DEVIATIONS * scatter).max(SHARE_MIN)).max(0.0);
        let values = series.values();
        let mut dips: Vec<Dip> = Vec::new();
        for (number, value) in values.iter().enumerate().filter(|(_, value)| **value < threshold) {
            let lowest = value / median;
            match dips.last_mut().filter(|last| last.begin + last.values == number) {
                Some(last) => {
                    last.values += 1;
                    last.lowest = last.lowest.min(lowest);
                }
                None => dips.push(Dip { begin: number, values: 1, lowest }),
            }
        }
        let dipped = values.iter().filter(|value| **value < threshold);
        // Not `sum`, which is −0 for no dips.
        let lost = dipped.clone().fold(0.0, |lost, value| lost + (1.0 - value / median));
        let all = values.len() as f64;
        Ok(Self {
            median,
            threshold,
            scatter,
            share: dipped.count() as f64 / all,
            lost_share: lost / all,
            period_values: period(&dips)?,
            dips,
        })
    }

    /// Whether values scatter by so much that a dip to half of the median is nothing special: that there is none says
    /// nothing then.
    pub fn is_blind(&self) -> bool {
        self.threshold < THRESHOLD_MIN * self.median
    }
}

fn period(dips: &[Dip]) -> Result<Option<f64>> {
    if dips.len() < PERIODIC_MIN {
        return Ok(None);
    }
    let begins = dips.iter().map(|dip| dip.begin as f64);
    let distances: Vec<_> = begins.clone().zip(begins.skip(1)).map(|(one, next)| next - one).collect();
    let distances = Sample::new(distances)?;
    let median = distances.median();
    // A dip begins within a value: distances are off by up to one.
    let limit = (REGULAR * median).max(1.0);
    let regular = distances.values().iter().filter(|distance| (**distance - median).abs() <= limit).count();
    // One in five may be missed, or be another's.
    Ok((regular * 5 >= distances.count() * 4 && median > 2.0).then_some(median))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// A series with noise of ±1 % and a dip to 70 % every `period` values.
    fn series(length: usize, period: usize, seed: u64) -> Sample {
        let mut random = Pcg64::seed_from_u64(seed);
        let value = |number: usize| {
            let level = if number % period == period - 1 { 70.0 } else { 100.0 };
            level * random.random_range(0.99..1.01)
        };
        Sample::new((0..length).map(value).collect::<Vec<_>>()).unwrap()
    }

    proptest! {
        #[test]
        fn a_known_period_is_found(period in 3usize..60, seed in any::<u64>()) {
            let dips = Dips::of(&series(600, period, seed)).unwrap();
            prop_assert_eq!(dips.dips.len(), 600 / period);
            prop_assert_eq!(dips.period_values, Some(period as f64));
            let share = (600 / period) as f64 / 600.0;
            prop_assert!((dips.share - share).abs() < 1e-12);
            prop_assert!((dips.lost_share / share - 0.3).abs() < 0.02, "{}", dips.lost_share);
            prop_assert!(dips.dips.iter().all(|dip| dip.values == 1 && (dip.lowest - 0.7).abs() < 0.02));
        }

        #[test]
        fn noise_alone_has_no_dips(seed in any::<u64>()) {
            let dips = Dips::of(&series(600, usize::MAX, seed)).unwrap();
            prop_assert!(dips.dips.is_empty() && dips.share == 0.0 && dips.period_values.is_none());
            prop_assert!(dips.lost_share.is_sign_positive());
        }
    }

    fn of(values: &[f64]) -> Dips {
        Dips::of(&Sample::new(values).unwrap()).unwrap()
    }

    #[test]
    fn dips_at_odd_times_have_no_period() {
        let mut values = [100.0; 300];
        for place in [3, 10, 90, 101, 250, 260] {
            values[place] = 50.0;
        }
        let dips = of(&values);
        assert_eq!((dips.dips.len(), dips.period_values), (6, None));
    }

    #[test]
    fn neighbouring_values_are_one_dip() {
        let mut values = [100.0; 50];
        values[20] = 90.0;
        values[21] = 40.0;
        let dips = of(&values);
        assert_eq!(dips.dips, [Dip { begin: 20, values: 2, lowest: 0.4 }]);
        assert!((dips.share - 0.04).abs() < 1e-12 && (dips.lost_share - 0.7 / 50.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_hardly_less_is_no_dip_however_quiet_the_rest() {
        let mut values = [100.0; 50];
        values[20] = 99.5;
        assert!(of(&values).dips.is_empty());
    }

    #[test]
    fn a_period_is_found_though_one_dip_in_ten_is_missed() {
        let mut values = [100.0; 600];
        for place in (9..600).step_by(30).filter(|place| place % 300 != 159) {
            values[place] = 50.0;
        }
        assert_eq!(of(&values).period_values, Some(30.0));
    }

    #[test]
    fn values_that_scatter_widely_have_no_threshold_to_trust() {
        let values: Vec<f64> = (0..60).map(|number| if number % 2 == 0 { 900.0 } else { 10.0 }).collect();
        let dips = of(&values);
        assert!(dips.is_blind() && dips.threshold == 0.0 && dips.dips.is_empty(), "{dips:?}");
        assert!(dips.scatter > 1.0, "{dips:?}");
        let dips = of(&[100.0, 101.0, 99.0, 102.0, 98.0, 40.0]);
        assert!(!dips.is_blind() && dips.dips.len() == 1, "{dips:?}");
    }

    #[test]
    fn a_series_without_scale_is_refused() {
        assert!(Dips::of(&Sample::new([0.0, 0.0, 1.0]).unwrap()).is_err());
    }
}
