//! Whether the order of quotas matters, told apart from a machine that drifts.
//!
//! Samples of two orders at the same quota differ by the order, by the time between them, and by chance. A line through the
//! logarithms of their ratios over the time between their passes has the drift as its slope, and the order as its height at
//! time 0: the ratio if both passes had been at the same moment. The passes ([`plan`](super::plan)) put each order before the
//! other at half of the quotas, so that time 0 lies between the points. It is the time between passes, not between samples:
//! within a pass quota and time go together, and what depends on the quota would seem a drift.
//!
//! The intervals hold the scatter within passes only. What differs from one pass to the next for another reason can look like
//! an effect of the order or a drift; a drift off a line, such as a machine that is faster in the first minutes, favours the
//! order of the first pass by half of that. Another run with another seed tells.

use emu_bench::stats::{Interval, Level, LinearFit};
use emu_core::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::{NOTABLE, largest, median_of};
use super::{Order, Sample};

/// How samples of one order differ from those of the random order, or of the first, at the same quotas, without what the
/// machine drifts along a straight line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OrderEffect {
    /// The order.
    pub order: Order,
    /// The order that it is compared with.
    pub against: Order,
    /// Median of the ratios of rates, less 1.
    pub median: f64,
    /// The largest deviation of a ratio from 1.
    pub worst: f64,
    /// The quota where that is.
    pub at_quota: f64,
    /// The mean ratio of rates at the same moment, less 1; `None` where it cannot be told from a drift: for fewer than
    /// three quotas, and where all passes of the one order are as far from those of the other.
    pub adjusted: Option<Interval>,
    /// By what share of the rate the machine drifts from the first sample to the last; `None` as for `adjusted`.
    pub drift: Option<Interval>,
}

impl OrderEffect {
    /// The mean ratio of rates, less 1, where the order matters: by more than 5 %, and more than drift and chance explain.
    pub fn notable(&self) -> Option<f64> {
        notable(self.adjusted)
    }

    /// By what share the machine drifts, where that is more than 5 % and more than chance explains.
    pub fn notable_drift(&self) -> Option<f64> {
        notable(self.drift)
    }
}

/// One that is more than 5 %, and with all of its interval more than half of that: a calibration has four such figures, and
/// intervals beside 0 alone would accuse a fifth of all calibrations by chance.
fn notable(share: Option<Interval>) -> Option<f64> {
    let is_sure = |share: &Interval| share.low.max(-share.high) > NOTABLE / 2.0;
    share.filter(|share| share.estimate.abs() > NOTABLE && is_sure(share)).map(|share| share.estimate)
}

struct Couple {
    quota: f64,
    passes: [usize; 2],
    /// Logarithm of the ratio of their rates.
    ratio: f64,
    /// Time from the middle of the other to the middle of the one, in seconds; negative where the one came first.
    apart: f64,
}

pub(super) fn effects(samples: &[Sample]) -> Result<Vec<OrderEffect>> {
    let mut orders: Vec<Order> = samples.iter().map(|sample| sample.order).collect();
    orders.sort_by_key(|order| std::cmp::Reverse(*order as u8));
    orders.dedup();
    let Some((&against, others)) = orders.split_first() else { return Ok(Vec::new()) };
    others.iter().map(|&order| effect(samples, order, against)).collect()
}

fn effect(samples: &[Sample], order: Order, against: Order) -> Result<OrderEffect> {
    let couples = couples(samples, order, against);
    let (apart, ratios): (Vec<f64>, Vec<f64>) =
        couples.iter().map(|couple| (apart(&couples, couple.passes), couple.ratio)).unzip();
    // Fewer than three, or all as far apart: no line.
    let fit = LinearFit::of(&apart, &ratios, Level::P95).ok();
    let drift_per_second = fit.map_or(0.0, |fit| fit.slope.interval.estimate);
    let ratios: Vec<_> = couples
        .iter()
        .map(|couple| ((couple.ratio - drift_per_second * couple.apart).exp_m1(), couple.quota))
        .collect();
    let (worst, at_quota) = largest(ratios.iter().copied())?;
    Ok(OrderEffect {
        order,
        against,
        median: median_of(ratios.iter().map(|ratio| ratio.0))?,
        worst,
        at_quota,
        adjusted: fit.and_then(|fit| share(fit.intercept.interval, 1.0)),
        drift: fit.and_then(|fit| share(fit.slope.interval, span(samples))),
    })
}

/// The samples of `order`, each with that of `against` at its quota: the first with the first, the second with the second.
fn couples(samples: &[Sample], order: Order, against: Order) -> Vec<Couple> {
    let of = |order: Order, quota: f64| {
        samples
            .iter()
            .filter(move |sample| sample.order == order && sample.quota.to_bits() == quota.to_bits())
    };
    let all = samples.iter().filter(|sample| sample.order == order);
    all.filter_map(|one| {
        let number = of(order, one.quota).position(|other| std::ptr::eq(one, other))?;
        let other = of(against, one.quota).nth(number)?;
        Some(Couple {
            quota: one.quota,
            passes: [one.pass, other.pass],
            ratio: (one.gflops / other.gflops).ln(),
            apart: middle(one) - middle(other),
        })
    })
    .collect()
}

fn apart(couples: &[Couple], passes: [usize; 2]) -> f64 {
    let (sum, count) = couples
        .iter()
        .filter(|couple| couple.passes == passes)
        .fold((0.0, 0.0), |(sum, count), couple| (sum + couple.apart, count + 1.0));
    sum / count
}

fn middle(sample: &Sample) -> f64 {
    sample.begin_seconds + sample.seconds / 2.0
}

fn span(samples: &[Sample]) -> f64 {
    let (first, last) = samples
        .iter()
        .map(middle)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(first, last), at| (first.min(at), last.max(at)));
    last - first
}

/// The relative change of a value whose logarithm changes by `log` · `factor`; `None` where no number holds it.
fn share(log: Interval, factor: f64) -> Option<Interval> {
    let share = log.map(|log| (log * factor).exp_m1());
    [share.low, share.high].iter().all(|end| end.is_finite()).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Cell, balanced};
    use super::super::testing::measured;
    use super::*;

    /// What ascending and descending order do against the random one.
    fn both(samples: &[Sample]) -> [OrderEffect; 2] {
        let effects = effects(samples).unwrap();
        assert!(effects.iter().all(|effect| effect.against == Order::Random), "{effects:?}");
        let of = |order: Order| *effects.iter().find(|effect| effect.order == order).unwrap();
        [of(Order::Ascending), of(Order::Descending)]
    }

    #[test]
    fn a_machine_that_drifts_is_not_accused_of_an_order_effect() {
        for drift in [-0.3, -0.1, 0.0, 0.1, 0.3] {
            for seed in 0..20 {
                let samples = measured(balanced(seed), seed, 0.01, |_, time| 1.0 + drift * time);
                for effect in both(&samples) {
                    assert_eq!(effect.notable(), None, "{drift}, {seed}: {effect:?}");
                    assert!(effect.adjusted.unwrap().estimate.abs() < 0.03, "{drift}, {seed}: {effect:?}");
                    assert!(effect.median.abs() < 0.04, "{drift}, {seed}: {effect:?}");
                    let found = effect.drift.unwrap().estimate;
                    assert!((found - drift).abs() < 0.12, "{drift}, {seed}: {effect:?}");
                    assert!(
                        drift.abs() < 0.2 || effect.notable_drift().is_some(),
                        "{drift}, {seed}: {effect:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_order_that_matters_is_found_with_or_without_drift() {
        for drift in [-0.2, 0.0, 0.2] {
            for seed in 0..20 {
                let factor = |cell: &Cell, time: f64| {
                    (1.0 + drift * time) * if cell.order == Order::Ascending { 1.1 } else { 1.0 }
                };
                let [ascending, descending] = both(&measured(balanced(seed), seed, 0.01, factor));
                assert_eq!(descending.notable(), None, "{drift}, {seed}: {descending:?}");
                let found = ascending.notable().unwrap();
                assert!((found - 0.1).abs() < 0.03, "{drift}, {seed}: {ascending:?}");
                assert!((ascending.median - 0.1).abs() < 0.04, "{drift}, {seed}: {ascending:?}");
            }
        }
    }

    /// A machine that gets slower with the largest quota of its pass so far, as one that heats up.
    #[test]
    fn what_earlier_samples_of_a_pass_leave_behind_is_found() {
        for seed in 0..20 {
            let (mut pass, mut largest) = (usize::MAX, 0.0_f64);
            let factor = |cell: &Cell, _: f64| {
                if cell.pass != pass {
                    (pass, largest) = (cell.pass, 0.0);
                }
                let factor = 1.0 - 0.2 * largest;
                largest = largest.max(cell.quota);
                factor
            };
            let [ascending, _] = both(&measured(balanced(seed), seed, 0.01, factor));
            assert!(ascending.notable().is_some_and(|found| found > 0.0), "{seed}: {ascending:?}");
        }
    }

    #[test]
    fn chance_is_rarely_taken_for_an_order_effect() {
        let accused: usize = (0..200)
            .map(|seed| both(&measured(balanced(seed), seed, 0.1, |_, _| 1.0)))
            .map(|effects| effects.iter().filter(|effect| effect.notable().is_some()).count())
            .sum();
        assert!(accused <= 40, "{accused} of 400");
    }

    #[test]
    fn orders_as_one_block_each_cannot_be_told_from_a_drift() {
        let passes = vec![Order::Ascending, Order::Random];
        let factor = |cell: &Cell, _: f64| if cell.order == Order::Ascending { 1.1 } else { 1.0 };
        let effects = effects(&measured(passes, 3, 0.0, factor)).unwrap();
        let [effect] = effects[..] else { panic!("{effects:?}") };
        assert!((effect.median - 0.1).abs() < 1e-9 && (effect.worst - 0.1).abs() < 1e-9, "{effect:?}");
        assert_eq!((effect.adjusted, effect.drift), (None, None));
        assert_eq!((effect.notable(), effect.notable_drift()), (None, None));
    }

    #[test]
    fn one_order_has_none_to_be_compared_with() {
        let samples = measured(vec![Order::Random], 3, 0.0, |_, _| 1.0);
        assert!(effects(&samples).unwrap().is_empty());
        assert!(effects(&[]).unwrap().is_empty());
    }
}
