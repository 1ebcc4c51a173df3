//! What a calibration means, in words, and which knob is likely to be responsible for what is not as it should be.

use emu_bench::verify::{FOREIGN_MAX, STEAL_MAX};
use emu_core::Host;

use super::analysis::{Analysis, Model};
use super::deviations::NOTABLE;
use super::{OrderEffect, Sample, Threads, clock_range};

/// Change of the rate per CPU second, from low quotas to high ones, that points to the clock.
const CLOCK_NOTABLE: f64 = 0.08;

/// CPU time delivered, relative to the quota, below which something else limits.
const DELIVERED_MIN: f64 = 0.95;

/// What the analyses mean, and which knob is likely to be responsible for what is not as it should be.
pub(super) fn verdict(analyses: &[Analysis], samples: &[Sample], host: &Host) -> String {
    let wrong = samples.iter().filter(|sample| !sample.passed).count();
    let mut words = Vec::new();
    if wrong > 0 {
        words.push(format!(
            "SAMPLES WITH A WRONG SOLUTION: {wrong}. Memory, CPU or clock speed of this machine cannot be trusted."
        ));
    }
    if let Some(best) = analyses.first() {
        let governors = governors(host);
        words.push(line(analyses));
        words.extend(moved_clock(analyses, samples, &governors));
        if is_missed(analyses) {
            words.extend(others(samples));
        }
        words.extend(delivery(best));
        words.extend(knob(best.model(), &governors));
        words.extend(waiting(best, analyses));
        words.extend(orders(best));
    }
    words.join(" ")
}

fn percent(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}

/// Whether the rates follow a line, and the quota in proportion.
fn line(analyses: &[Analysis]) -> String {
    if let Some((_, which)) = failing(analyses, |model| !model.is_linear()) {
        return format!(
            "The rate does not follow a line{which}: results at different quotas cannot be compared here."
        );
    }
    if let Some((model, which)) = failing(analyses, |model| !model.is_proportional()) {
        return format!(
            "The rate follows a line, but is not proportional to the quota{which}: {} at {:.1} CPUs.",
            percent(model.proportional_worst),
            model.worst_quota
        );
    }
    "The rate is proportional to the quota: this machine can be calibrated by one number.".into()
}

/// The first model that fails; with the threads of all that do, where others do not.
fn failing(analyses: &[Analysis], fails: impl Fn(&Model) -> bool) -> Option<(&Model, String)> {
    let failing: Vec<&Analysis> = analyses.iter().filter(|one| fails(one.model())).collect();
    let names: Vec<_> = failing.iter().map(|one| one.threads.name()).collect();
    let which = if names.len() < analyses.len() {
        format!(" (threads: {})", names.join(", "))
    } else {
        String::new()
    };
    Some((failing.first()?.model(), which))
}

/// That the clock is the knob, where the rates at equal clock pass what those as they are miss.
fn moved_clock(analyses: &[Analysis], samples: &[Sample], governors: &str) -> Option<String> {
    let is_clock = |one: &Analysis| {
        one.equal_clock.as_ref().is_some_and(|equal| {
            (equal.is_linear() && !one.measured.is_linear())
                || (equal.is_proportional() && !one.measured.is_proportional())
        })
    };
    let (low, high) = clock_range(samples).filter(|_| analyses.iter().any(is_clock))?;
    Some(format!(
        "At equal core clock the rates pass what they miss as they are: the core clock moved by {:.1}% ({governors}). Fix \
         it with `emu doctor tune`, or, in a guest, whose host sets it, compare only what was measured at the same clock.",
        (high / low - 1.0) * 100.0
    ))
}

/// Whether anything is missed that others on the CPUs may be the reason of.
fn is_missed(analyses: &[Analysis]) -> bool {
    let passes = |model: &Model| model.is_linear() && model.is_proportional();
    let is_good =
        |one: &Analysis| passes(&one.measured) && passes(one.model()) && one.delivered >= DELIVERED_MIN;
    !analyses.iter().all(is_good)
}

/// What others had of the CPUs during samples, where that is more than a window of `emu verify` may lose to them.
fn others(samples: &[Sample]) -> Vec<String> {
    let notable = |limit: f64, share: fn(&Sample) -> Option<f64>| {
        let shares: Vec<f64> = samples.iter().filter_map(share).filter(|share| *share > limit).collect();
        let most = shares.iter().copied().reduce(f64::max)?;
        Some(format!(
            "more than {:.0}% of the CPUs' time during {} of {} samples, up to {:.1}%",
            limit * 100.0,
            shares.len(),
            samples.len(),
            most * 100.0
        ))
    };
    let stolen = notable(STEAL_MAX, |sample| sample.stolen)
        .map(|what| format!("The hypervisor took {what}: calibrate while its other guests are calm."));
    let foreign = notable(FOREIGN_MAX, |sample| sample.foreign)
        .map(|what| format!("Other tasks had {what}: see that nothing else runs."));
    stolen.into_iter().chain(foreign).collect()
}

/// CPU time that a quota promises and that was not delivered.
fn delivery(best: &Analysis) -> Option<String> {
    (best.delivered < DELIVERED_MIN).then(|| {
        format!(
            "Of the quota of {:.2} CPUs only {:.1}% was delivered: look for a limit of a group above, other load, \
             steal, or threads that wait for each other.",
            best.delivered_at,
            best.delivered * 100.0
        )
    })
}

/// What a CPU second that is not worth the same at all quotas points to.
fn knob(model: &Model, governors: &str) -> Option<String> {
    let worth = percent(model.clock_ratio - 1.0);
    if model.clock_ratio < 1.0 - CLOCK_NOTABLE {
        Some(format!(
            "A CPU second is worth {worth} at low quotas: the clock rises with load ({governors}); the governor \
             `performance` is the knob."
        ))
    } else if model.clock_ratio > 1.0 + CLOCK_NOTABLE {
        Some(format!(
            "A CPU second is worth {worth} at low quotas: many busy CPUs are slower ({governors}); turbo, heat, shared \
             caches or a second thread of the same core are the knobs."
        ))
    } else if model.bands.len() > 1 {
        Some(format!(
            "There are {} bands although a CPU second is worth the same at low and high quotas: look for other load, or \
             for the period of the quota.",
            model.bands.len()
        ))
    } else {
        None
    }
}

/// CPUs that are lost only where there are threads on all.
fn waiting(best: &Analysis, analyses: &[Analysis]) -> Option<String> {
    let all = analyses.iter().find(|one| one.threads == Threads::All && one.threads != best.threads)?;
    let (lost, least) = (all.model().dead_quota, best.model().dead_quota);
    (lost - least > NOTABLE).then(|| {
        format!(
            "With threads on all CPUs {lost:.2} CPUs are lost instead of {least:.2}: threads that wait for each other while \
             they are throttled; start as many as the quota fills."
        )
    })
}

/// What the order of quotas does, and how the machine drifts.
fn orders(best: &Analysis) -> Vec<String> {
    let mut words = Vec::new();
    for effect in &best.orders {
        if let Some(share) = effect.notable() {
            words.push(format!(
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
        words.push(format!(
            "The machine drifts, or was not the same in each pass: at the same quota its rate changed by {} from the \
             first sample to the last, whatever the order; let it warm up before, and see that nothing else runs.",
            percent(drift)
        ));
    }
    words
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
    use super::super::testing::{sample, sweep};
    use super::*;
    use emu_core::Roots;

    fn host() -> Host {
        Host::detect(&Roots::system()).unwrap()
    }

    /// The verdict on samples of two CPUs with threads on both.
    fn words(samples: &[Sample]) -> String {
        verdict(&[Analysis::of(samples, Threads::All, 2).unwrap()], samples, &host())
    }

    /// Samples of a proportional machine whose clock moves by 14 % from one to the next.
    fn moving() -> Vec<Sample> {
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        for (number, sample) in samples.iter_mut().enumerate() {
            let factor = if number % 2 == 0 { 1.0 } else { 1.14 };
            (sample.gflops, sample.clock_hz) = (sample.gflops * factor, Some(2.8e9 * factor));
        }
        samples
    }

    #[test]
    fn a_proportional_machine_is_called_so() {
        let samples = sweep(Order::Random, |quota| 60.0 * quota);
        assert!(words(&samples).starts_with("The rate is proportional"));
    }

    #[test]
    fn a_constant_loss_is_told_with_its_quota() {
        let samples = sweep(Order::Random, |quota| 60.0 * (quota - 0.08));
        assert!(words(&samples).contains("not proportional to the quota: -78.3% at 0.1"));
    }

    #[test]
    fn a_clock_that_rises_with_load_is_named() {
        let samples = sweep(Order::Random, |quota| if quota < 1.25 { 20.0 * quota } else { 60.0 * quota });
        let one = Analysis::of(&samples, Threads::All, 2).unwrap();
        assert!(!one.model().is_linear() && one.measured.bands.len() == 2);
        let words = words(&samples);
        assert!(
            words.contains("does not follow a line:") && words.contains("the clock rises with load"),
            "{words}"
        );
    }

    #[test]
    fn a_clock_that_moved_meanwhile_is_named_and_made_up_for() {
        let words = words(&moving());
        assert!(words.starts_with("The rate is proportional"), "{words}");
        assert!(words.contains("the core clock moved by 14.0%"), "{words}");
        let unknown: Vec<_> = moving().into_iter().map(|one| Sample { clock_hz: None, ..one }).collect();
        let words = self::words(&unknown);
        assert!(words.starts_with("The rate does not follow a line"), "{words}");
        assert!(!words.contains("core clock"), "{words}");
    }

    #[test]
    fn a_clock_that_moved_is_not_named_where_it_explains_nothing() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        for (number, sample) in samples.iter_mut().enumerate() {
            sample.clock_hz = Some(3e9 + 1e7 * (number % 2) as f64);
        }
        assert!(!words(&samples).contains("core clock"));
    }

    #[test]
    fn steal_and_other_tasks_are_named_where_something_is_missed() {
        let disturb = |samples: &mut Vec<Sample>| {
            (samples[2].stolen, samples[5].stolen, samples[7].foreign) = (Some(0.02), Some(0.052), Some(0.2));
        };
        let mut samples = sweep(Order::Random, |quota| 60.0 * (quota - 0.08));
        let calm = words(&samples);
        assert!(!calm.contains("hypervisor") && !calm.contains("Other tasks"), "{calm}");
        disturb(&mut samples);
        let disturbed = words(&samples);
        for part in [
            "The hypervisor took more than 1% of the CPUs' time during 2 of 20 samples, up to 5.2%",
            "Other tasks had more than 3% of the CPUs' time during 1 of 20 samples, up to 20.0%",
        ] {
            assert!(disturbed.contains(part), "{part}: {disturbed}");
        }
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        disturb(&mut samples);
        assert!(!words(&samples).contains("hypervisor"), "nothing is missed");
    }

    /// Samples of which those with as many threads as the quota fills have one rate, and those with threads on all CPUs
    /// another at quotas up to 1.
    fn both(all: impl Fn(f64) -> f64) -> (Vec<Sample>, [Analysis; 2]) {
        let mut samples = sweep(Order::Random, |quota| if quota < 1.05 { all(quota) } else { 60.0 * quota });
        let alone = (1..=10).map(|tenth| f64::from(tenth) / 10.0);
        samples.extend(alone.map(|quota| sample(Order::Random, quota, 1, 60.0 * quota)));
        let analyses = Threads::EVERY.map(|threads| Analysis::of(&samples, threads, 2).unwrap());
        (samples, analyses)
    }

    #[test]
    fn one_number_is_for_machines_proportional_with_all_threads() {
        let cases = [
            (20.0, 0.0, "does not follow a line (threads: all CPUs):"),
            (60.0, 0.03, "proportional to the quota (threads: all CPUs): -28.9% at 0.1 "),
        ];
        for (slope, dead, part) in cases {
            let (samples, analyses) = both(|quota| slope * (quota - dead));
            assert!(analyses[0].model().is_linear() && analyses[0].model().is_proportional());
            let words = verdict(&analyses, &samples, &host());
            assert!(words.contains(part) && !words.contains("one number"), "{words}");
        }
        let (samples, analyses) = both(|quota| 60.0 * quota);
        assert!(verdict(&analyses, &samples, &host()).contains("one number"));
    }

    #[test]
    fn a_quota_that_is_not_delivered_is_no_matter_of_the_clock() {
        let samples: Vec<_> = sweep(Order::Random, |quota| 60.0 * quota.min(1.0))
            .into_iter()
            .map(|one| Sample { cpus_used: one.quota.min(0.9), ..one })
            .collect();
        let words = words(&samples);
        assert!(words.contains("Of the quota of 1.90 CPUs only 47.4% was delivered"), "{words}");
    }

    #[test]
    fn a_limit_from_outside_is_named() {
        let samples: Vec<_> = sweep(Order::Random, |quota| 60.0 * quota.min(1.5))
            .into_iter()
            .map(|one| Sample { cpus_used: one.quota.min(1.5), ..one })
            .collect();
        assert!(words(&samples).contains("a limit of a group above"));
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
    fn an_order_that_matters_and_a_drifting_machine_are_named() {
        let still = words(&ordered(0.0));
        assert!(still.contains("in each pass: ascending it is +10.0% against random"), "{still}");
        assert!(!still.contains("The machine drifts"), "{still}");
        let drifting = words(&ordered(-0.2));
        assert!(drifting.contains("in each pass: ascending it is +"), "{drifting}");
        assert!(drifting.contains("its rate changed by -"), "{drifting}");
    }

    #[test]
    fn threads_that_wait_for_each_other_are_named() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * (quota - 0.1));
        let alone = (1..=10).map(|tenth| f64::from(tenth) / 10.0);
        samples.extend(alone.map(|quota| sample(Order::Random, quota, 1, 60.0 * quota)));
        let analyses = Threads::EVERY.map(|threads| Analysis::of(&samples, threads, 2).unwrap());
        assert!(verdict(&analyses, &samples, &host()).contains("threads that wait for each other"));
    }

    #[test]
    fn wrong_solutions_come_first() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        samples[3].passed = false;
        assert!(words(&samples).starts_with("SAMPLES WITH A WRONG SOLUTION: 1."));
    }
}
