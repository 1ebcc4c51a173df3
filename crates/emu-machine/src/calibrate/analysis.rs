//! What the samples of a calibration say, those left out that others have disturbed.

use std::collections::BTreeMap;

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::{Model, median_of};
use super::orders::{self, OrderEffect};
use super::{Sample, Threads};

/// The samples of one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Analysis {
    /// How many threads solved.
    pub threads: Threads,
    /// The model of the rates as they are, as published.
    #[serde(flatten)]
    pub measured: Model,
    /// That of the rates at equal core clock: each times the median clock of the samples by its own. `None` where the clock
    /// of one is not known.
    pub equal_clock: Option<Model>,
    /// How orders differ, by the rates as they are: what an order does to the clock is an effect of it. Empty with one of
    /// them.
    pub orders: Vec<OrderEffect>,
    /// The least share of a quota's CPU time that was delivered, of those quotas that are less than their threads can
    /// use; of several samples of a quota the median.
    pub delivered: f64,
    /// The quota of which that was.
    #[serde(default)]
    pub delivered_at: f64,
    /// Quotas of which every sample was disturbed: the least disturbed one stands for them, and nothing is certain of them.
    #[serde(default)]
    pub disturbed_quotas: Vec<f64>,
}

impl Analysis {
    pub(super) fn of(samples: &[Sample], threads: Threads, cpus: usize) -> Result<Self> {
        let (own, disturbed_quotas) = decisive(&own(samples, threads, cpus));
        let (delivered, delivered_at) = delivered(&own)?;
        let undisturbed: Vec<_> = own.iter().filter(|sample| !sample.is_disturbed()).copied().collect();
        Ok(Self {
            threads,
            measured: Model::of(&own)?,
            equal_clock: at_equal_clock(&own).map(|level| Model::of(&level)).transpose()?,
            orders: orders::effects(&undisturbed)?,
            delivered,
            delivered_at,
            disturbed_quotas,
        })
    }

    /// The model that counts: at equal core clock, where that is known.
    pub fn model(&self) -> &Model {
        self.equal_clock.as_ref().unwrap_or(&self.measured)
    }
}

pub(super) fn own(samples: &[Sample], threads: Threads, cpus: usize) -> Vec<Sample> {
    samples.iter().filter(|sample| sample.threads == threads.count(sample.quota, cpus)).copied().collect()
}

/// The undisturbed samples, and the least disturbed one of each quota that has none; and the list of these quotas.
pub(super) fn decisive(samples: &[Sample]) -> (Vec<Sample>, Vec<f64>) {
    let of = |quota: f64| samples.iter().filter(move |other| other.quota.to_bits() == quota.to_bits());
    let is_doubtful = |quota: &f64| of(*quota).all(Sample::is_disturbed);
    let is_least = |one: &Sample| of(one.quota).all(|other| one.disturbance() <= other.disturbance());
    let decides = |one: &&Sample| !one.is_disturbed() || (is_doubtful(&one.quota) && is_least(one));
    let mut doubtful: Vec<f64> = samples.iter().map(|sample| sample.quota).filter(is_doubtful).collect();
    doubtful.sort_by(f64::total_cmp);
    doubtful.dedup();
    (samples.iter().filter(decides).copied().collect(), doubtful)
}

/// The samples with their rates at the median core clock; `None` where the clock of one is not known.
pub(super) fn at_equal_clock(samples: &[Sample]) -> Option<Vec<Sample>> {
    let clocks = samples.iter().map(|sample| sample.clock_hz).collect::<Option<Vec<_>>>()?;
    let median = median_of(clocks.iter().copied()).ok()?;
    let level = samples
        .iter()
        .zip(clocks)
        .map(|(sample, clock)| Sample { gflops: sample.gflops * median / clock, ..*sample });
    Some(level.collect())
}

/// The least share of a quota that was delivered, by the median of its samples, and that quota. Not the median over all
/// quotas, as a limit from outside holds back large quotas only. Quotas of one CPU or more for each thread are left out where
/// there are smaller ones: threads that wait for each other do not use them up.
fn delivered(samples: &[Sample]) -> Result<(f64, f64)> {
    let is_used_up = |sample: &&Sample| sample.quota < sample.threads as f64 - 1e-9;
    let has_some = samples.iter().any(|sample| is_used_up(&sample));
    let mut shares: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| !has_some || is_used_up(sample)) {
        shares.entry(sample.quota.to_bits()).or_default().push(sample.cpus_used / sample.quota);
    }
    let mut least: Option<(f64, f64)> = None;
    for (quota, shares) in shares {
        let share = median_of(shares.into_iter())?;
        if least.is_none_or(|(least, _)| share < least) {
            least = Some((share, f64::from_bits(quota)));
        }
    }
    least.ok_or_else(|| Error::usage("cannot analyse a calibration without samples"))
}

#[cfg(test)]
mod tests {
    use super::super::Order;
    use super::super::testing::{sample, sweep, twice};
    use super::*;

    #[test]
    fn a_proportional_machine_has_a_line_through_0() {
        let samples = sweep(Order::Random, |quota| 60.0 * quota);
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        let model = one.model();
        assert!(model.dead_quota.abs() < 1e-9 && model.proportional_worst.abs() < 1e-9 && model.is_linear());
        assert!((model.max_gflops - 120.0).abs() < 1e-9 && one.orders.is_empty());
        assert!((model.per_cpu.unwrap().estimate - 60.0).abs() < 1e-9);
    }

    #[test]
    fn a_constant_loss_is_seen_though_r_squared_is_1() {
        let samples = sweep(Order::Random, |quota| 60.0 * (quota - 0.08));
        let model = Analysis::of(&samples, Threads::All, 2).unwrap().measured;
        assert!(model.fit.r_squared.unwrap() > 0.999_999 && (model.dead_quota - 0.08).abs() < 1e-9);
        assert!((model.worst_quota - 0.1).abs() < 1e-9 && model.proportional_worst < -0.7);
    }

    #[test]
    fn one_disturbed_sample_at_full_quota_makes_no_other_seem_off() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        samples.last_mut().unwrap().gflops *= 0.9;
        let model = Analysis::of(&samples, Threads::All, 2).unwrap().measured;
        assert!((model.worst_quota - 2.0).abs() < 1e-9 && (model.proportional_worst + 0.1).abs() < 1e-9);
        assert!((model.proportional_mean - 0.1 / 20.0).abs() < 1e-9, "{}", model.proportional_mean);
    }

    #[test]
    fn quotas_that_were_measured_once_support_no_band() {
        let rate = |quota: f64| if quota < 1.05 { 20.0 * quota } else { 60.0 * quota };
        let once = sweep(Order::Random, rate);
        let model = Analysis::of(&once, Threads::All, 2).unwrap().measured;
        assert!(model.bands.is_empty() && model.weighted.is_none() && model.is_surely_off_line().is_none());
        let model = Analysis::of(&twice(&once, 0.01), Threads::All, 2).unwrap().measured;
        let rates: Vec<_> = model.bands.iter().map(|band| band.per_cpu.unwrap()).collect();
        assert_eq!((rates.len(), model.is_surely_off_line()), (2, Some(true)));
        for (rate, must) in rates.iter().zip([20.0, 60.0]) {
            assert!((rate.estimate - must).abs() < 1e-6 && rate.low <= rate.high, "{rates:?}");
        }
    }

    #[test]
    fn a_line_by_weights_is_that_of_the_means() {
        let samples = twice(&sweep(Order::Random, |quota| 60.0 * quota - 3.0), 0.01);
        let model = Analysis::of(&samples, Threads::All, 2).unwrap().measured;
        assert!((model.predicted(1.0) - 57.0).abs() < 1e-9, "{:?}", model.weighted);
        assert!(model.places.iter().all(|place| place.count == 2 && place.sd.is_some()));
        assert_eq!((model.proportional_fails, model.bands.len()), (Some(true), 1));
    }

    #[test]
    fn machines_with_many_quotas_are_analysed() {
        let quotas = (1..=80).map(|tenth| f64::from(tenth) / 10.0);
        let once: Vec<_> = quotas.map(|quota| sample(Order::Random, quota, 8, 60.0 * quota)).collect();
        let model = Analysis::of(&twice(&once, 0.01), Threads::All, 8).unwrap().measured;
        assert_eq!((model.places.len(), model.proportional_fails), (80, Some(false)));
    }

    #[test]
    fn a_disturbed_sample_does_not_decide() {
        let mut samples = twice(&sweep(Order::Random, |quota| 60.0 * quota), 0.01);
        (samples[4].gflops, samples[4].stolen) = (1.0, Some(0.3));
        // Of one quota both are disturbed, the second one less.
        (samples[10].stolen, samples[11].foreign) = (Some(0.4), Some(0.2));
        samples[10].gflops = 1.0;
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert_eq!(one.disturbed_quotas, [samples[10].quota]);
        assert_eq!(one.measured.fit.points, 38);
        assert!(one.measured.is_linear() && one.measured.is_proportional(), "{:?}", one.measured);
    }

    #[test]
    fn a_clock_that_moves_is_taken_out_where_every_sample_has_one() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        for (number, sample) in samples.iter_mut().enumerate() {
            let factor = if number % 2 == 0 { 1.0 } else { 1.14 };
            sample.gflops *= factor;
            sample.clock_hz = Some(2.8e9 * factor);
        }
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        let equal = one.equal_clock.as_ref().unwrap();
        assert!(!one.measured.residuals.pass && equal.residuals.largest_share < 1e-9);
        assert!(!one.measured.is_proportional() && equal.is_proportional());
        // The median clock lies between both.
        assert!((equal.fit.slope.interval.estimate - 60.0 * 1.07).abs() < 1e-9);
        assert_eq!(one.model(), equal);
        samples[7].clock_hz = None;
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert_eq!((&one.equal_clock, one.model()), (&None, &one.measured));
    }

    #[test]
    fn records_without_what_was_around_their_samples_are_read() {
        let samples = sweep(Order::Random, |quota| 60.0 * quota);
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        let mut json = serde_json::to_value(&one).unwrap();
        assert!(json["fit"].is_object(), "the form has not changed: {json}");
        json.as_object_mut().unwrap().remove("equal_clock").unwrap();
        assert_eq!(serde_json::from_value::<Analysis>(json).unwrap(), one);
        let mut json = serde_json::to_value(samples[0]).unwrap();
        for field in ["clock_hz", "stolen", "foreign"] {
            json.as_object_mut().unwrap().remove(field).unwrap();
        }
        assert_eq!(serde_json::from_value::<Sample>(json).unwrap(), samples[0]);
    }

    #[test]
    fn a_limit_from_outside_shows_though_most_quotas_are_below_it() {
        let samples: Vec<_> = sweep(Order::Random, |quota| 60.0 * quota.min(1.5))
            .into_iter()
            .map(|one| Sample { cpus_used: one.quota.min(1.5), ..one })
            .collect();
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert!((one.delivered - 1.5 / 1.9).abs() < 1e-9 && (one.delivered_at - 1.9).abs() < 1e-9);
    }

    #[test]
    fn threads_that_leave_a_part_of_all_cpus_are_no_limit() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        samples.last_mut().unwrap().cpus_used = 1.8;
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert!((one.delivered - 1.0).abs() < 1e-9, "{}", one.delivered);
        let whole: Vec<_> = samples.into_iter().map(|one| Sample { threads: 1, ..one }).collect();
        assert!(delivered(&whole[9..]).unwrap().0 < 0.91, "there are no others");
        assert!(delivered(&[]).is_err());
    }

    #[test]
    fn one_disturbed_sample_of_several_is_no_limit() {
        let mut samples = sweep(Order::Ascending, |quota| 60.0 * quota);
        samples[3].cpus_used = 0.1;
        samples.extend(sweep(Order::Descending, |quota| 60.0 * quota));
        samples.extend(sweep(Order::Random, |quota| 60.0 * quota));
        assert!((Analysis::of(&samples, Threads::All, 2).unwrap().delivered - 1.0).abs() < 1e-9);
    }
}
