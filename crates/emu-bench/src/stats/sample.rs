//! A validated set of measurements and its descriptive statistics.

use emu_core::{Error, Result};

/// Largest magnitude accepted: the squares of deviations must stay finite when summed.
const MAGNITUDE_MAX: f64 = 1e150;

/// Measurements of one quantity in one unit, in the order they were taken: at least one, all finite. Nothing is assumed of
/// their distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    values: Vec<f64>,
    sorted: Vec<f64>,
}

impl Sample {
    /// Takes measurements over: at least one, none of them NaN, infinite or beyond ±1e150, whose square overflows.
    pub fn new(values: impl Into<Vec<f64>>) -> Result<Self> {
        let values = values.into();
        if values.is_empty() {
            return Err(Error::usage("cannot describe an empty sample").hint("take at least one measurement"));
        }
        let outside = |value: &f64| !value.is_finite() || value.abs() > MAGNITUDE_MAX;
        if let Some((index, value)) = values.iter().enumerate().find(|(_, value)| outside(value)) {
            return Err(Error::usage(format!(
                "cannot use measurement {index} of {}: {value:e} is not a finite number within ±{MAGNITUDE_MAX:e}",
                values.len()
            )));
        }
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        Ok(Self { values, sorted })
    }

    /// The measurements in the order they were taken.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The measurements from the smallest to the largest.
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// How many measurements there are; at least 1.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The smallest measurement.
    pub fn min(&self) -> f64 {
        order_statistic(&self.sorted, 0)
    }

    /// The largest measurement.
    pub fn max(&self) -> f64 {
        order_statistic(&self.sorted, self.sorted.len() - 1)
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> f64 {
        let n = self.count() as f64;
        let rough = self.values.iter().sum::<f64>() / n;
        // The second pass removes the rounding of the first (Chan, Golub & LeVeque 1983): no mean lies outside of them.
        let mean = rough + self.values.iter().map(|value| value - rough).sum::<f64>() / n;
        mean.clamp(self.min(), self.max())
    }

    /// Standard deviation with the divisor n − 1; `None` for a single measurement.
    pub fn sd(&self) -> Option<f64> {
        if self.count() < 2 {
            return None;
        }
        let mean = self.mean();
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        Some((squares / (self.count() - 1) as f64).sqrt())
    }

    /// Coefficient of variation: [`sd`](Self::sd) over the magnitude of the mean. `None` for a single
    /// measurement or a mean of zero.
    pub fn cv(&self) -> Option<f64> {
        let mean = self.mean();
        if mean == 0.0 {
            return None;
        }
        self.sd().map(|sd| sd / mean.abs())
    }

    /// The middle measurement, or the midpoint of the middle two.
    pub fn median(&self) -> f64 {
        quantile(&self.sorted, 0.5)
    }

    /// Median absolute deviation from the median, unscaled: multiply by 1.4826 to estimate the standard
    /// deviation of normal data (Hampel 1974).
    pub fn mad(&self) -> f64 {
        let median = self.median();
        let mut deviations: Vec<f64> = self.values.iter().map(|value| (value - median).abs()).collect();
        deviations.sort_by(f64::total_cmp);
        quantile(&deviations, 0.5)
    }

    /// The `share` quantile by linear interpolation of the order statistics: type 7 of Hyndman & Fan (1996),
    /// the default of R and `NumPy`.
    pub fn quantile(&self, share: f64) -> Result<f64> {
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::usage(format!("cannot take the quantile {share}: it is not within 0 and 1")));
        }
        Ok(quantile(&self.sorted, share))
    }

    pub(super) fn map(&self, function: impl Fn(f64) -> f64) -> Result<Self> {
        Self::new(self.values.iter().map(|&value| function(value)).collect::<Vec<_>>())
    }
}

/// Type 7 quantile of ascending, non-empty values; `share` within 0..=1.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = (sorted.len() - 1) as f64 * share;
    let below = order_statistic(sorted, position.floor() as usize);
    let above = order_statistic(sorted, position.ceil() as usize);
    (below + position.fract() * (above - below)).clamp(below, above)
}

#[expect(clippy::indexing_slicing, reason = "callers pass non-empty slices and ranks below their length")]
pub(super) fn order_statistic(sorted: &[f64], index: usize) -> f64 {
    sorted[index]
}

#[cfg(test)]
mod tests {
    use super::super::oracles::{close, oracles};
    use super::*;
    use emu_core::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_a_measurement_is_refused() {
        for bad in [vec![], vec![f64::NAN], vec![1.0, f64::INFINITY], vec![f64::NEG_INFINITY], vec![2e150]] {
            let error = Sample::new(bad.clone()).expect_err("must be refused");
            assert_eq!(error.kind(), ErrorKind::Usage, "{bad:?}");
        }
    }

    #[test]
    fn the_refusal_names_the_measurement() {
        let error = Sample::new([1.0, f64::NAN, 2.0]).expect_err("must be refused");
        assert!(error.to_string().contains("measurement 1 of 3: NaN"), "{error}");
    }

    #[test]
    fn a_single_measurement_has_no_spread() {
        let one = Sample::new([7.0]).unwrap();
        assert_eq!((one.mean(), one.median(), one.mad()), (7.0, 7.0, 0.0));
        assert_eq!((one.sd(), one.cv()), (None, None));
        assert_eq!((one.quantile(0.0).unwrap(), one.quantile(0.3).unwrap()), (7.0, 7.0));
    }

    #[test]
    fn a_mean_of_zero_has_no_coefficient_of_variation() {
        assert_eq!(Sample::new([-1.0, 1.0]).unwrap().cv(), None);
    }

    #[test]
    fn the_largest_accepted_values_keep_every_figure_finite() {
        let wide = Sample::new([-1e150, 1e150, 1e150]).unwrap();
        assert!(wide.mean().is_finite() && wide.sd().unwrap().is_finite() && wide.mad().is_finite());
    }

    #[test]
    fn a_small_spread_on_a_large_offset_is_not_lost_to_rounding() {
        let offset = Sample::new([1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0]).unwrap();
        assert_eq!(offset.sd(), Some(1.0));
    }

    #[test]
    fn a_share_outside_zero_and_one_is_refused() {
        let sample = Sample::new([1.0, 2.0]).unwrap();
        for share in [-0.1, 1.1, f64::NAN] {
            assert!(sample.quantile(share).is_err(), "{share}");
        }
    }

    #[test]
    fn figures_agree_with_numpy_and_scipy() {
        for case in &oracles().samples {
            let sample = Sample::new(case.values.clone()).unwrap();
            close(sample.mean(), case.mean, "mean");
            close(sample.sd().unwrap(), case.sd, "sd");
            close(sample.cv().unwrap(), case.cv, "cv");
            close(sample.median(), case.median, "median");
            close(sample.mad(), case.mad, "mad");
            for &(share, expected) in &case.quantiles {
                close(sample.quantile(share).unwrap(), expected, "quantile");
            }
        }
    }

    proptest! {
        #[test]
        fn centre_and_quantiles_lie_within_the_measurements(
            values in prop::collection::vec(-1e6..1e6, 1..60), low in 0.0..1.0, high in 0.0..1.0,
        ) {
            let sample = Sample::new(values).unwrap();
            let within = sample.min()..=sample.max();
            prop_assert!(within.contains(&sample.mean()) && within.contains(&sample.median()));
            let (low, high): (f64, f64) = if low <= high { (low, high) } else { (high, low) };
            prop_assert!(sample.quantile(low).unwrap() <= sample.quantile(high).unwrap());
            prop_assert!(sample.mad() >= 0.0 && sample.mad() <= sample.max() - sample.min());
        }

        #[test]
        fn shifting_moves_the_centre_and_keeps_the_spread(
            values in prop::collection::vec(-1e3..1e3, 2..40), shift in -1e3..1e3_f64,
        ) {
            let sample = Sample::new(values).unwrap();
            let moved = sample.map(|value| value + shift).unwrap();
            prop_assert!((moved.mean() - sample.mean() - shift).abs() < 1e-9);
            prop_assert!((moved.median() - sample.median() - shift).abs() < 1e-9);
            prop_assert!((moved.sd().unwrap() - sample.sd().unwrap()).abs() < 1e-9);
            prop_assert!((moved.mad() - sample.mad()).abs() < 1e-9);
        }
    }
}
