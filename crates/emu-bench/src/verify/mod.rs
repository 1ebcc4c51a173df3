//! Fidelity of an emulation, measured: pairs of native and emulated windows, judged against the ideal.
//!
//! A *pair* is two windows of one fresh worker process, one with and one without emulation: its memory layout cancels out of
//! their ratio, and the pairs are independent, which the intervals assume. In half of the pairs the native window comes first:
//! the emulation takes over a running process, as `emu attach` does. In the other half the work begins inside the zone, as with
//! `emu run`. Blocks of both orders, ABBA or BAAB by a recorded seed, let a machine that drifts favour neither side.
//!
//! Native means not engaged at all: an emulation at 100 % still costs what its machinery costs. *Controls* have two native
//! windows: what these differ by is the floor below which nothing can be told in this run.
//!
//! An emulation that judges a process by its whole life ([`LifetimeRule`]) is measured as a program sees it that has run for
//! long: the worker works under it, uncounted, until what it did before no longer matters.

mod clock;
mod delivered;
mod doubt;
mod emulated;
mod fairness;
mod finding;
mod gate;
mod ideal;
mod lifetime;
mod outliers;
mod pair;
pub(crate) mod schedule;
#[cfg(test)]
pub(crate) mod testing;
mod trial;
mod window;

pub use clock::CoreClock;
pub use delivered::{Delivered, delivered};
pub use doubt::Doubt;
pub use emulated::{Emulated, Nothing, SessionEmulated};
pub use fairness::Fairness;
pub use finding::{Finding, findings, rates};
pub use gate::Taint;
pub use gate::{CLOCK_CHANGE_MAX, FOREIGN_MAX, STEAL_MAX, THROTTLED_MAX};
pub use lifetime::LifetimeRule;
pub(crate) use lifetime::with_descendants;
pub use outliers::Outliers;
pub(crate) use pair::counting;
pub use pair::{Pair, take};
pub use trial::Trial;
pub use window::{Delivery, Side, Window};

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use emu_core::{Result, Roots, Targets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::{Band, Granularity, Level, Stamp};
use crate::worker::Look;
use crate::workload::{Job, Setting};

/// The workload whose progress is looked at closely.
pub const SMOOTH: &str = "cpu-loop";

/// A window of at least this length, with enough [cycles](Emulated::cycle) for their phase not to matter, and of which the
/// [grain](Emulated::grain) is little at this share.
pub fn window_for(least: Duration, emulated: &dyn Emulated, share: f64) -> Duration {
    const CYCLES: u32 = 3;
    const GRAIN: f64 = 0.02;
    least.max(emulated.cycle() * CYCLES).max(emulated.grain().div_f64(share * GRAIN))
}

/// The window of a granularity spectrum: of at least this length, and enough periods to see how they differ.
pub fn spectrum_of_periods(least: Duration, period: Duration) -> Duration {
    const PERIODS: u32 = 30;
    least.max(period * PERIODS)
}

/// How to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Pairs of a native and an emulated window.
    pub pairs: usize,
    /// Length of a window; rounded up to whole cycles of the emulation, so that its phase does not matter.
    pub window: Duration,
    /// How long work is under way before its window opens, at least.
    pub lead: Duration,
    /// How many disturbed pairs are taken again, in all.
    pub repeats: usize,
    /// Start of the random numbers, for the order of windows and the intervals.
    pub seed: u64,
    /// How far from the ideal still passes.
    pub tolerance: Band,
    /// Confidence of intervals and verdicts.
    pub level: Level,
    /// Whether the emulation works by the core clock itself: then a changed clock is judged, and is no disturbance.
    pub clock_is_emulated: bool,
    /// procfs.
    pub proc: PathBuf,
}

impl Plan {
    /// 15 pairs of windows of 200 ms, judged at ±5 % and 95 % confidence.
    pub fn new(seed: u64) -> Self {
        Self {
            pairs: 15,
            window: Duration::from_millis(200),
            lead: Duration::from_millis(20),
            repeats: 5,
            seed,
            tolerance: Band::FIVE_PERCENT,
            level: Level::P95,
            clock_is_emulated: false,
            proc: Roots::system().proc,
        }
    }

    /// One for three pairs, and at least as many as an interval of the median needs.
    pub fn controls(&self) -> usize {
        self.more_controls().max(6).min(self.pairs)
    }

    /// Beside pairs that join others, of which enough have controls.
    fn more_controls(&self) -> usize {
        self.pairs / 3
    }

    /// The window in whole cycles of an emulation.
    pub fn window_of(&self, emulated: &dyn Emulated) -> Duration {
        let cycle = emulated.cycle();
        if cycle.is_zero() {
            return self.window;
        }
        cycle.saturating_mul(self.window.div_duration_f64(cycle).ceil().max(1.0) as u32)
    }

    /// How long before a window its order is given, so that work is under way and the speed steady when it opens.
    pub(crate) fn lead_of(&self, side: Side, emulated: &dyn Emulated, job: &Job) -> Duration {
        match side {
            Side::Native => self.lead,
            // What sleeps until its window opens would have that as credit.
            Side::Emulated if emulated.lifetime_rule().is_some() && !job.sleep.is_zero() => Duration::ZERO,
            Side::Emulated => emulated.settle().max(self.lead),
        }
    }

    /// What jobs are made for.
    pub fn setting(&self, emulated: &dyn Emulated, targets: &Targets) -> Setting {
        Setting {
            cpus: targets.keys().copied().collect(),
            period: emulated.cycle(),
            share: emu_core::lowest_share(targets),
            window: self.window_of(emulated),
        }
    }

    /// About how long a trial takes, without repeats.
    pub fn expected_time(&self, emulated: &dyn Emulated, trial: &Trial) -> Duration {
        self.expected_time_with(self.controls(), emulated, trial)
    }

    /// About how long it takes to [`extend`] a trial, without repeats.
    pub fn expected_time_of_more(&self, emulated: &dyn Emulated, trial: &Trial) -> Duration {
        self.expected_time_with(self.more_controls(), emulated, trial)
    }

    fn expected_time_with(&self, controls: usize, emulated: &dyn Emulated, trial: &Trial) -> Duration {
        let (pair, control) = self.expected_times(emulated, trial);
        pair * self.pairs as u32 + control * controls as u32
    }

    /// About how long a pair takes, and a control.
    pub fn expected_times(&self, emulated: &dyn Emulated, trial: &Trial) -> (Duration, Duration) {
        /// A process is started, the emulation engaged and released.
        const OVERHEAD: Duration = Duration::from_millis(50);
        /// Arrays are touched for the first time and given back: bytes a second.
        const PREPARED: f64 = 2.5e9;
        let job = &trial.job;
        let arrays = job.arrays.map_or(0.0, |size| 3.0 * size.array_bytes as f64 / PREPARED);
        let overhead = OVERHEAD + Duration::from_secs_f64(arrays);
        let window = self.window_of(emulated);
        let cycles = job.cycles as u32;
        let (native, slowed) = if job.sleep.is_zero() {
            (window, window)
        } else {
            let stretched = job.burst.div_f64(trial.lowest_share());
            ((job.burst + job.sleep) * cycles, (stretched + job.sleep) * cycles)
        };
        let lead = self.lead + self.lead_of(Side::Emulated, emulated, job);
        let pair = native + slowed + lead + self.settling(emulated, job, native) + overhead;
        (pair, (native + self.lead) * 2 + overhead)
    }

    /// The mean of pairs with and without a native window in the worker's past, as if one process did all.
    fn settling(&self, emulated: &dyn Emulated, job: &Job, native: Duration) -> Duration {
        let Some(rule) = emulated.lifetime_rule() else { return Duration::ZERO };
        let lived = native + self.lead;
        let used = if !job.interval.is_zero() {
            Duration::ZERO
        } else if job.sleep.is_zero() {
            lived * job.active.min(job.cpus.len()) as u32
        } else {
            job.burst * job.cycles as u32
        };
        emulated.settle() + rule.held_for(used, lived) / 2
    }
}

/// What came out of a trial.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Outcome {
    /// What was tried.
    pub trial: Trial,
    /// Every pair that was taken, disturbed ones included, in the order of time.
    pub pairs: Vec<Pair>,
    /// The judgement: one, or one for each CPU where parts are bound to CPUs of different speeds.
    pub findings: Vec<Finding>,
}

/// What is called after each pair, while nothing is measured, and with none now and then while one is taken; its error ends the
/// trial.
pub type Watch<'a> = &'a mut dyn FnMut(Option<&Pair>) -> Result<()>;

/// Measures how faithful an emulation is for one job, and judges it.
pub fn verify(emulated: &mut dyn Emulated, trial: &Trial, plan: &Plan, watch: Watch<'_>) -> Result<Outcome> {
    let plan = &Plan { clock_is_emulated: emulated.moves_clock(), ..plan.clone() };
    let pairs = take_pairs(emulated, trial, plan, plan.controls(), watch)?;
    Ok(Outcome { trial: trial.clone(), findings: findings(trial, &pairs, plan)?, pairs })
}

/// Takes more pairs, as many as the plan has, and judges all anew.
pub fn extend(
    emulated: &mut dyn Emulated,
    outcome: &mut Outcome,
    plan: &Plan,
    watch: Watch<'_>,
) -> Result<()> {
    let taken = outcome.pairs.iter().map(|pair| pair.number + 1).max().unwrap_or(0);
    let seed = plan.seed.wrapping_add(taken as u64);
    let plan = &Plan { seed, clock_is_emulated: emulated.moves_clock(), ..plan.clone() };
    let more = take_pairs(emulated, &outcome.trial, plan, plan.more_controls(), watch)?;
    outcome.pairs.extend(more.into_iter().map(|pair| Pair { number: taken + pair.number, ..pair }));
    outcome.findings = findings(&outcome.trial, &outcome.pairs, plan)?;
    Ok(())
}

fn take_pairs(
    emulated: &mut dyn Emulated,
    trial: &Trial,
    plan: &Plan,
    controls: usize,
    watch: Watch<'_>,
) -> Result<Vec<Pair>> {
    let schedule = schedule::schedule(plan.pairs, controls, plan.seed);
    take_all(
        schedule.into_iter().enumerate().collect(),
        plan.repeats,
        |(number, sides), look| {
            let workload = &trial.job.workload;
            pair::take(emulated, trial, plan, number, sides, look)
                .map_err(|why| why.during(format!("cannot measure {workload} with {}", emulated.name())))
        },
        watch,
    )
}

/// A disturbed pair is taken again after all others: a disturbance of some seconds would spoil it again at once.
fn take_all<T: Copy>(
    mut steps: VecDeque<T>,
    mut repeats: usize,
    mut take: impl FnMut(T, Look<'_>) -> Result<Pair>,
    watch: Watch<'_>,
) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    while let Some(step) = steps.pop_front() {
        let mut pair = take(step, &mut || watch(None))?;
        pair.kept = pair.taints.is_empty() || repeats == 0;
        watch(Some(&pair))?;
        if !pair.kept {
            repeats -= 1;
            steps.push_back(step);
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

/// How smoothly one thread progresses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spectrum {
    /// The spectrum and the longest stall.
    #[serde(flatten)]
    pub granularity: Granularity,
    /// What disturbed the window, where no better one could be had.
    pub taint: Option<Taint>,
}

/// How smoothly one thread progresses under an emulation, over a window of this length, unless `look` fails meanwhile.
pub fn spectrum(
    emulated: &mut dyn Emulated,
    trial: &Trial,
    plan: &Plan,
    length: Duration,
    look: Look<'_>,
) -> Result<Spectrum> {
    let plan = Plan { window: length, ..plan.clone() };
    let mut repeats = plan.repeats;
    loop {
        let (done, taint) = pair::take_stamped(emulated, trial, &plan, look)?;
        if taint.is_some() && repeats > 0 {
            repeats -= 1;
            continue;
        }
        let stamps: Vec<_> = done.stamps.iter().map(|&(time_ns, work)| Stamp { time_ns, work }).collect();
        return Ok(Spectrum { granularity: Granularity::of(&stamps)?, taint });
    }
}

#[cfg(test)]
mod tests;
