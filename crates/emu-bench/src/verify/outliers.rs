//! Pairs that lie far from what most of them say.

use emu_core::Result;
use schemars::JsonSchema;
use serde::Serialize;

use crate::stats::{Band, Pair, Sample};

/// How many pairs have a ratio far from the median of all ratios.
///
/// The median does not show them: an emulation that is wrong in a quarter of its windows has the right median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Outliers {
    /// Pairs whose ratio differs from the median by more than `beyond`.
    pub pairs: usize,
    /// A share: twice the tolerance, or twice what any two native windows differed by, where that is more.
    pub beyond: f64,
}

impl Outliers {
    /// So many times the tolerance, or the noise, is far.
    const FAR: f64 = 2.0;

    /// One pair in so many may be far without a doubt about the median.
    const ONE_IN: usize = 8;

    /// Whether so many of the pairs are far that their median says too little.
    pub fn are_many_of(&self, pairs: usize) -> bool {
        self.pairs * Self::ONE_IN > pairs
    }

    /// Of pairs of an emulated and a native window, with controls of two native ones.
    pub(super) fn of(pairs: &[Pair], controls: &[Pair], tolerance: Band) -> Result<Self> {
        let logs = Sample::new(pairs.iter().map(Pair::log_ratio).collect::<Vec<_>>())?;
        let noise = controls.iter().map(|pair| pair.log_ratio().abs()).fold(0.0, f64::max);
        let beyond = Self::FAR * (tolerance.high() - 1.0).max(noise.exp_m1());
        let is_far = |log: &&f64| (**log - logs.median()).exp_m1().abs() > beyond;
        Ok(Self { pairs: logs.values().iter().filter(is_far).count(), beyond })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: &[f64]) -> Vec<Pair> {
        ratios.iter().map(|&ratio| Pair::new(ratio, 1.0).unwrap()).collect()
    }

    fn outliers(ratios: &[f64], controls: &[f64]) -> Outliers {
        Outliers::of(&pairs(ratios), &pairs(controls), Band::FIVE_PERCENT).unwrap()
    }

    #[test]
    fn pairs_are_far_beyond_twice_the_tolerance() {
        let found = outliers(&[1.0, 1.0, 0.99, 1.01, 1.09, 0.92, 0.89, 1.12, 0.7], &[]);
        assert_eq!(found.pairs, 3);
        assert!((found.beyond - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_bias_of_all_makes_none_of_them_far() {
        assert_eq!(outliers(&[0.5, 0.51, 0.49], &[1.0]).pairs, 0);
        assert_eq!(outliers(&[0.5, 0.51, 0.49, 0.4], &[1.0]).pairs, 1);
    }

    #[test]
    fn where_native_windows_differ_as_much_nothing_is_far() {
        let ratios = [1.0, 1.0, 1.0, 0.85];
        assert_eq!(outliers(&ratios, &[1.01, 0.99]).pairs, 1);
        for controls in [[1.0, 1.1], [0.9, 1.0]] {
            let found = outliers(&ratios, &controls);
            assert!(found.pairs == 0 && (0.2..0.23).contains(&found.beyond), "{found:?}");
        }
    }
}
