use emu_core::Hertz;

use super::super::testing::{pair, pair_of, window};
use super::*;
use crate::stats::oracles::Normals;
use crate::verify::{CoreClock, Side, Taint, schedule};
use crate::workload::Job;

fn control(number: usize, b: f64) -> Pair {
    let windows = [window(Side::Native, &[1e9], 0), window(Side::Native, &[b], 0)];
    Pair { number, ..pair_of(windows) }
}

fn trial(shares: &[f64], pinned: bool) -> Trial {
    let cpus = (0..shares.len()).collect();
    let job = Job { pinned, active: shares.len(), ..Job::new("cpu-loop", &cpus) };
    Trial { job, shares: shares.iter().copied().enumerate().collect(), clocks: vec![] }
}

/// Pairs whose emulated side runs at `share`, with ±0.5 % of noise.
fn pairs(share: f64, count: usize) -> Vec<Pair> {
    (0..count).map(|i| pair(i, &[1e9], &[1e9 * share * (1.0 + 0.005 * (i % 3) as f64 - 0.005)])).collect()
}

fn judge(share: f64, asked: f64, count: usize) -> Finding {
    findings(&trial(&[asked], false), &pairs(share, count), &Plan::new(1)).unwrap().remove(0)
}

#[test]
fn the_right_speed_passes_and_a_false_one_fails() {
    assert_eq!(judge(0.4, 0.4, 15).verdict, Verdict::Pass);
    let wrong = judge(0.5, 0.4, 15);
    assert_eq!(wrong.verdict, Verdict::Fail);
    assert!((wrong.error() - 0.25).abs() < 0.01, "{wrong:?}");
    assert_eq!(judge(1.0, 0.4, 15).verdict, Verdict::Fail, "no limit at all");
}

#[test]
fn few_pairs_are_not_enough_whatever_they_say() {
    for share in [0.4, 0.5] {
        assert!(matches!(judge(share, 0.4, 3).verdict, Verdict::NotEnoughData { .. }));
    }
}

#[test]
fn sleeping_work_is_compared_with_its_own_ideal() {
    // 0.5 s slept and 0.5 s computed; at 50 % the same work takes 1.5 s.
    let native = window(Side::Native, &[1e9], 500_000_000);
    let mut emulated = window(Side::Emulated, &[1e9], 500_000_000);
    emulated.done.ended_ns = 1_500_000_000;
    let pair = pair_of([native, emulated]);
    let found = findings(&trial(&[0.5], false), &vec![pair; 10], &Plan::new(1)).unwrap().remove(0);
    assert!((found.ideal - 2.0 / 3.0).abs() < 1e-9);
    assert!(found.error().abs() < 1e-9 && found.verdict == Verdict::Pass);
}

#[test]
fn what_sleeps_differently_from_pair_to_pair_is_no_error() {
    let perfect = |slept_ns: u64| {
        let native = window(Side::Native, &[1e9], slept_ns);
        let mut emulated = window(Side::Emulated, &[1e9], slept_ns);
        emulated.done.ended_ns += 1_000_000_000 - slept_ns;
        pair_of([native, emulated])
    };
    let pairs: Vec<_> = (1..=9).map(|tenth| perfect(tenth * 100_000_000)).collect();
    let plan = Plan::new(1);
    let found = findings(&trial(&[0.5], false), &pairs, &plan).unwrap().remove(0);
    assert!((found.ideal - 1.0 / 1.5).abs() < 1e-9);
    for (_, pair) in rates(&trial(&[0.5], false), &pairs, &plan).unwrap() {
        assert!((pair.log_ratio().exp() - found.ideal).abs() < 1e-9, "{pair:?}");
    }
}

#[test]
fn each_cpu_is_judged_by_its_own_speed() {
    let pairs: Vec<_> = (0..15).map(|i| pair(i, &[1e9, 1e9], &[0.4e9, 0.6e9])).collect();
    let found = findings(&trial(&[0.4, 0.8], true), &pairs, &Plan::new(1)).unwrap();
    assert_eq!(found.iter().map(|one| one.verdict).collect::<Vec<_>>(), [Verdict::Pass, Verdict::Fail]);
    assert_eq!(found[1].cpu, Some(1));
    assert!(found.iter().all(|one| one.fairness.is_none()));
}

#[test]
fn parts_that_starve_are_told_of_whatever_the_sum() {
    let pairs: Vec<_> = (0..15).map(|i| pair(i, &[1e9, 1e9], &[0.7e9, 0.1e9])).collect();
    let found = findings(&trial(&[0.4, 0.4], false), &pairs, &Plan::new(1)).unwrap().remove(0);
    assert_eq!(found.verdict, Verdict::Pass);
    let fairness = found.fairness.unwrap();
    assert!((fairness.native, fairness.is_lost()) == (1.0, true), "{fairness:?}");
    assert!((fairness.emulated - 0.64).abs() < 1e-9);
    assert_eq!(judge(0.4, 0.4, 15).fairness, None);
    let mut short = pairs;
    short.iter_mut().flat_map(|pair| &mut pair.windows).for_each(|window| window.done.cpu_ns = 20_000_000);
    let found = findings(&trial(&[0.4, 0.4], false), &short, &Plan::new(1)).unwrap().remove(0);
    assert_eq!(found.fairness, None);
}

#[test]
fn a_part_that_stands_still_fails() {
    let pairs: Vec<_> = (0..15).map(|i| pair(i, &[1e9], &[0.0])).collect();
    let found = findings(&trial(&[0.4], false), &pairs, &Plan::new(1)).unwrap();
    assert_eq!(found[0].verdict, Verdict::Fail);
}

#[test]
fn controls_give_the_floor_and_disturbed_pairs_are_counted() {
    let mut pairs = pairs(0.4, 15);
    pairs.extend((0..6).map(|i| control(i, if i % 2 == 0 { 1.01e9 } else { 0.99e9 })));
    pairs[3].taints.push(Taint::Steal(0.5));
    let mut dropped = pair(3, &[1e9], &[0.9e9]);
    dropped.kept = false;
    pairs.push(dropped);
    let found = findings(&trial(&[0.4], false), &pairs, &Plan::new(1)).unwrap().remove(0);
    assert!((found.floor.unwrap() - 0.01).abs() < 1e-3 && found.detectable.unwrap() > 0.0);
    assert_eq!((found.pairs, found.repeated, found.tainted), (14, 1, 1));
    assert_eq!((found.missed, found.periods), (14, 2800));
    assert!((found.own_cpu.unwrap() - 0.01).abs() < 1e-9);
    assert_eq!(found.longest_stall_ns, 7);
}

#[test]
fn controls_leave_open_what_their_own_error_could_turn() {
    let judge = |share: f64, rate: f64| {
        let mut pairs = pairs(share, 15);
        pairs.extend((0..6).map(|i| control(i, rate * 1e9)));
        findings(&trial(&[0.4], false), &pairs, &Plan::new(1)).unwrap().remove(0)
    };
    for (share, rate, verdict) in [
        (0.4, 1.0, Some(Verdict::Pass)),
        (0.4, 1.06, None),
        (0.4, 0.94, None),
        (0.4, 1.01, Some(Verdict::Pass)),
        (0.43, 1.0, Some(Verdict::Fail)),
        (0.43, 1.06, None),
        (0.6, 1.06, Some(Verdict::Fail)),
    ] {
        let found = judge(share, rate);
        assert_eq!(found.is_undecided(), verdict.is_none(), "{share} {rate}: {found:?}");
        match verdict {
            Some(verdict) => assert_eq!((found.verdict, found.doubt), (verdict, None)),
            None => assert!(matches!(found.doubt, Some(Doubt::Controls(_))), "{found:?}"),
        }
    }
    assert!(judge(0.4, 1.06).detectable.unwrap() > 0.05);
}

#[test]
fn what_only_disturbed_pairs_show_is_not_far_off() {
    let mut pairs = pairs(0.4, 15);
    pairs[2] = pair(2, &[1e9], &[0.1e9]);
    disturb(&mut pairs, 15);
    let found = findings(&trial(&[0.4], false), &pairs, &Plan::new(1)).unwrap().remove(0);
    assert_eq!((found.pairs, found.tainted, found.outliers.pairs), (0, 15, 0));
}

fn disturb(pairs: &mut [Pair], count: usize) {
    pairs.iter_mut().take(count).for_each(|pair| pair.taints.push(Taint::Throttled(0.4)));
}

#[test]
fn disturbed_pairs_and_controls_change_no_figure() {
    let good: Vec<_> = pairs(0.4, 15).into_iter().chain((0..6).map(|i| control(i, 1e9))).collect();
    let mut bad: Vec<_> = pairs(0.9, 7).into_iter().chain((0..6).map(|i| control(i, 2e9))).collect();
    disturb(&mut bad, 13);
    let (trial, plan) = (trial(&[0.4], false), Plan::new(1));
    let of = |pairs: &[Pair]| findings(&trial, pairs, &plan).unwrap().remove(0);
    let (alone, among) = (of(&good), of(&[good.clone(), bad].concat()));
    assert_eq!((among.verdict, among.tainted, among.pairs), (Verdict::Pass, 7, 15));
    assert_eq!((among.relative, among.outliers, among.floor), (alone.relative, alone.outliers, alone.floor));
    assert_eq!((among.longest_stall_ns, among.detectable), (alone.longest_stall_ns, alone.detectable));
}

#[test]
fn what_too_few_undisturbed_pairs_say_decides_nothing() {
    for share in [0.4, 0.5] {
        for (disturbed, decides) in [(9, true), (10, false), (15, false)] {
            let mut pairs = pairs(share, 15);
            disturb(&mut pairs, disturbed);
            let trial = trial(&[0.4], false);
            let found = findings(&trial, &pairs, &Plan::new(1)).unwrap().remove(0);
            assert_eq!((found.tainted, found.pairs), (disturbed, 15 - disturbed));
            assert_eq!(found.is_disturbed(), !decides);
            let undecided = matches!(found.verdict, Verdict::NotEnoughData { pairs_needed: None });
            assert_eq!(undecided, !decides, "{share}: {found:?}");
            assert_eq!(found.within(Band::FIVE_PERCENT, Level::P95).unwrap(), found.verdict);
            assert_eq!(rates(&trial, &pairs, &Plan::new(1)).unwrap().len(), 15 - disturbed);
        }
    }
}

#[test]
fn a_right_median_does_not_pass_where_some_windows_are_far_off() {
    let judge = |far: usize| {
        let mut pairs = pairs(0.4, 15);
        for (i, other) in pairs.iter_mut().take(far).enumerate() {
            *other = pair(i, &[1e9], &[0.4e9 * 0.8]);
        }
        findings(&trial(&[0.4], false), &pairs, &Plan::new(1)).unwrap().remove(0)
    };
    assert_eq!((judge(1).verdict, judge(1).doubt), (Verdict::Pass, None));
    let undecided = Verdict::NotEnoughData { pairs_needed: None };
    for far in [2, 3] {
        let found = judge(far);
        assert!(found.relative.low > 0.95, "{found:?}");
        assert!(found.verdict == undecided && found.doubt.unwrap().to_string().contains("windows are off"));
        assert_eq!(found.within(Band::new(0.1).unwrap(), Level::P95).unwrap(), undecided);
    }
}

#[test]
fn a_right_median_does_not_pass_where_the_mean_is_wrong() {
    let mut pairs = pairs(0.4, 15);
    // One window nearly stands still: a program that runs through all of them gets a sixth less.
    pairs[4] = pair(4, &[1e9], &[0.4e9 * 0.05]);
    let found = findings(&trial(&[0.4], false), &pairs, &Plan::new(1)).unwrap().remove(0);
    assert!(found.relative.low > 0.95 && found.outliers.pairs == 1, "{found:?}");
    assert!(matches!(found.doubt, Some(Doubt::Mean(error)) if error < -0.15), "{found:?}");
    assert_eq!(found.verdict, Verdict::NotEnoughData { pairs_needed: None });
}

/// Pairs on a CPU whose clock rises from 3 to 4 GHz, where 1.2 GHz are wanted: of an emulation that holds them, or of one
/// that holds the share that they were at 3 GHz.
fn drifting(is_held: bool) -> Vec<Pair> {
    (0..15)
        .map(|i| {
            let mut pair = pair(i, &[1.0], &[1.0]);
            for (place, window) in pair.windows.iter_mut().enumerate() {
                let ghz = 3.0 + (2 * i + place) as f64 / 29.0;
                let share = match window.side {
                    Side::Native => 1.0,
                    Side::Emulated if is_held => 1.2 / ghz,
                    Side::Emulated => 0.4,
                };
                window.done.parts = vec![ghz * 1e8 * share];
                window.done.quantum_ns = 1000.0 / ghz;
                window.clock = Some(CoreClock { before_hz: ghz * 1e9, after_hz: ghz * 1e9 });
            }
            pair
        })
        .collect()
}

#[test]
fn a_wanted_clock_must_be_held_while_the_hosts_own_moves() {
    let trial = Trial { clocks: vec![(0, Hertz(1_200_000_000))], ..trial(&[0.4], false) };
    let plan = Plan::new(1);
    let found = |is_held| findings(&trial, &drifting(is_held), &plan).unwrap().remove(0);
    let held = found(true);
    assert!(held.error().abs() < 1e-6 && held.verdict == Verdict::Pass, "{held:?}");
    for (_, pair) in rates(&trial, &drifting(true), &plan).unwrap() {
        assert!((pair.log_ratio().exp() / held.ideal - 1.0).abs() < 1e-6, "{pair:?}");
    }
    // Half of the drift of a third.
    let ignored = found(false);
    assert!((ignored.error() - 1.0 / 6.0).abs() < 0.02 && ignored.verdict != Verdict::Pass, "{ignored:?}");
}

#[test]
fn a_wanted_share_is_judged_at_equal_clocks() {
    let found = findings(&trial(&[0.4], false), &drifting(false), &Plan::new(1)).unwrap().remove(0);
    assert!(found.error().abs() < 1e-6 && found.verdict == Verdict::Pass, "{found:?}");
}

/// A run on a machine that drifts by a third and whose windows scatter by 1 %, of an emulation whose true
/// speed is `share`.
fn simulated(share: f64, seed: u64) -> Vec<Pair> {
    let mut normals = Normals::new(seed);
    let mut number = 0;
    schedule::schedule(15, 6, seed)
        .into_iter()
        .map(|sides| {
            let clock = 1e9 * (1.0 + number as f64 / 60.0);
            number += 1;
            let windows = sides.map(|side| {
                let share = if side == Side::Native { 1.0 } else { share };
                window(side, &[clock * share * (0.01 * normals.draw()).exp()], 0)
            });
            Pair { number, ..pair_of(windows) }
        })
        .collect()
}

fn found(share: f64, asked: f64, seed: u64) -> Finding {
    let plan = Plan::new(seed);
    findings(&trial(&[asked], false), &simulated(share, seed), &plan).unwrap().remove(0)
}

#[test]
fn experiments_without_a_difference_raise_few_false_alarms() {
    let runs: Vec<_> = (0..200).map(|seed| found(1.0, 1.0, seed)).collect();
    let alarms = runs.iter().filter(|run| !run.relative.contains(1.0)).count();
    // 5 % of 200 are 10; more than 15 come by chance once in twenty times (binomial).
    assert!(alarms <= 15, "{alarms} false alarms");
    assert!(runs.iter().all(|run| run.verdict == Verdict::Pass));
}

#[test]
fn slowdown_and_bias_are_found_as_often_as_the_interval_says() {
    for (share, asked) in [(0.5, 0.5), (0.515, 0.5), (0.09, 0.1)] {
        let runs: Vec<_> = (0..200).map(|seed| found(share, asked, 1000 + seed)).collect();
        let right = runs.iter().filter(|run| run.ratio.contains(share)).count();
        assert!(right >= 185, "{share}: {right} of 200 intervals hold the truth");
        assert!(runs.iter().all(|run| (run.error() - (share / asked - 1.0)).abs() < 0.02), "{share}");
    }
}
