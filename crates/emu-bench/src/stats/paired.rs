//! Ratios from pairs that were measured next to each other.

use emu_core::{Error, Result};
use serde::Serialize;

use super::bootstrap::Bootstrap;
use super::interval::{Interval, Level};
use super::sample::Sample;

/// One emulated and one native rate from the same block, in the same unit of work per time.
///
/// Both met the same state of the machine, so what changes from block to block (clock, heat, neighbours) leaves
/// their ratio alone; measuring all of A and then all of B does not have that property (Abedi & Brecht,
/// ICPE 2017: identical systems told apart with confidence).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pair {
    emulated: f64,
    native: f64,
}

impl Pair {
    /// A pair of single measurements. A rate of zero is a stall: it has no ratio, and must be reported as a failed measurement.
    pub fn new(emulated: f64, native: f64) -> Result<Self> {
        for (name, rate) in [("emulated", emulated), ("native", native)] {
            if let Some(why) = unfit(rate) {
                return Err(Error::usage(format!("cannot pair the {name} rate {rate}: {why}"))
                    .hint("a window that cannot have been measured so has no rate: take it again"));
            }
        }
        Ok(Self { emulated, native })
    }

    /// ln(emulated / native): 0 when the emulation changes nothing, −0.69 at half speed.
    pub fn log_ratio(&self) -> f64 {
        self.emulated.ln() - self.native.ln()
    }
}

/// Why a value is no rate, speed or ratio; `None` for one that is finite and above zero.
pub(super) fn unfit(value: f64) -> Option<&'static str> {
    match value {
        value if value.is_nan() => Some("it is no number"),
        value if value.is_infinite() => Some("it is not finite"),
        value if value <= 0.0 => Some("it is not above zero"),
        _ => None,
    }
}

/// Where the middle of the ratios is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Centre {
    /// Geometric mean with a t interval: the shorter interval, when log ratios are about normal.
    Mean,
    /// Median: not moved by single disturbed pairs. By [`Interval::of_median`] from 15 pairs on, below by signed ranks.
    Median(Bootstrap),
}

/// From so many pairs on, the interval of a median does without the assumption that they scatter evenly to both sides.
const MANY: usize = 15;

/// Log ratios ln(emulated / native) of independent pairs taken under the same settings. They make twice as fast and half as
/// fast equally far from 1, which differences and plain ratios do not (Fleming & Wallace 1986). Intervals are transformed back;
/// they state the size of the effect and not only that there is one (Kalibera & Jones, arXiv 2007.10899).
#[derive(Debug, Clone, PartialEq)]
pub struct PairedRatios {
    logs: Sample,
}

impl PairedRatios {
    /// Collects the log ratios of pairs, of at least one.
    pub fn new(pairs: &[Pair]) -> Result<Self> {
        Ok(Self { logs: Sample::new(pairs.iter().map(Pair::log_ratio).collect::<Vec<_>>())? })
    }

    /// The log ratios, in the order of the pairs.
    pub fn logs(&self) -> &Sample {
        &self.logs
    }

    /// The same pairs relative to an ideal ratio: 1 where the emulation is perfect.
    pub fn relative_to(&self, ideal: f64) -> Result<Self> {
        if let Some(why) = unfit(ideal) {
            return Err(Error::usage(format!("cannot compare with the ideal ratio {ideal}: {why}")));
        }
        Ok(Self { logs: self.logs.map(|log| log - ideal.ln())? })
    }

    /// The ratio emulated / native with its interval.
    pub fn ratio(&self, centre: Centre, level: Level) -> Result<Interval> {
        let log = match centre {
            Centre::Mean => Interval::of_mean(&self.logs, level)?,
            Centre::Median(_) if self.logs.count() < MANY => Interval::of_differences(&self.logs, level),
            Centre::Median(bootstrap) => Interval::of_median(&self.logs, level, &bootstrap)?,
        };
        Ok(log.map(f64::exp))
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracles::{close, oracles};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_without_a_ratio_are_refused() {
        for (emulated, native) in [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)]
        {
            assert!(Pair::new(emulated, native).is_err(), "{emulated} {native}");
        }
        assert!(PairedRatios::new(&[]).is_err());
    }

    #[test]
    fn geometric_mean_ratios_agree_with_scipy() {
        for case in &oracles().paired {
            let pairs: Vec<Pair> =
                case.pairs.iter().map(|&(emulated, native)| Pair::new(emulated, native).unwrap()).collect();
            let ratio = PairedRatios::new(&pairs).unwrap().ratio(Centre::Mean, Level::P95).unwrap();
            close(ratio.estimate, case.ratio, "ratio");
            close(ratio.low, case.low, "low end");
            close(ratio.high, case.high, "high end");
        }
    }

    #[test]
    fn the_median_ratio_of_six_pairs_is_bounded_by_pairs() {
        let pairs: Vec<Pair> =
            [5.0, 1.0, 3.0, 2.0, 4.0, 6.0].map(|rate| Pair::new(rate, 2.0).unwrap()).to_vec();
        let ratio =
            PairedRatios::new(&pairs).unwrap().ratio(Centre::Median(Bootstrap::new(1)), Level::P95).unwrap();
        close(ratio.low, 0.5, "low end");
        close(ratio.high, 3.0, "high end");
        close(ratio.estimate, 12.0_f64.sqrt() / 2.0, "middle of the logs");
    }

    /// The native rate drifts by a factor of 20 over the run; the ratio of each pair is 0.4 ± 1 %.
    #[test]
    fn drift_that_both_sides_share_does_not_widen_the_interval() {
        let pairs: Vec<Pair> = (0..20)
            .map(|block| {
                let native = 100.0 * f64::from(1 + block);
                Pair::new(native * if block % 2 == 0 { 0.404 } else { 0.396 }, native).unwrap()
            })
            .collect();
        let ratios = PairedRatios::new(&pairs).unwrap();
        for centre in [Centre::Mean, Centre::Median(Bootstrap::new(5))] {
            let ratio = ratios.ratio(centre, Level::P95).unwrap();
            assert!(ratio.low > 0.39 && ratio.high < 0.41, "{ratio:?}");
        }
    }

    #[test]
    fn an_ideal_that_is_no_ratio_is_refused() {
        let ratios = PairedRatios::new(&[Pair::new(1.0, 2.0).unwrap()]).unwrap();
        for ideal in [0.0, -0.5, f64::NAN, f64::INFINITY] {
            assert!(ratios.relative_to(ideal).is_err(), "{ideal}");
        }
    }

    proptest! {
        #[test]
        fn exchanging_the_sides_inverts_ratio_and_interval(
            rates in prop::collection::vec((1e-3..1e3, 1e-3..1e3), 2..20),
        ) {
            let pair = |(emulated, native)| Pair::new(emulated, native).unwrap();
            let forth: Vec<Pair> = rates.iter().copied().map(pair).collect();
            let back: Vec<Pair> = rates.iter().map(|&(emulated, native)| pair((native, emulated))).collect();
            let ratio = |pairs: &[Pair]| PairedRatios::new(pairs).unwrap().ratio(Centre::Mean, Level::P95).unwrap();
            let (forth, back) = (ratio(&forth), ratio(&back));
            prop_assert!((forth.estimate * back.estimate - 1.0).abs() < 1e-9);
            prop_assert!((forth.low * back.high - 1.0).abs() < 1e-9);
        }

        #[test]
        fn the_unit_of_work_does_not_matter(
            rates in prop::collection::vec((1e-3..1e3, 1e-3..1e3), 2..20), unit in 1e-6..1e6,
        ) {
            let ratio = |unit: f64| {
                let pairs: Vec<Pair> = rates.iter().map(|(e, n)| Pair::new(e * unit, n * unit).unwrap()).collect();
                PairedRatios::new(&pairs).unwrap().ratio(Centre::Mean, Level::P95).unwrap().estimate
            };
            prop_assert!((ratio(unit) / ratio(1.0) - 1.0).abs() < 1e-9);
        }

        #[test]
        fn a_ratio_relative_to_itself_is_one(emulated in 1e-3..1e3, native in 1e-3..1e3) {
            let ratios = PairedRatios::new(&[Pair::new(emulated, native).unwrap()]).unwrap();
            let relative = ratios.relative_to(emulated / native).unwrap();
            prop_assert!(relative.logs().mean().abs() < 1e-12);
        }
    }
}
