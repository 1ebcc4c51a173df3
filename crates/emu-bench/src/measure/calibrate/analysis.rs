//! What the samples of a calibration say: the published model, and what its R² hides.

use std::collections::BTreeMap;

use emu_core::{Error, Host, Result};
use serde::{Deserialize, Serialize};

use super::orders::{self, OrderEffect};
use super::{Sample, Threads};
use crate::stats::{self, Level, LinearFit, Segment};

/// The paper calls 0.9999 ideal and 0.9995 near ideal; below this a line is no model.
pub(super) const R_SQUARED_MIN: f64 = 0.99;

/// The largest residual that passes, as a share of the largest rate.
const RESIDUAL_MAX: f64 = 0.05;

/// Deviations up to this share are no finding: of quotas from being proportional, of orders from each other, of the
/// end from the begin.
pub(super) const NOTABLE: f64 = 0.05;

/// Change of the rate per CPU second, from low quotas to high ones, that points to the clock.
const CLOCK_NOTABLE: f64 = 0.08;

/// CPU time delivered, relative to the quota, below which something else limits.
const DELIVERED_MIN: f64 = 0.95;

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
    /// Whether no point is far from the line.
    pub fn pass(&self) -> bool {
        self.pass
    }
}

/// The samples of one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// How many threads solved.
    pub threads: Threads,
    /// The published model: GFLOPS = intercept + slope · quota.
    pub fit: LinearFit,
    /// The largest rate, in GFLOPS.
    pub max_gflops: f64,
    /// Quota at which the line is 0: CPUs that are paid for nothing; negative where low quotas get more than their
    /// share.
    pub dead_quota: f64,
    /// Mean deviation from what the median rate at the largest quota makes of a quota in proportion, as a share.
    pub proportional_mean: f64,
    /// The largest such deviation, with its sign.
    pub proportional_worst: f64,
    /// The quota where that is.
    pub worst_quota: f64,
    /// How far points are from the line.
    pub residuals: Residuals,
    /// Stretches of different behaviour, as many as the points justify.
    pub bands: Vec<Segment>,
    /// How orders differ; empty with one of them.
    pub orders: Vec<OrderEffect>,
    /// The least share of a quota's CPU time that was delivered, of those quotas that are less than their threads can
    /// use; of several samples of a quota the median.
    pub delivered: f64,
    /// The quota of which that was.
    #[serde(default)]
    pub delivered_at: f64,
    /// Rate per CPU second at the lowest third of quotas relative to the highest third.
    pub clock_ratio: f64,
}

impl Analysis {
    /// What the samples of this number of threads say.
    ///
    /// # Errors
    /// Usage, for fewer than three quotas.
    pub(super) fn of(samples: &[Sample], threads: Threads, cpus: usize) -> Result<Self> {
        let own: Vec<_> = samples
            .iter()
            .filter(|sample| sample.threads == threads.count(sample.quota, cpus))
            .copied()
            .collect();
        let (x, y): (Vec<f64>, Vec<f64>) = own.iter().map(|sample| (sample.quota, sample.gflops)).unzip();
        let fit = LinearFit::of(&x, &y, Level::P95)?;
        let (intercept, slope) = (fit.intercept.interval.estimate, fit.slope.interval.estimate);
        let max_gflops = stats::Sample::new(y.as_slice())?.max();
        let top = x.iter().copied().fold(0.0, f64::max);
        let per_cpu = median_of(own.iter().filter(|one| one.quota >= top).map(|one| one.gflops))? / top;
        let off = |sample: &Sample| sample.gflops / (per_cpu * sample.quota) - 1.0;
        let worst = largest(own.iter().map(|sample| (off(sample), sample.quota)))?;
        let residual = |sample: &Sample| (sample.gflops - intercept - slope * sample.quota) / max_gflops;
        let (largest_residual, at_quota) =
            largest(own.iter().map(|sample| (residual(sample), sample.quota)))?;
        let (delivered, delivered_at) = delivered(&own)?;
        let per_cpu_second = |low: bool| {
            let third = |sample: &&Sample| {
                if low { sample.quota <= top / 3.0 + 1e-9 } else { sample.quota >= top * 2.0 / 3.0 - 1e-9 }
            };
            median_of(own.iter().filter(third).map(|sample| sample.gflops / sample.cpus_used))
        };
        Ok(Self {
            threads,
            fit,
            max_gflops,
            dead_quota: -intercept / slope,
            proportional_mean: own.iter().map(|sample| off(sample).abs()).sum::<f64>() / own.len() as f64,
            proportional_worst: worst.0,
            worst_quota: worst.1,
            residuals: Residuals {
                largest_share: largest_residual.abs(),
                at_quota,
                pass: largest_residual.abs() <= RESIDUAL_MAX,
            },
            bands: stats::segments(&x, &y)?,
            orders: orders::effects(&own)?,
            delivered,
            delivered_at,
            clock_ratio: per_cpu_second(true)? / per_cpu_second(false)?,
        })
    }

    /// The quota's rate on the line, in GFLOPS.
    pub fn predicted(&self, quota: f64) -> f64 {
        self.fit.intercept.interval.estimate + self.fit.slope.interval.estimate * quota
    }

    /// Whether the line is a model: R² of 0.99 at least, and no point far away from it.
    pub fn is_linear(&self) -> bool {
        self.fit.r_squared.is_some_and(|r_squared| r_squared >= R_SQUARED_MIN) && self.residuals.pass
    }
}

pub(super) fn median_of(values: impl Iterator<Item = f64>) -> Result<f64> {
    Ok(stats::Sample::new(values.collect::<Vec<_>>())?.median())
}

/// The least share of a quota that was delivered, with the quota.
///
/// A limit from outside holds back the large quotas alone, which a middle over all of them would hide. Where a quota
/// has a CPU for each thread they may leave some of it, as they wait for each other: such quotas count where there are
/// no others.
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

/// The value of the largest magnitude, with its place.
pub(super) fn largest(values: impl Iterator<Item = (f64, f64)>) -> Result<(f64, f64)> {
    values
        .max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))
        .ok_or_else(|| Error::usage("cannot analyse a calibration without samples"))
}

/// What the analyses mean, and which knob is likely to be responsible for what is not as it should be.
pub(super) fn verdict(analyses: &[Analysis], samples: &[Sample], host: &Host) -> String {
    let mut text = String::new();
    let mut say = |words: String| {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&words);
    };
    let wrong = samples.iter().filter(|sample| !sample.passed).count();
    if wrong > 0 {
        say(format!(
            "SAMPLES WITH A WRONG SOLUTION: {wrong}. Memory, CPU or clock speed of this machine cannot be trusted."
        ));
    }
    let Some(best) = analyses.first() else { return text };
    let percent = |share: f64| format!("{:+.1}%", share * 100.0);
    if best.is_linear() && best.proportional_worst.abs() <= NOTABLE {
        say("The rate is proportional to the quota: this machine can be calibrated by one number.".into());
    } else if best.is_linear() {
        say(format!(
            "The rate follows a line, but is not proportional to the quota: {} at {:.1} CPUs.",
            percent(best.proportional_worst),
            best.worst_quota
        ));
    } else {
        say("The rate does not follow a line: results at different quotas cannot be compared here.".into());
    }
    if best.delivered < DELIVERED_MIN {
        say(format!(
            "Of the quota of {:.2} CPUs only {:.1}% was delivered: look for a limit of a group above, other load, \
             steal, or threads that wait for each other.",
            best.delivered_at,
            best.delivered * 100.0
        ));
    }
    let governors = governors(host);
    if best.clock_ratio < 1.0 - CLOCK_NOTABLE {
        say(format!(
            "A CPU second is worth {} at low quotas: the clock rises with load ({governors}); the governor `performance` \
             is the knob.",
            percent(best.clock_ratio - 1.0)
        ));
    } else if best.clock_ratio > 1.0 + CLOCK_NOTABLE {
        say(format!(
            "A CPU second is worth {} at low quotas: many busy CPUs are slower ({governors}); turbo, heat, shared \
             caches or a second thread of the same core are the knobs.",
            percent(best.clock_ratio - 1.0)
        ));
    } else if best.bands.len() > 1 {
        say(format!(
            "There are {} bands although a CPU second is worth the same at low and high quotas: look for other load, or \
             for the period of the quota.",
            best.bands.len()
        ));
    }
    let all = analyses.iter().find(|one| one.threads == Threads::All && one.threads != best.threads);
    if let Some(all) = all.filter(|all| all.dead_quota - best.dead_quota > NOTABLE) {
        say(format!(
            "With threads on all CPUs {:.2} CPUs are lost instead of {:.2}: threads that wait for each other while they \
             are throttled; start as many as the quota fills.",
            all.dead_quota, best.dead_quota
        ));
    }
    for effect in &best.orders {
        if let Some(share) = effect.notable() {
            say(format!(
                "The order matters, or the machine was not the same in each pass: {} it is {} against {}, without a \
                 steady drift. Measure again with another --seed; if it stays, let the machine warm up or cool down \
                 between samples.",
                effect.order.name(),
                percent(share),
                effect.against.name()
            ));
        }
    }
    if let Some(drift) = best.orders.iter().find_map(OrderEffect::notable_drift) {
        say(format!(
            "The machine drifts, or was not the same in each pass: at the same quota its rate changed by {} from the first sample to the last, whatever \
             the order; let it warm up before, and see that nothing else runs.",
            percent(drift)
        ));
    }
    text
}

/// The governors of the host's clocks, or that none can be seen.
fn governors(host: &Host) -> String {
    let mut names: Vec<_> = host
        .cpufreq
        .iter()
        .flat_map(|cpufreq| &cpufreq.policies)
        .map(|policy| policy.governor.clone())
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        "no governor can be seen from here".into()
    } else {
        format!("governor {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Order;
    use super::*;
    use emu_core::Roots;

    fn sample(order: Order, quota: f64, threads: usize, gflops: f64, cpus_used: f64) -> Sample {
        Sample {
            order,
            pass: 0,
            quota,
            threads,
            solutions: 3,
            begin_seconds: 0.0,
            seconds: 2.0,
            gflops,
            cpus_used,
            residual: Some(0.01),
            passed: true,
        }
    }

    /// Samples of one order and thread from a rate for each quota.
    fn sweep(order: Order, rate: impl Fn(f64) -> f64) -> Vec<Sample> {
        let quotas = (1..=20).map(|tenth| f64::from(tenth) / 10.0);
        quotas.map(|quota| sample(order, quota, 2, rate(quota), quota)).collect()
    }

    fn host() -> Host {
        Host::detect(&Roots::system()).unwrap()
    }

    #[test]
    fn a_proportional_machine_is_called_so() {
        let samples = sweep(Order::Random, |quota| 60.0 * quota);
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert!(one.dead_quota.abs() < 1e-9 && one.proportional_worst.abs() < 1e-9 && one.is_linear());
        assert!((one.max_gflops - 120.0).abs() < 1e-9 && one.bands.len() == 1 && one.orders.is_empty());
        assert!(verdict(&[one], &samples, &host()).starts_with("The rate is proportional"));
    }

    #[test]
    fn a_constant_loss_is_seen_though_r_squared_is_1() {
        let samples = sweep(Order::Random, |quota| 60.0 * (quota - 0.08));
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert!(one.fit.r_squared.unwrap() > 0.999_999 && (one.dead_quota - 0.08).abs() < 1e-9);
        assert!((one.worst_quota - 0.1).abs() < 1e-9 && one.proportional_worst < -0.7);
        assert!(verdict(&[one], &samples, &host()).contains("not proportional to the quota: -79.2% at 0.1"));
    }

    #[test]
    fn a_clock_that_rises_with_load_is_named() {
        let samples = sweep(Order::Random, |quota| if quota < 1.25 { 20.0 * quota } else { 60.0 * quota });
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert!(!one.is_linear() && one.bands.len() == 2 && !one.residuals.pass());
        let words = verdict(&[one], &samples, &host());
        assert!(
            words.contains("does not follow a line") && words.contains("the clock rises with load"),
            "{words}"
        );
    }

    #[test]
    fn a_quota_that_is_not_delivered_is_no_matter_of_the_clock() {
        let samples: Vec<_> = sweep(Order::Random, |quota| 60.0 * quota.min(1.0))
            .into_iter()
            .map(|one| Sample { cpus_used: one.quota.min(0.9), ..one })
            .collect();
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        let words = verdict(&[one], &samples, &host());
        assert!(words.contains("Of the quota of 1.90 CPUs only 47.4% was delivered"), "{words}");
    }

    #[test]
    fn a_limit_from_outside_shows_though_most_quotas_are_below_it() {
        let samples: Vec<_> = sweep(Order::Random, |quota| 60.0 * quota.min(1.5))
            .into_iter()
            .map(|one| Sample { cpus_used: one.quota.min(1.5), ..one })
            .collect();
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert!((one.delivered - 1.5 / 1.9).abs() < 1e-9 && (one.delivered_at - 1.9).abs() < 1e-9);
        assert!(verdict(&[one], &samples, &host()).contains("a limit of a group above"));
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

    /// Two orders of which one is 10 % faster, and a machine that changes by so much over the measurement. Half of the
    /// quotas come in the one order first.
    fn ordered(drift: f64) -> Vec<Sample> {
        let mut samples = sweep(Order::Ascending, |quota| 66.0 * quota);
        samples.extend(sweep(Order::Random, |quota| 60.0 * quota));
        for (number, sample) in samples.iter_mut().enumerate() {
            let is_first = number % 2 == usize::from(sample.order == Order::Ascending);
            sample.pass = usize::from(sample.order == Order::Ascending) + if is_first { 0 } else { 2 };
            sample.begin_seconds = number as f64 + if is_first { 0.0 } else { 400.0 };
            sample.gflops *= 1.0 + drift * sample.begin_seconds / 439.0;
        }
        samples
    }

    #[test]
    fn an_order_that_matters_is_named_and_so_is_a_machine_that_drifts() {
        let samples = ordered(0.0);
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        let words = verdict(&[one], &samples, &host());
        assert!(words.contains("in each pass: ascending it is +10.0% against random"), "{words}");
        assert!(!words.contains("The machine drifts"), "{words}");
        let samples = ordered(-0.2);
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        let words = verdict(&[one], &samples, &host());
        assert!(words.contains("in each pass: ascending it is +"), "{words}");
        assert!(words.contains("its rate changed by -"), "{words}");
    }

    #[test]
    fn threads_that_wait_for_each_other_are_named() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * (quota - 0.1));
        let alone = (1..=10).map(|tenth| f64::from(tenth) / 10.0);
        samples.extend(alone.map(|quota| sample(Order::Random, quota, 1, 60.0 * quota, quota)));
        let analyses = Threads::EVERY.map(|threads| Analysis::of(&samples, threads, 2).unwrap());
        assert!(verdict(&analyses, &samples, &host()).contains("threads that wait for each other"));
    }

    #[test]
    fn wrong_solutions_come_first() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        samples[3].passed = false;
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert!(verdict(&[one], &samples, &host()).starts_with("SAMPLES WITH A WRONG SOLUTION: 1."));
    }
}
