//! What is said of samples that are known.

use super::super::Order;
use super::super::plan::balanced;
use super::super::testing::{measured, measurement, sample, sweep, twice};
use super::*;
use emu_core::Roots;

fn host() -> Host {
    Host::detect(&Roots::system()).unwrap()
}

/// The verdict on samples of two CPUs with threads on both.
fn words_of(samples: &[Sample]) -> String {
    verdict(&[Analysis::of(samples, Threads::All, 2).unwrap()], samples, &host())
}

/// The same where each sample was taken twice, and both differ by 0.2 %.
fn words(samples: &[Sample]) -> String {
    words_of(&twice(samples, 0.001))
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
fn a_clock_that_rises_with_load_is_named_where_it_was_seen() {
    let rate = |quota: f64| if quota < 1.25 { 20.0 * quota } else { 60.0 * quota };
    let mut samples = sweep(Order::Random, rate);
    let with_clock = |samples: &mut Vec<Sample>, low: f64| {
        for sample in samples {
            sample.clock_hz = Some(if sample.quota < 1.25 { low } else { 3e9 });
        }
    };
    let unseen = words(&samples);
    assert!(unseen.contains("does not follow a line, off it by"), "{unseen}");
    assert!(
        unseen.contains("at low quotas is worth 33.3% of one at high ones")
            && unseen.contains("Why is not tested"),
        "{unseen}"
    );
    with_clock(&mut samples, 1e9);
    let seen = words(&samples);
    assert!(seen.contains("and so was the core clock while they ran: 33.3% of"), "{seen}");
    assert!(seen.starts_with("The rate is proportional"), "{seen}");
    with_clock(&mut samples, 3e9);
    let other = words(&samples);
    assert!(other.contains("which the core clock does not explain: it was 100.0% of that there"), "{other}");
}

#[test]
fn one_sample_a_quota_decides_nothing_that_is_missed() {
    for rate in
        [|quota: f64| if quota < 1.25 { 20.0 * quota } else { 60.0 * quota }, |quota| 60.0 * (quota - 0.08)]
    {
        let once = sweep(Order::Random, rate);
        let words = words_of(&once);
        assert!(words.contains("Undecided") && words.contains("--reps 3"), "{words}");
        assert!(!self::words(&once).contains("Undecided"));
    }
}

#[test]
fn a_scatter_as_wide_as_what_is_missed_decides_nothing() {
    // One quota is 30 % off, and samples of each quota 60 % apart.
    let samples = sweep(Order::Random, |quota| if quota > 1.95 { 84.0 } else { 60.0 * quota });
    let words = words_of(&twice(&samples, 0.3));
    assert!(words.starts_with("Undecided") && words.contains("differ among themselves"), "{words}");
}

#[test]
fn quotas_that_were_always_disturbed_are_in_doubt() {
    let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
    (samples[2].stolen, samples[4].foreign) = (Some(0.3), Some(0.3));
    assert!(words(&samples).contains("In doubt: at 2 quotas, from 0.3 to 0.5 CPUs"), "{}", words(&samples));
    let some = "At the 18 of 20 quotas that nobody disturbed the rate is proportional to the quota";
    assert!(words(&samples).starts_with(some), "{}", words(&samples));
    samples.iter_mut().skip(2).for_each(|sample| sample.foreign = Some(0.2));
    let none = "Undecided: others disturbed every sample at all but 2 of 20 quotas.";
    assert!(words(&samples).starts_with(none), "{}", words(&samples));
    let one = Analysis::of(&samples, Threads::All, 2).unwrap();
    assert!(one.measured.is_linear());
    assert_eq!(is_off_line(&one.measured, None, calm(std::slice::from_ref(&one))), None);
}

#[test]
fn a_worth_that_chance_explains_is_not_told() {
    let of = |noise: f64| {
        let mut samples = sweep(Order::Random, |quota| if quota < 0.7 { 54.0 } else { 60.0 } * quota);
        for (number, sample) in samples.iter_mut().enumerate() {
            sample.gflops *= 1.0 + noise * (number as f64 * 2.4).sin();
        }
        words(&samples)
    };
    assert!(of(0.01).contains("A CPU second at low quotas is worth"), "{}", of(0.01));
    assert!(!of(0.4).contains("is worth"), "{}", of(0.4));
}

#[test]
fn a_clock_that_moved_meanwhile_is_named_and_made_up_for() {
    let words = words(&moving());
    assert!(words.starts_with("The rate is proportional"), "{words}");
    assert!(words.contains("the core clock moved by 14.0%"), "{words}");
    let unknown: Vec<_> = moving().into_iter().map(|one| Sample { clock_hz: None, ..one }).collect();
    let words = self::words(&unknown);
    assert!(words.starts_with("The rate does not follow a line"), "{words}");
    assert!(!words.contains("At equal core clock"), "{words}");
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
        "The hypervisor took more than 1% of the CPUs' time during 4 of 40 samples, up to 5.2%",
        "Other tasks had more than 3% of the CPUs' time during 2 of 40 samples, up to 20.0%",
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
    let samples = twice(&samples, 0.001);
    let analyses = Threads::EVERY.map(|threads| Analysis::of(&samples, threads, 2).unwrap());
    (samples, analyses)
}

#[test]
fn one_number_is_for_machines_proportional_with_all_threads() {
    let cases = [
        (20.0, 0.0, "does not follow a line (threads: all CPUs), off it by"),
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
    assert!(words.contains("Of the quota of 1.90 CPUs only 47.4% was used"), "{words}");
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
    let words = verdict(&analyses, &samples, &host());
    assert!(words.contains("0.10 CPUs are lost (0.10 to 0.10) instead of 0.00: start as many"), "{words}");
}

#[test]
fn lost_cpus_are_told_of_undisturbed_samples_only() {
    // With threads on all CPUs low quotas get more than their share: nothing is lost.
    let (samples, analyses) = both(|quota| 60.0 * (quota + 0.08));
    let words = verdict(&analyses, &samples, &host());
    assert!(!words.contains("are lost"), "{words}");

    let lossy = |disturb: bool| {
        let mut samples = sweep(Order::Random, |quota| 60.0 * (quota - 0.1));
        samples.extend(
            (1..=10)
                .map(|tenth| f64::from(tenth) / 10.0)
                .map(|quota| sample(Order::Random, quota, 1, 60.0 * quota)),
        );
        if disturb {
            for sample in &mut samples {
                sample.foreign = Some(0.4);
            }
        }
        let samples = twice(&samples, 0.001);
        let analyses = Threads::EVERY.map(|threads| Analysis::of(&samples, threads, 2).unwrap());
        verdict(&analyses, &samples, &host())
    };
    assert!(lossy(false).contains("are lost") && !lossy(true).contains("are lost"));
}

#[test]
fn the_row_of_a_line_says_what_the_verdict_says() {
    let bent = |quota: f64| if quota < 1.25 { 20.0 * quota } else { 60.0 * quota };
    let once = sweep(Order::Random, bent);
    for (samples, is_off) in [
        (twice(&once, 0.001), Some(true)),
        (once.clone(), None),
        (twice(&sweep(Order::Random, |quota| 60.0 * quota), 0.001), Some(false)),
    ] {
        let measured = measurement(samples, Threads::All, 2);
        let verdict = verdict(&measured.analyses, &measured.samples, &host());
        assert_eq!(measured.is_off_line(measured.analyses[0].model()), is_off);
        assert_eq!(verdict.starts_with("Undecided"), is_off.is_none(), "{verdict}");
    }
}

#[test]
fn wrong_solutions_come_first() {
    let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
    samples[3].passed = false;
    assert!(words_of(&samples).starts_with("SAMPLES WITH A WRONG SOLUTION: 1."));
}

/// What must not be said of a machine whose orders do not matter and whose samples nothing is told of but the rates.
const NEVER: [&str; 4] = ["The order matters", "core clock moved", "hypervisor", "In doubt"];

/// What is said of ten records of a machine with this factor on its rates, each by a seed of its own; `change` makes the
/// samples what they are to be.
fn ten(factor: impl Fn(f64, f64) -> f64, change: impl Fn(&mut Sample)) -> Vec<String> {
    let record = |seed| {
        let mut samples = measured(balanced(seed), seed, 0.01, |cell, time| factor(cell.quota, time));
        samples.iter_mut().for_each(&change);
        words_of(&samples)
    };
    (0..10).map(record).collect()
}

/// Each of these is said of all records, and none of those of any.
fn assert_said(records: &[String], said: &[&str], never: &[&str]) {
    for words in records {
        assert!(said.iter().all(|said| words.contains(said)), "{said:?} is missing: {words}");
        assert!(!never.iter().any(|never| words.contains(never)), "one of {never:?}: {words}");
    }
}

#[test]
fn of_synthetic_records_nothing_false_is_concluded() {
    const PROPORTIONAL: &str = "The rate is proportional";
    let but = |words: &[&'static str]| [&NEVER[..], words].concat();
    let clean = ten(|_, _| 1.0, |_| ());
    assert_said(&clean, &[PROPORTIONAL], &but(&["drifts", "worth", "Undecided", "was used"]));

    let drifting = ten(|_, time| 1.0 - 0.2 * time, |_| ());
    assert_said(
        &drifting,
        &["drifts"],
        &but(&["does not follow", "is not proportional", "worth", "was used"]),
    );

    // A third of the samples, told by their begin: here and there all of a quota.
    let disturbed = ten(
        |_, _| 1.0,
        |sample| {
            if ((sample.begin_seconds / 6.4).round() as usize).is_multiple_of(3) {
                sample.stolen = Some(0.3);
                sample.gflops *= 0.7;
            }
        },
    );
    assert_said(
        &disturbed,
        &[],
        &["order matters", "drifts", "does not follow", "is not proportional", "worth"],
    );
    assert!(disturbed.iter().all(|words| words.starts_with(PROPORTIONAL) || words.contains("In doubt")));

    let bent = ten(|quota, _| quota.powf(-0.25), |_| ());
    assert_said(&bent, &[], &but(&[PROPORTIONAL, "drifts"]));

    let banded = ten(|quota, _| if quota > 1.05 { 0.75 } else { 1.0 }, |_| ());
    assert_said(&banded, &["does not follow a line"], &but(&[PROPORTIONAL, "drifts"]));
}
