//! What the samples of a calibration say: the published model, and what its R² hides.

use std::collections::BTreeMap;

use emu_bench::stats::{self, Level, LinearFit, Segment};
use emu_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::deviations::{NOTABLE, largest, median_of};
use super::orders::{self, OrderEffect};
use super::{Sample, Threads};

/// The paper calls 0.9999 ideal and 0.9995 near ideal; below this a line is no model.
const R_SQUARED_MIN: f64 = 0.99;

/// The largest residual that passes, as a share of the largest rate.
const RESIDUAL_MAX: f64 = 0.05;

/// How far points are from the line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    /// The largest, as a share of the largest rate.
    pub largest_share: f64,
    /// The quota where that is.
    pub at_quota: f64,
    /// Whether it is at most 5 %.
    pass: bool,
}

impl Residuals {
    /// What a line leaves over of the rates that it was fitted to.
    pub(super) fn of(fit: &LinearFit, quotas: &[f64], rates: &[f64]) -> Result<Self> {
        let most = stats::Sample::new(rates)?.max();
        let (intercept, slope) = (fit.intercept.interval.estimate, fit.slope.interval.estimate);
        let share = |(quota, rate): (&f64, &f64)| ((rate - intercept - slope * quota) / most, *quota);
        let (share, at_quota) = largest(quotas.iter().zip(rates).map(share))?;
        Ok(Self { largest_share: share.abs(), at_quota, pass: share.abs() <= RESIDUAL_MAX })
    }

    /// Whether no point is far from the line.
    pub fn pass(&self) -> bool {
        self.pass
    }
}

/// Whether a line is a model: R² of 0.99 at least, and no point far away from it.
pub(super) fn is_linear(fit: &LinearFit, residuals: &Residuals) -> bool {
    fit.r_squared.is_some_and(|r_squared| r_squared >= R_SQUARED_MIN) && residuals.pass
}

/// The published model of some rates, and how far they are from it and from being proportional.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// GFLOPS = intercept + slope · quota.
    pub fit: LinearFit,
    /// The largest rate, in GFLOPS.
    pub max_gflops: f64,
    /// Quota at which the line is 0: CPUs that are paid for nothing; negative where low quotas get more than their
    /// share.
    pub dead_quota: f64,
    /// Mean deviation from the proportional rate, as a share. Proportional is the quota times the median of rate by
    /// quota: every quota counts alike, and no single sample, such as that of the largest quota, makes all others seem
    /// off.
    pub proportional_mean: f64,
    /// The largest such deviation, with its sign.
    pub proportional_worst: f64,
    /// The quota where that is.
    pub worst_quota: f64,
    /// How far points are from the line.
    pub residuals: Residuals,
    /// Stretches of different behaviour, as many as the points justify.
    pub bands: Vec<Segment>,
    /// Rate per CPU second at the lowest third of quotas relative to the highest third.
    pub clock_ratio: f64,
}

impl Model {
    fn of(samples: &[Sample]) -> Result<Self> {
        let (quotas, rates): (Vec<f64>, Vec<f64>) =
            samples.iter().map(|sample| (sample.quota, sample.gflops)).unzip();
        let fit = LinearFit::of(&quotas, &rates, Level::P95)?;
        let per_cpu = median_of(samples.iter().map(|sample| sample.gflops / sample.quota))?;
        let off = |sample: &Sample| sample.gflops / (per_cpu * sample.quota) - 1.0;
        let (proportional_worst, worst_quota) =
            largest(samples.iter().map(|sample| (off(sample), sample.quota)))?;
        let top = quotas.iter().copied().fold(0.0, f64::max);
        let per_cpu_second = |low: bool| {
            let third = |sample: &&Sample| {
                if low { sample.quota <= top / 3.0 + 1e-9 } else { sample.quota >= top * 2.0 / 3.0 - 1e-9 }
            };
            median_of(samples.iter().filter(third).map(|sample| sample.gflops / sample.cpus_used))
        };
        Ok(Self {
            fit,
            max_gflops: stats::Sample::new(rates.as_slice())?.max(),
            dead_quota: -fit.intercept.interval.estimate / fit.slope.interval.estimate,
            proportional_mean: samples.iter().map(|sample| off(sample).abs()).sum::<f64>()
                / samples.len() as f64,
            proportional_worst,
            worst_quota,
            residuals: Residuals::of(&fit, &quotas, &rates)?,
            bands: stats::segments(&quotas, &rates)?,
            clock_ratio: per_cpu_second(true)? / per_cpu_second(false)?,
        })
    }

    /// The quota's rate on the line, in GFLOPS.
    pub fn predicted(&self, quota: f64) -> f64 {
        self.fit.intercept.interval.estimate + self.fit.slope.interval.estimate * quota
    }

    /// Whether the line is a model: R² of 0.99 at least, and no point far away from it.
    pub fn is_linear(&self) -> bool {
        is_linear(&self.fit, &self.residuals)
    }

    /// Whether no quota is off the proportional rate by more than 5 %.
    pub fn is_proportional(&self) -> bool {
        self.proportional_worst.abs() <= NOTABLE
    }
}

/// The samples of one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// How many threads solved.
    pub threads: Threads,
    /// The model of the rates as they are, as published.
    #[serde(flatten)]
    pub measured: Model,
    /// That of the rates at equal core clock: each times the median clock of the samples by its own. `None` where the clock
    /// of one is not known.
    #[serde(default)]
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
}

impl Analysis {
    /// What the samples of this number of threads say.
    ///
    /// # Errors
    /// Usage, for fewer than three quotas.
    pub(super) fn of(samples: &[Sample], threads: Threads, cpus: usize) -> Result<Self> {
        let own = own(samples, threads, cpus);
        let (delivered, delivered_at) = delivered(&own)?;
        Ok(Self {
            threads,
            measured: Model::of(&own)?,
            equal_clock: at_equal_clock(&own).map(|level| Model::of(&level)).transpose()?,
            orders: orders::effects(&own)?,
            delivered,
            delivered_at,
        })
    }

    /// The model that counts: at equal core clock, where that is known.
    pub fn model(&self) -> &Model {
        self.equal_clock.as_ref().unwrap_or(&self.measured)
    }
}

/// The samples of one number of threads.
pub(super) fn own(samples: &[Sample], threads: Threads, cpus: usize) -> Vec<Sample> {
    samples.iter().filter(|sample| sample.threads == threads.count(sample.quota, cpus)).copied().collect()
}

/// The samples with the rates that they would have had at the median core clock; `None` where the clock of one is not
/// known.
pub(super) fn at_equal_clock(samples: &[Sample]) -> Option<Vec<Sample>> {
    let clocks = samples.iter().map(|sample| sample.clock_hz).collect::<Option<Vec<_>>>()?;
    let median = median_of(clocks.iter().copied()).ok()?;
    let level = samples
        .iter()
        .zip(clocks)
        .map(|(sample, clock)| Sample { gflops: sample.gflops * median / clock, ..*sample });
    Some(level.collect())
}

/// The quota of which the smallest share was delivered, and that share first; of each quota, the median of its samples.
///
/// It is not the median over all quotas, as a limit from outside holds back large quotas only. Quotas of one CPU or more
/// for each thread are left out where there are smaller ones: threads that wait for each other do not use them up.
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
    use super::super::testing::sweep;
    use super::*;

    #[test]
    fn a_proportional_machine_has_a_line_through_0() {
        let samples = sweep(Order::Random, |quota| 60.0 * quota);
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        let model = one.model();
        assert!(model.dead_quota.abs() < 1e-9 && model.proportional_worst.abs() < 1e-9 && model.is_linear());
        assert!((model.max_gflops - 120.0).abs() < 1e-9 && model.bands.len() == 1 && one.orders.is_empty());
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
    fn a_clock_that_moves_is_taken_out_where_every_sample_has_one() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        for (number, sample) in samples.iter_mut().enumerate() {
            let factor = if number % 2 == 0 { 1.0 } else { 1.14 };
            sample.gflops *= factor;
            sample.clock_hz = Some(2.8e9 * factor);
        }
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        let equal = one.equal_clock.as_ref().unwrap();
        assert!(!one.measured.residuals.pass() && equal.residuals.largest_share < 1e-9);
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
