//! How far repeated measurements of the same thing lie apart.

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sample::Sample;

/// Spread of repeated measurements as a share of their median: 0 is silence.
///
/// [`range`](Self::range) is the published figure (`MongoDB`, *Repeatable performance tests: EC2 instances are
/// neither good nor bad*). It can only grow with more repetitions, so compare it at equal numbers (published:
/// 25, five runs in each of five clusters); the other two do not have this flaw. Nothing is assumed of the
/// distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Noise {
    /// (max − min) / median.
    pub range: f64,
    /// Interquartile range / median, type 7 quartiles.
    pub iqr: f64,
    /// Median absolute deviation / median, unscaled.
    pub mad: f64,
}

impl Noise {
    /// The noise of a sample whose median is not (nearly) zero.
    pub fn of(sample: &Sample) -> Result<Self> {
        let median = sample.median().abs();
        let noise = Self {
            range: (sample.max() - sample.min()) / median,
            iqr: (sample.quantile(0.75)? - sample.quantile(0.25)?) / median,
            mad: sample.mad() / median,
        };
        if median == 0.0 || !noise.range.is_finite() {
            return Err(Error::usage(format!("cannot relate noise to a median of {median:e}")));
        }
        Ok(noise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn noise_of_one_to_five_is_four_thirds() {
        let noise = Noise::of(&Sample::new([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap()).unwrap();
        assert_eq!(noise, Noise { range: 4.0 / 3.0, iqr: 2.0 / 3.0, mad: 1.0 / 3.0 });
    }

    #[test]
    fn one_outlier_moves_the_range_and_leaves_the_others() {
        let calm = Noise::of(&Sample::new([10.0, 10.1, 9.9, 10.0, 10.1]).unwrap()).unwrap();
        let hit = Noise::of(&Sample::new([10.0, 10.1, 9.9, 10.0, 20.0]).unwrap()).unwrap();
        assert!(hit.range > 1.0 && calm.range < 0.03);
        assert!((hit.iqr - calm.iqr).abs() < 0.001 && (hit.mad - calm.mad).abs() < 0.011, "{hit:?}");
    }

    #[test]
    fn a_median_without_scale_is_refused() {
        for values in [vec![0.0; 5], vec![-1.0, 0.0, 1.0], vec![0.0, 1e-320, 1e150]] {
            assert!(Noise::of(&Sample::new(values.clone()).unwrap()).is_err(), "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn the_unit_does_not_matter_and_the_range_is_the_widest(
            values in prop::collection::vec(1.0..1e3, 1..40), unit in 1e-6..1e6_f64, sign in prop::bool::ANY,
        ) {
            let unit = if sign { unit } else { -unit };
            let noise = Noise::of(&Sample::new(values.clone()).unwrap()).unwrap();
            let scaled: Vec<f64> = values.iter().map(|value| value * unit).collect();
            let other = Noise::of(&Sample::new(scaled).unwrap()).unwrap();
            prop_assert!((noise.range - other.range).abs() < 1e-9 && (noise.mad - other.mad).abs() < 1e-9);
            prop_assert!(0.0 <= noise.iqr && noise.iqr <= noise.range + 1e-12);
            prop_assert!(0.0 <= noise.mad && noise.mad <= noise.range + 1e-12);
        }
    }
}
