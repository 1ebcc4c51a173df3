//! From pairs to a judgement.

use emu_core::{CpuId, Result};
use serde::Serialize;

use super::fairness::Fairness;
use super::outliers::Outliers;
use super::pair::{Pair, Window};
use super::{Plan, Trial};
use crate::stats::{self, AaTest, Band, Bootstrap, Centre, Interval, Level, PairedRatios, Sample, Verdict};
use crate::workload::{Workload, workload};

/// How faithful an emulation was for one job at one speed.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The workload.
    pub workload: String,
    /// The CPU concerned, where each has its own speed.
    pub cpu: Option<CpuId>,
    /// The share asked for.
    pub asked: f64,
    /// The ratio that a perfect emulation gives this workload; see
    /// [`Workload::ideal`](crate::workload::Workload::ideal).
    pub ideal: f64,
    /// Median of emulated / native.
    pub ratio: Interval,
    /// Median of emulated / native / ideal: 1 is perfect, 0.99 is one percent too slow. Work is counted per core
    /// cycle where its steps follow the core clock: a clock that others on the machine move between two windows is
    /// no error of an emulation.
    pub relative: Interval,
    /// Median of the core clock under emulation / native, where steps follow it.
    pub clock: Option<f64>,
    /// Whether that is within the tolerance; see [`within`](Self::within).
    pub verdict: Verdict,
    /// Pairs that count.
    pub pairs: usize,
    /// Pairs that were disturbed and taken again.
    pub repeated: usize,
    /// Pairs that count although they were disturbed, because nothing better could be had.
    pub tainted: usize,
    /// By how much two native windows differ, as a share: the mean over the controls.
    pub floor: Option<f64>,
    /// The smallest error that the run would have found four times in five.
    pub detectable: Option<f64>,
    /// Pairs that are far from the median.
    pub outliers: Outliers,
    /// The longest time without progress under emulation, in nanoseconds.
    pub longest_stall_ns: u64,
    /// Periods of the emulation in all windows.
    pub periods: u64,
    /// Periods that it missed.
    pub missed: u64,
    /// CPU time of emu itself as a share of one CPU, for each emulated CPU; median over the windows.
    pub own_cpu: Option<f64>,
    /// How evenly the threads or processes shared the work; `None` where there is one, where they are bound to CPUs, and
    /// where windows are short.
    pub fairness: Option<Fairness>,
}

impl Finding {
    /// Relative error of the speed: −0.01 is one percent too slow.
    pub fn error(&self) -> f64 {
        self.relative.estimate - 1.0
    }

    /// Whether most of the pairs that count were disturbed.
    pub fn is_disturbed(&self) -> bool {
        most(self.tainted, self.pairs)
    }

    /// Whether the error is within `band`. Pairs of which most were disturbed decide nothing, however much they agree:
    /// what disturbs windows with and without emulation unequally is taken for an error of it, or makes up for one.
    ///
    /// # Errors
    /// Usage, when the interval was made for a lower level.
    pub fn within(&self, band: Band, level: Level) -> Result<Verdict> {
        verdict(&self.relative, self.pairs, self.tainted, band, level)
    }
}

fn most(tainted: usize, pairs: usize) -> bool {
    tainted * 2 > pairs
}

fn verdict(relative: &Interval, pairs: usize, tainted: usize, band: Band, level: Level) -> Result<Verdict> {
    if most(tainted, pairs) {
        return Ok(Verdict::NotEnoughData { pairs_needed: None });
    }
    Verdict::of(relative, pairs, band, level)
}

/// Judges the pairs of a trial: once, or for each CPU where parts are bound to CPUs of different speeds.
///
/// # Errors
/// Usage, where no pair counts.
pub fn findings(trial: &Trial, pairs: &[Pair], plan: &Plan) -> Result<Vec<Finding>> {
    if trial.job.pinned {
        return trial
            .shares
            .iter()
            .enumerate()
            .map(|(index, &(cpu, share))| {
                // Parts are bound to the CPUs in turn.
                let cpus = trial.shares.len();
                let rate = move |window: &Window| {
                    window.done.parts.iter().skip(index).step_by(cpus).sum::<f64>() / window.done.wall_s()
                };
                finding(trial, pairs, plan, share, Some(cpu), &rate)
            })
            .collect();
    }
    Ok(vec![finding(trial, pairs, plan, trial.lowest_share(), None, &|window| window.done.rate())?])
}

fn finding(
    trial: &Trial,
    pairs: &[Pair],
    plan: &Plan,
    asked: f64,
    cpu: Option<CpuId>,
    rate: &dyn Fn(&Window) -> f64,
) -> Result<Finding> {
    let workload = workload(&trial.job.workload)?;
    let rate = |window: &Window| above_nothing(rate(window), workload, window);
    let clock = |window: &Window, other: &Window| clock_ratio(workload, plan, window, other);
    let (mut measured, mut relative, mut controls, mut ideals) = (vec![], vec![], vec![], vec![]);
    let mut clocks = vec![];
    for pair in pairs.iter().filter(|pair| pair.kept) {
        if let Some((native, emulated)) = pair.sides() {
            let ideal = workload.ideal(asked, &native.done);
            ideals.push(ideal);
            measured.push(stats::Pair::new(rate(emulated), rate(native))?);
            let clock = clock(emulated, native);
            clocks.push(clock);
            relative.push(stats::Pair::new(rate(emulated) / clock, rate(native) * ideal)?);
        } else {
            let [a, b] = &pair.windows;
            controls.push(stats::Pair::new(rate(b) / clock(b, a), rate(a))?);
        }
    }
    let centre = Centre::Median(Bootstrap::new(plan.seed));
    let outliers = Outliers::of(&relative, &controls, plan.tolerance)?;
    let ratio = PairedRatios::new(&measured)?.ratio(centre, plan.level)?;
    let relative = PairedRatios::new(&relative)?.ratio(centre, plan.level)?;
    let differences: Vec<_> = controls.iter().map(|pair: &stats::Pair| pair.log_ratio().abs()).collect();
    let floor = if differences.is_empty() { None } else { Some(Sample::new(differences)?.mean().exp_m1()) };
    // Too few controls say nothing about what can be detected.
    let detectable =
        AaTest::of(&controls, controls.len(), centre, plan.level).ok().map(|test| test.detectable);
    let kept = || pairs.iter().filter(|pair| pair.kept);
    let windows = || kept().filter_map(Pair::sides).map(|(_, emulated)| emulated);
    let deliveries = || windows().filter_map(|window| window.delivery.as_ref());
    let cpus = trial.shares.len().max(1) as f64;
    let tainted = kept().filter(|pair| pair.sides().is_some() && !pair.taints.is_empty()).count();
    let own: Vec<f64> = deliveries().map(|delivery| delivery.own_cpu_s / delivery.wall_s / cpus).collect();
    Ok(Finding {
        workload: trial.job.workload.clone(),
        cpu,
        asked,
        ideal: Sample::new(ideals)?.median(),
        verdict: verdict(&relative, measured.len(), tainted, plan.tolerance, plan.level)?,
        ratio,
        relative,
        clock: if workload.follows_clock() && !plan.clock_is_emulated {
            Some(Sample::new(clocks)?.median())
        } else {
            None
        },
        pairs: measured.len(),
        repeated: pairs.iter().filter(|pair| !pair.kept).count(),
        tainted,
        floor,
        detectable,
        outliers,
        longest_stall_ns: windows().map(|window| window.done.longest_stall_ns).max().unwrap_or(0),
        periods: deliveries().map(|delivery| delivery.periods).sum(),
        missed: deliveries().map(|delivery| delivery.missed).sum(),
        own_cpu: if own.is_empty() { None } else { Some(Sample::new(own)?.median()) },
        fairness: if trial.job.pinned { None } else { Fairness::of(kept().filter_map(Pair::sides)) },
    })
}

/// Without a single quantum, less than one was done; half of one stands for that.
fn above_nothing(rate: f64, workload: &dyn Workload, window: &Window) -> f64 {
    rate.max(workload.quantum() / 2.0 / window.done.wall_s())
}

/// The ratio of the core clocks of two windows; 1 where it is not known, or where the emulation is what moves it.
fn clock_ratio(workload: &dyn Workload, plan: &Plan, window: &Window, other: &Window) -> f64 {
    let ratio = other.done.quantum_ns / window.done.quantum_ns;
    let is_known = workload.follows_clock() && ratio.is_finite() && ratio > 0.0;
    if is_known && !plan.clock_is_emulated { ratio } else { 1.0 }
}

/// The rates of the pairs of a trial that count, at equal clocks as in [`Finding::relative`], and as if each had the
/// ideal of [`Finding::ideal`]: the ideal of work that sleeps moves from pair to pair with what it sleeps.
///
/// # Errors
/// Usage, for an unknown workload, or a pair that cannot have been measured.
pub fn rates(trial: &Trial, pairs: &[Pair], plan: &Plan) -> Result<Vec<stats::Pair>> {
    let workload = workload(&trial.job.workload)?;
    let rate = |window: &Window| above_nothing(window.done.rate(), workload, window);
    let sides: Vec<_> = pairs.iter().filter(|pair| pair.kept).filter_map(Pair::sides).collect();
    let ideal = |native: &Window| workload.ideal(trial.lowest_share(), &native.done);
    if sides.is_empty() {
        return Ok(Vec::new());
    }
    let middle = Sample::new(sides.iter().map(|(native, _)| ideal(native)).collect::<Vec<_>>())?.median();
    sides
        .into_iter()
        .map(|(native, emulated)| {
            let clock = clock_ratio(workload, plan, emulated, native);
            stats::Pair::new(rate(emulated) / clock, rate(native) * ideal(native) / middle)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::oracles::Normals;
    use crate::verify::{Delivery, Side, Taint, schedule};
    use crate::workload::{Done, Job};

    fn window(side: Side, parts: &[f64], slept_ns: u64) -> Window {
        let done = Done {
            ended_ns: 1_000_000_000,
            parts: parts.to_vec(),
            slept_ns,
            longest_stall_ns: 7,
            quantum_ns: 1.0,
            cpu_ns: 500_000_000,
            ..Done::default()
        };
        let delivery = (side == Side::Emulated).then(|| Delivery {
            wall_s: 2.0,
            periods: 200,
            missed: 1,
            own_cpu_s: 0.02,
            process_cpu_s: 0.02,
            longest_stall_s: 0.0,
            effective: vec![],
        });
        Window {
            side,
            done,
            clock: None,
            settled_s: 0.0,
            harness_cpu_s: 0.0,
            steal: 0.0,
            throttled: 0.0,
            foreign: None,
            delivery,
        }
    }

    fn pair(number: usize, native: &[f64], emulated: &[f64]) -> Pair {
        let (native, emulated) = (window(Side::Native, native, 0), window(Side::Emulated, emulated, 0));
        let windows = if number.is_multiple_of(2) { [native, emulated] } else { [emulated, native] };
        Pair { number, rival: None, windows, taints: vec![], kept: true }
    }

    fn control(number: usize, b: f64) -> Pair {
        let windows = [window(Side::Native, &[1e9], 0), window(Side::Native, &[b], 0)];
        Pair { number, rival: None, windows, taints: vec![], kept: true }
    }

    fn trial(shares: &[f64], pinned: bool) -> Trial {
        let cpus = (0..shares.len()).collect();
        let job = Job { pinned, active: shares.len(), ..crate::workload::testing::job("cpu-loop", &cpus) };
        Trial { job, shares: shares.iter().copied().enumerate().collect() }
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
        let pair = Pair { number: 0, rival: None, windows: [native, emulated], taints: vec![], kept: true };
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
            Pair { number: 0, rival: None, windows: [native, emulated], taints: vec![], kept: true }
        };
        let pairs: Vec<_> = (1..=9).map(|tenth| perfect(tenth * 100_000_000)).collect();
        let plan = Plan::new(1);
        let found = findings(&trial(&[0.5], false), &pairs, &plan).unwrap().remove(0);
        assert!((found.ideal - 1.0 / 1.5).abs() < 1e-9);
        for pair in rates(&trial(&[0.5], false), &pairs, &plan).unwrap() {
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
        short
            .iter_mut()
            .flat_map(|pair| &mut pair.windows)
            .for_each(|window| window.done.cpu_ns = 20_000_000);
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
        assert_eq!((found.pairs, found.repeated, found.tainted), (15, 1, 1));
        assert_eq!((found.missed, found.periods), (15, 3000));
        assert!((found.own_cpu.unwrap() - 0.01).abs() < 1e-9);
        assert_eq!(found.longest_stall_ns, 7);
    }

    #[test]
    fn mostly_disturbed_pairs_decide_nothing() {
        for share in [0.4, 0.5] {
            for (disturbed, decides) in [(7, true), (8, false)] {
                let mut pairs = pairs(share, 15);
                pairs.iter_mut().take(disturbed).for_each(|pair| pair.taints.push(Taint::Throttled(0.4)));
                // Controls tell of the noise, not of the speed.
                pairs.extend((0..6).map(|i| Pair { taints: vec![Taint::Steal(0.5)], ..control(i, 1e9) }));
                let found = findings(&trial(&[0.4], false), &pairs, &Plan::new(1)).unwrap().remove(0);
                assert_eq!((found.tainted, found.is_disturbed()), (disturbed, !decides));
                let undecided = matches!(found.verdict, Verdict::NotEnoughData { pairs_needed: None });
                assert_eq!(undecided, !decides, "{share}: {found:?}");
                assert_eq!(found.within(Band::FIVE_PERCENT, Level::P95).unwrap(), found.verdict);
            }
        }
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
                Pair { number, rival: None, windows, taints: vec![], kept: true }
            })
            .collect()
    }

    fn found(share: f64, asked: f64, seed: u64) -> Finding {
        let plan = Plan::new(seed);
        findings(&trial(&[asked], false), &simulated(share, seed), &plan).unwrap().remove(0)
    }

    #[test]
    fn two_hundred_experiments_without_a_difference_raise_few_false_alarms() {
        let runs: Vec<_> = (0..200).map(|seed| found(1.0, 1.0, seed)).collect();
        let alarms = runs.iter().filter(|run| !run.relative.contains(1.0)).count();
        // 5 % of 200 are 10; more than 15 come by chance once in twenty times (binomial).
        assert!(alarms <= 15, "{alarms} false alarms");
        assert!(runs.iter().all(|run| run.verdict == Verdict::Pass));
    }

    #[test]
    fn a_slowdown_and_a_bias_are_found_with_their_size_as_often_as_the_interval_says() {
        for (share, asked) in [(0.5, 0.5), (0.515, 0.5), (0.09, 0.1)] {
            let runs: Vec<_> = (0..200).map(|seed| found(share, asked, 1000 + seed)).collect();
            let right = runs.iter().filter(|run| run.ratio.contains(share)).count();
            assert!(right >= 185, "{share}: {right} of 200 intervals hold the truth");
            assert!(runs.iter().all(|run| (run.error() - (share / asked - 1.0)).abs() < 0.02), "{share}");
        }
    }
}
