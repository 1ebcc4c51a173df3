//! What each knob of the machine does to the noise, measured: windows with the knob as found and as tuned, in turn.
//!
//! A window has the runs of `emu noise`, five in each of five fresh processes, of work that computes and of work that
//! sleeps. Fresh processes, as some knobs act on a program when it starts.

use std::time::{Duration, Instant};

use emu_core::{Error, Result};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use super::noise::{Kind, Order, RUNS, Runs};
use super::{Event, Watch, process, tell};
use crate::stats::{Bootstrap, Centre, Interval, Level, Noise, Pair, PairedRatios, Sample};

/// Pairs of windows of each knob, and for a first look the fewest that give an interval of 95 %.
const PAIRS: u32 = 12;
const PAIRS_QUICK: u32 = 6;

/// Fresh processes of a window, and runs in each.
const PROCESSES: u32 = 5;
const RUNS_IN_PROCESS: u32 = 5;

/// How long a run is to take.
const RUN: Duration = Duration::from_millis(5);

/// Time to start and end a process, for the time left before one was seen.
const START: Duration = Duration::from_millis(5);

/// Changes of the time of an operation that matter, as a share.
const TIME_MIN: f64 = 0.005;

/// The kinds of work: what computes, and what waits, which is what idle states and timers disturb.
pub const KINDS: [Kind; 2] = [Kind::CpuBound, Kind::Sleep1Ms];

/// A knob that can be turned.
pub trait Switch {
    /// Its name.
    fn name(&self) -> &str;
    /// Tunes it.
    ///
    /// # Errors
    /// The kernel refuses it.
    fn tune(&mut self) -> Result<()>;
    /// Puts it back as found.
    ///
    /// # Errors
    /// It cannot be put back.
    fn put_back(&mut self) -> Result<()>;
}

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Pairs of windows of each knob.
    pub pairs: u32,
    /// Fresh processes of each window and kind.
    pub processes: u32,
    /// Runs in each process.
    pub runs: u32,
    /// How long each run is to take.
    pub run_ns: u64,
    /// Start of the random numbers by which windows are ordered.
    pub seed: u64,
}

impl Plan {
    /// The usual plan, or a shorter one for a first look.
    pub fn new(quick: bool, seed: u64) -> Self {
        Self {
            pairs: if quick { PAIRS_QUICK } else { PAIRS },
            processes: PROCESSES,
            runs: RUNS_IN_PROCESS,
            run_ns: RUN.as_nanos() as u64,
            seed,
        }
    }

    fn window_time(&self) -> Duration {
        (START + Duration::from_nanos(self.run_ns) * (self.runs + 1)) * self.processes * KINDS.len() as u32
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Each knob and kind of work.
    pub effects: Vec<Effect>,
    /// Which knobs make runs calmer here.
    pub conclusion: String,
}

/// What one knob does to one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The knob.
    pub knob: String,
    /// The kind of work.
    pub kind: Kind,
    /// Median over the windows of (max − min) / median, with the knob as found.
    pub found_range: f64,
    /// The same with the knob tuned.
    pub tuned_range: f64,
    /// Noise tuned / noise found, over the pairs: below 1 is calmer.
    pub noise_ratio: Interval,
    /// Time of an operation tuned / found: below 1 is faster.
    pub time_ratio: Interval,
    /// Every pair of windows, in the order of time.
    pub pairs: Vec<Windows>,
}

/// A window with the knob as found and one with it tuned, next to each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// Whether the tuned one came first.
    pub tuned_first: bool,
    /// Nanoseconds of an operation in each run, as found.
    pub found_ns: Vec<f64>,
    /// The same, tuned.
    pub tuned_ns: Vec<f64>,
}

/// Measures each knob, one after another. Every knob is as found when this returns, whatever it returns.
///
/// # Errors
/// A knob cannot be turned, a process fails, or `watch` ends it.
pub fn measure(switches: &mut [Box<dyn Switch + '_>], plan: &Plan, watch: Watch<'_>) -> Result<Measured> {
    measure_with(switches, plan, watch, &mut |order| process::ask::<Runs>(RUNS, order))
}

type Ask<'a> = &'a mut dyn FnMut(&Order) -> Result<Runs>;

fn measure_with(
    switches: &mut [Box<dyn Switch + '_>],
    plan: &Plan,
    watch: Watch<'_>,
    ask: Ask<'_>,
) -> Result<Measured> {
    let operations = KINDS.iter().map(|kind| operations(*kind, plan, ask)).collect::<Result<Vec<_>>>()?;
    let mut rng = Pcg64::seed_from_u64(plan.seed);
    let mut left = switches.len() as u32 * plan.pairs;
    let mut pair_time = plan.window_time() * 2;
    let mut effects = Vec::new();
    for switch in switches {
        let name = switch.name().to_owned();
        let mut pairs: [Vec<Windows>; KINDS.len()] = Default::default();
        for tuned_first in orders(plan.pairs, &mut rng) {
            watch(Event::Next { what: &name, left: pair_time * left })?;
            let begin = Instant::now();
            let mut windows: [Vec<Vec<f64>>; 2] = Default::default();
            for tuned in [tuned_first, !tuned_first] {
                if tuned {
                    switch.tune()?;
                }
                let window = window(&operations, plan, ask);
                if tuned {
                    // Also after a failure: what was tuned is put back first.
                    switch.put_back()?;
                }
                if let Some(side) = windows.get_mut(usize::from(tuned)) {
                    *side = window?;
                }
            }
            left -= 1;
            pair_time = begin.elapsed();
            let [found, tuned] = windows;
            for ((of_kind, kind), (found_ns, tuned_ns)) in
                pairs.iter_mut().zip(KINDS).zip(found.into_iter().zip(tuned))
            {
                let pair = Windows { tuned_first, found_ns, tuned_ns };
                tell(watch, &format!("{name} {}", kind.name()), &pair)?;
                of_kind.push(pair);
            }
        }
        for (pairs, kind) in pairs.into_iter().zip(KINDS) {
            effects.push(Effect::new(&name, kind, pairs, plan.seed)?);
        }
    }
    let conclusion = conclusion(&effects);
    Ok(Measured { effects, conclusion })
}

/// As many operations as fill a run.
fn operations(kind: Kind, plan: &Plan, ask: Ask<'_>) -> Result<(Kind, u64)> {
    let order = Order { kind, runs: 1, operations: None, length_ns: plan.run_ns };
    Ok((kind, ask(&order)?.operations))
}

/// Whether the tuned window comes first: in each two pairs once, ABBA or BAAB by chance.
fn orders(pairs: u32, rng: &mut Pcg64) -> Vec<bool> {
    let mut orders = Vec::new();
    for _ in 0..pairs.div_ceil(2) {
        let mut both = [false, true];
        both.shuffle(rng);
        orders.extend(both);
    }
    orders.truncate(pairs as usize);
    orders
}

/// Nanoseconds of an operation in every run, by kind.
fn window(operations: &[(Kind, u64)], plan: &Plan, ask: Ask<'_>) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::new(); operations.len()];
    for _ in 0..plan.processes {
        for (times, &(kind, operations)) in times.iter_mut().zip(operations) {
            let order = Order { kind, runs: plan.runs, operations: Some(operations), length_ns: plan.run_ns };
            let runs = ask(&order)?.runs;
            times.extend(runs.iter().map(|run| run.wall_ns as f64 / operations as f64));
        }
    }
    Ok(times)
}

impl Effect {
    fn new(knob: &str, kind: Kind, pairs: Vec<Windows>, seed: u64) -> Result<Self> {
        let noise = |times: &[f64]| Ok::<_, Error>(Noise::of(&Sample::new(times)?)?.range);
        let median = |times: &[f64]| Ok::<_, Error>(Sample::new(times)?.median());
        let found = each(&pairs, |pair| noise(&pair.found_ns))?;
        let tuned = each(&pairs, |pair| noise(&pair.tuned_ns))?;
        let found_times = each(&pairs, |pair| median(&pair.found_ns))?;
        let tuned_times = each(&pairs, |pair| median(&pair.tuned_ns))?;
        Ok(Self {
            knob: knob.to_owned(),
            kind,
            found_range: median(&found)?,
            tuned_range: median(&tuned)?,
            noise_ratio: ratio(&tuned, &found, seed)?,
            time_ratio: ratio(&tuned_times, &found_times, seed)?,
            pairs,
        })
    }

    /// Whether it is shown to make this work calmer.
    pub fn is_calmer(&self) -> bool {
        self.noise_ratio.high < 1.0
    }

    /// Whether it is shown to make it louder.
    pub fn is_louder(&self) -> bool {
        self.noise_ratio.low > 1.0
    }

    /// By how much it changes the time of an operation, where it is shown to do so by what matters.
    pub fn time_change(&self) -> Option<f64> {
        let change = self.time_ratio.estimate - 1.0;
        (!self.time_ratio.contains(1.0) && change.abs() >= TIME_MIN).then_some(change)
    }
}

fn each(pairs: &[Windows], of: impl Fn(&Windows) -> Result<f64>) -> Result<Vec<f64>> {
    pairs.iter().map(of).collect()
}

/// The middle of the ratios of pairs.
fn ratio(tuned: &[f64], found: &[f64], seed: u64) -> Result<Interval> {
    let pairs = tuned.iter().zip(found).map(|(tuned, found)| Pair::new(*tuned, *found));
    let pairs = pairs.collect::<Result<Vec<_>>>()?;
    PairedRatios::new(&pairs)?.ratio(Centre::Median(Bootstrap::new(seed)), Level::P95)
}

fn conclusion(effects: &[Effect]) -> String {
    let named = |which: &dyn Fn(&Effect) -> bool| {
        let names = effects.iter().filter(|effect| which(effect));
        names.map(|effect| format!("{} ({})", effect.knob, effect.kind.name())).collect::<Vec<_>>().join(", ")
    };
    let (calmer, louder) = (named(&Effect::is_calmer), named(&Effect::is_louder));
    let mut sentences = Vec::new();
    if !calmer.is_empty() {
        sentences.push(format!("Shown to make runs calmer here: {calmer}."));
    }
    if !louder.is_empty() {
        sentences.push(format!("Shown to make them louder: {louder}."));
    }
    if sentences.is_empty() {
        sentences.push("No knob is shown to change the noise here.".to_owned());
    }
    let times: Vec<_> = effects
        .iter()
        .filter_map(|effect| {
            let percent = effect.time_change()? * 100.0;
            Some(format!("{} ({}) by {percent:+.1}%", effect.knob, effect.kind.name()))
        })
        .collect();
    if !times.is_empty() {
        sentences.push(format!("Shown to change the time of an operation: {}.", times.join(", ")));
    }
    let unknown = effects.iter().filter(|effect| !effect.is_calmer() && !effect.is_louder()).count();
    if unknown > 0 && unknown < effects.len() {
        sentences.push("Of the rest this many pairs show no effect on the noise.".to_owned());
    }
    sentences.join(" ")
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::super::noise::Run;
    use super::*;

    /// A knob that divides the spread of runs by `factor`.
    struct Fake<'a> {
        spread: &'a Cell<f64>,
        factor: f64,
        log: &'a RefCell<Vec<&'static str>>,
    }

    impl Switch for Fake<'_> {
        fn name(&self) -> &'static str {
            "fake"
        }

        fn tune(&mut self) -> Result<()> {
            self.log.borrow_mut().push("tune");
            self.spread.set(self.spread.get() / self.factor);
            Ok(())
        }

        fn put_back(&mut self) -> Result<()> {
            self.log.borrow_mut().push("put back");
            self.spread.set(self.spread.get() * self.factor);
            Ok(())
        }
    }

    /// Runs of a process whose times lie apart by `spread` of a millisecond, drifting from call to call.
    fn runs(order: &Order, spread: f64, call: u64) -> Runs {
        let base = 1e6 * (1.0 + 0.1 * call as f64);
        let wall = |run: u32| (base * (1.0 + spread * f64::from(run % 5) / 4.0)) as u64;
        let operations = order.operations.unwrap_or(1);
        let runs = (0..order.runs).map(|run| Run { wall_ns: wall(run), preempted: 0 }).collect();
        Runs { operations, runs }
    }

    fn plan() -> Plan {
        Plan { pairs: 6, processes: 1, ..Plan::new(true, 7) }
    }

    fn with_effect(factor: f64) -> Measured {
        let (spread, log, calls) = (Cell::new(0.4), RefCell::default(), Cell::new(0));
        let mut switches: Vec<Box<dyn Switch + '_>> =
            vec![Box::new(Fake { spread: &spread, factor, log: &log })];
        let mut ask = |order: &Order| {
            calls.set(calls.get() + 1);
            Ok(runs(order, spread.get(), calls.get()))
        };
        let mut samples = 0;
        let measured = measure_with(
            &mut switches,
            &plan(),
            &mut |event| {
                samples += usize::from(matches!(event, Event::Sample { .. }));
                Ok(())
            },
            &mut ask,
        )
        .unwrap();
        assert_eq!(samples, 12, "six pairs of two kinds");
        assert_eq!(log.borrow().iter().filter(|what| **what == "tune").count(), 6);
        assert!((spread.get() - 0.4).abs() < 1e-12, "as found");
        measured
    }

    #[test]
    fn the_ratio_of_a_known_effect_is_found() {
        let measured = with_effect(4.0);
        let effect = &measured.effects[0];
        assert_eq!(effect.pairs.len(), 6);
        assert!((effect.found_range - 0.4 / 1.2).abs() < 1e-3, "{effect:?}");
        // 0.1 / 1.05 over 0.4 / 1.2.
        assert!((effect.noise_ratio.estimate - 0.2857).abs() < 1e-3, "{:?}", effect.noise_ratio);
        assert!(effect.is_calmer() && !effect.is_louder());
        let calmer = "Shown to make runs calmer here: fake (cpu-bound), fake (sleep-1ms).";
        assert!(measured.conclusion.starts_with(calmer), "{}", measured.conclusion);
        assert!(with_effect(0.5).conclusion.contains("louder: fake (cpu-bound)"));
    }

    #[test]
    fn a_knob_without_effect_is_told_as_one() {
        let measured = with_effect(1.0);
        assert!(measured.effects.iter().all(|effect| !effect.is_calmer() && !effect.is_louder()));
        assert_eq!(measured.conclusion, "No knob is shown to change the noise here.");
        let json = serde_json::to_string(&measured).unwrap();
        assert_eq!(serde_json::from_str::<Measured>(&json).unwrap(), measured);
    }

    #[test]
    fn a_change_of_the_time_is_told_where_it_matters() {
        let windows = |tuned: f64| Windows {
            tuned_first: false,
            found_ns: vec![100.0, 101.0, 102.0],
            tuned_ns: [100.0, 101.0, 102.0].map(|time| time * tuned).to_vec(),
        };
        let effect = |tuned: f64| {
            let pairs = (0..6).map(|pair| windows(tuned + f64::from(pair) * 1e-4)).collect();
            Effect::new("fake", Kind::CpuBound, pairs, 1).unwrap()
        };
        assert!((effect(0.95).time_change().unwrap() + 0.04975).abs() < 1e-6);
        assert!(conclusion(&[effect(0.95)]).contains("time of an operation: fake (cpu-bound) by -5.0%."));
        assert_eq!(effect(0.999).time_change(), None, "too small to matter");
        assert_eq!(effect(0.9998).time_change(), None);
    }

    #[test]
    fn a_knob_is_put_back_before_a_failed_window_is_told() {
        let (spread, log, calls) = (Cell::new(0.4), RefCell::default(), Cell::new(0));
        for fails_at in 3..12 {
            calls.set(0);
            let mut switches: Vec<Box<dyn Switch + '_>> =
                vec![Box::new(Fake { spread: &spread, factor: 2.0, log: &log })];
            let mut ask = |order: &Order| {
                calls.set(calls.get() + 1);
                if calls.get() == fails_at {
                    Err(Error::unavailable("gone"))
                } else {
                    Ok(runs(order, 0.4, 1))
                }
            };
            assert!(measure_with(&mut switches, &plan(), &mut |_| Ok(()), &mut ask).is_err());
            let log = log.borrow();
            let count = |what: &str| log.iter().filter(|entry| **entry == what).count();
            assert_eq!(count("tune"), count("put back"), "failed at {fails_at}");
        }
    }

    #[test]
    fn both_orders_come_equally_often() {
        let mut rng = Pcg64::seed_from_u64(3);
        let orders = orders(12, &mut rng);
        assert_eq!((orders.len(), orders.iter().filter(|first| **first).count()), (12, 6));
        assert!(orders.chunks(2).all(|block| block[0] != block[1]));
        assert_eq!(super::orders(7, &mut rng).len(), 7);
    }
}
