//! What a calibration means, in words. A cause is named only where the samples test it.

use emu_bench::numbers::signed;
use emu_bench::verify::{FOREIGN_MAX, STEAL_MAX};
use emu_core::Host;

use super::analysis::Analysis;
use super::model::{Model, NOTABLE, Residuals, low_to_high};
use super::{Measured, OrderEffect, Sample, Threads, clock_range};

/// Change of the rate per CPU second, from low quotas to high ones, that is told.
const CLOCK_NOTABLE: f64 = 0.08;

/// Rates and clocks that differ by this share at most are the same.
const CLOCK_SAME: f64 = 0.03;

/// Fewer undisturbed quotas than these are no line.
const CALM_MIN: usize = 3;

/// CPU time delivered, relative to the quota, below which something else limits.
const DELIVERED_MIN: f64 = 0.95;

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
        words.push(line(analyses, reason(analyses)));
        words.extend(doubtful(analyses));
        words.extend(moved_clock(analyses, samples, &governors));
        if is_missed(analyses) {
            words.extend(others(samples));
        }
        words.extend(delivery(best));
        words.extend(worth(best, samples, &governors));
        words.extend(waiting(best, analyses));
        words.extend(orders(best));
    }
    words.join(" ")
}

/// Whether rates do not follow a line; `None` where nothing tells that from chance, or it may have another reason than the
/// machine.
fn is_off_line(model: &Model, reason: Option<&str>, calm: Option<(usize, usize)>) -> Option<bool> {
    match (model.is_linear(), model.is_surely_off_line(), reason) {
        _ if calm.is_some_and(|(calm, _)| calm < CALM_MIN) => None,
        (true, ..) => Some(false),
        (false, Some(true), None) => Some(true),
        _ => None,
    }
}

/// The quotas that have an undisturbed sample, and all of them, of the threads that have fewest; `None` where all have one.
fn calm(analyses: &[Analysis]) -> Option<(usize, usize)> {
    let disturbed = analyses.iter().filter(|one| !one.disturbed_quotas.is_empty());
    let of = |one: &Analysis| {
        let all = one.measured.places.len();
        (all.saturating_sub(one.disturbed_quotas.len()), all)
    };
    disturbed.map(of).min()
}

impl Measured {
    /// Whether the rates of one of its models do not follow a line; `None` where that is undecided, as the verdict says.
    pub fn is_off_line(&self, model: &Model) -> Option<bool> {
        is_off_line(model, reason(&self.analyses), calm(&self.analyses))
    }
}

/// What beside the machine itself may be the reason that rates are off a line.
fn reason(analyses: &[Analysis]) -> Option<&'static str> {
    let drifts = |one: &Analysis| one.orders.iter().any(|effect| effect.notable_drift().is_some());
    if analyses.iter().any(drifts) {
        return Some("The machine drifted meanwhile, which may be the reason.");
    }
    let is_doubtful = analyses.iter().any(|one| !one.disturbed_quotas.is_empty());
    is_doubtful.then_some("Others disturbed some quotas, which may be the reason.")
}

/// The verdict is undecided where nothing tells it from chance, or where the reason may not be the machine.
fn line(analyses: &[Analysis], reason: Option<&str>) -> String {
    const ONCE: &str =
        "Too few quotas have two undisturbed samples, to tell this from chance: measure with --reps 3.";
    let calm = calm(analyses);
    if let Some((some, all)) = calm.filter(|(some, _)| *some < CALM_MIN) {
        return format!("Undecided: others disturbed every sample at all but {some} of {all} quotas.");
    }
    if let Some((model, which)) = failing(analyses, |model| !model.is_linear()) {
        let Residuals { largest_share, at_quota, .. } = model.residuals;
        let off = format!("{:.1}% of the largest rate at {at_quota:.1} CPUs", largest_share * 100.0);
        if is_off_line(model, reason, calm) == Some(true) {
            return format!(
                "The rate does not follow a line{which}, off it by {off}: results at different quotas cannot be compared here."
            );
        }
        return match (model.is_surely_off_line(), reason) {
            (Some(true), why) => {
                format!("Undecided: rates are off a line{which}, by up to {off}. {}", why.unwrap_or_default())
            }
            (Some(false), _) => format!(
                "Undecided: rates are off a line{which}, by up to {off}, but no more than those of one quota differ among \
                 themselves."
            ),
            (None, _) => format!("Undecided: rates are off a line{which}, by up to {off}. {ONCE}"),
        };
    }
    if let Some((model, which)) = failing(analyses, |model| !model.is_proportional()) {
        let off = format!("{} at {:.1} CPUs", signed(model.proportional_worst), model.worst_quota);
        return match (model.proportional_fails, reason) {
            (Some(true), Some(why)) => format!(
                "The rate follows a line. Undecided is whether it is proportional to the quota{which}: {off}. {why}"
            ),
            (Some(true), None) => {
                format!("The rate follows a line, but is not proportional to the quota{which}: {off}.")
            }
            (Some(false), _) => format!(
                "The rate follows a line. Undecided is whether it is proportional to the quota{which}: {off} is no more \
                 than chance explains."
            ),
            (None, _) => format!(
                "The rate follows a line. Undecided is whether it is proportional to the quota{which}: {off}. {ONCE}"
            ),
        };
    }
    let the_rate = match calm {
        Some((some, all)) => format!("At the {some} of {all} quotas that nobody disturbed the rate"),
        None => "The rate".into(),
    };
    format!("{the_rate} is proportional to the quota: this machine can be calibrated by one number.")
}

fn doubtful(analyses: &[Analysis]) -> Option<String> {
    let mut quotas: Vec<_> = analyses.iter().flat_map(|one| &one.disturbed_quotas).copied().collect();
    quotas.sort_by(f64::total_cmp);
    quotas.dedup();
    let (least, most) = (quotas.first()?, quotas.last()?);
    Some(format!(
        "In doubt: at {} quotas, from {least:.1} to {most:.1} CPUs, every sample was disturbed by others.",
        quotas.len()
    ))
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

fn moved_clock(analyses: &[Analysis], samples: &[Sample], governors: &str) -> Option<String> {
    let is_clock = |one: &Analysis| {
        one.equal_clock.as_ref().is_some_and(|equal| {
            (equal.is_linear() && !one.measured.is_linear())
                || (equal.is_proportional() && !one.measured.is_proportional())
        })
    };
    let (low, high) = clock_range(samples).filter(|_| analyses.iter().any(is_clock))?;
    Some(format!(
        "At equal core clock the rates pass what they miss as they are: the core clock moved by {:.1}% ({governors}). Hold \
         it, or, in a guest, whose host sets it, compare only what was measured at the same clock.",
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

fn delivery(best: &Analysis) -> Option<String> {
    (best.delivered < DELIVERED_MIN).then(|| {
        format!(
            "Of the quota of {:.2} CPUs only {:.1}% was used. Why is not tested here: a limit of a group above, other load, \
             steal and threads that wait for each other look alike.",
            best.delivered_at,
            best.delivered * 100.0
        )
    })
}

fn worth(best: &Analysis, samples: &[Sample], governors: &str) -> Option<String> {
    let ratio = best.measured.clock_ratio;
    // What others have disturbed tells nothing of the CPU, and what chance explains neither.
    let is_chance = best.measured.clock_ratio_interval.is_none_or(|ratio| ratio.contains(1.0));
    if (ratio - 1.0).abs() <= CLOCK_NOTABLE || is_chance || !best.disturbed_quotas.is_empty() {
        return None;
    }
    let of_high = |ratio: f64| format!("{:.1}%", ratio * 100.0);
    let worth = format!("A CPU second at low quotas is worth {} of one at high ones", of_high(ratio));
    let clock = low_to_high(samples, |sample| sample.clock_hz).ok().flatten();
    Some(match clock {
        Some(clock) if (ratio / clock - 1.0).abs() <= CLOCK_SAME => format!(
            "{worth}, and so was the core clock while they ran: {} of that at high ones ({governors}).",
            of_high(clock)
        ),
        Some(clock) => {
            format!(
                "{worth}, which the core clock does not explain: it was {} of that there.",
                of_high(clock)
            )
        }
        None => format!(
            "{worth}. Why is not tested, as the core clock is not known: change what sets it, calibrate again and compare."
        ),
    })
}

/// CPUs that are lost only where there are threads on all: by lines that hold, and by more than chance and others explain.
fn waiting(best: &Analysis, analyses: &[Analysis]) -> Option<String> {
    let all = analyses.iter().find(|one| one.threads == Threads::All && one.threads != best.threads)?;
    if reason(analyses).is_some() || [all, best].iter().any(|one| !one.model().is_linear()) {
        return None;
    }
    let [lost, least] = [all, best].map(|one| one.model().dead());
    // A line that is above 0 at no quota loses nothing.
    let none = least.estimate.max(0.0);
    (lost.estimate - none > NOTABLE && lost.low > least.high.max(0.0)).then(|| {
        format!(
            "With threads on all CPUs {:.2} CPUs are lost ({:.2} to {:.2}) instead of {none:.2}: start as many as the quota fills.",
            lost.estimate, lost.low, lost.high
        )
    })
}

fn orders(best: &Analysis) -> Vec<String> {
    let mut words = Vec::new();
    for effect in &best.orders {
        if let Some(share) = effect.notable() {
            words.push(format!(
                "The order matters, or the machine was not the same in each pass: {} it is {} against {}, without a \
                 steady drift. Measure again with another --seed; if it stays, let the machine warm up or cool down \
                 between samples.",
                effect.order.name(),
                signed(share),
                effect.against.name()
            ));
        }
    }
    if let Some(drift) = best.orders.iter().find_map(OrderEffect::notable_drift) {
        words.push(format!(
            "The machine drifts, or was not the same in each pass: at the same quota its rate changed by {} from the \
             first sample to the last, whatever the order; let it warm up before, and see that nothing else runs.",
            signed(drift)
        ));
    }
    words
}

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
mod tests;
