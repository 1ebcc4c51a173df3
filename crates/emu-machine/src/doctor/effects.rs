//! What each knob of the machine does to the noise, measured: windows with the knob as found and as tuned, in turn.
//!
//! A window has the runs of `emu noise`, five in each of five fresh processes, of work that computes and of work that
//! sleeps. Fresh processes, as some knobs act on a program when it starts.

mod effect;

pub use effect::{Effect, Windows};

use std::time::{Duration, Instant};

use emu_core::{CpuList, Host, Result};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::noise::{Kind, Order, Runs, runs};
use crate::witness::{Others, Witness};
use crate::{Event, Watch, tell};

/// Pairs of windows of each knob, and for a first look the fewest that give an interval of 95 %.
const PAIRS: u32 = 12;
const PAIRS_QUICK: u32 = 6;

const PROCESSES: u32 = 5;
const RUNS_IN_PROCESS: u32 = 5;

const RUN: Duration = Duration::from_millis(5);

/// Time to start and end a process, for the time left before one was seen.
const START: Duration = Duration::from_millis(5);

/// The kinds of work: what computes, and what waits, which is what idle states and timers disturb.
pub const KINDS: [Kind; 2] = [Kind::CpuBound, Kind::Sleep1Ms];

/// A knob that can be turned.
pub trait Switch {
    /// Its name.
    fn name(&self) -> &str;
    /// Tunes it.
    fn tune(&mut self) -> Result<()>;
    /// Puts it back as found.
    fn put_back(&mut self) -> Result<()>;
}

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectsPlan {
    /// Pairs of windows of each knob.
    pub pairs: u32,
    /// Fresh processes of each window and kind.
    pub processes: u32,
    /// Runs in each process.
    pub runs: u32,
    /// How long each run is to take.
    pub run_ns: u64,
    /// The CPUs that runs are bound to; none where they are free to move.
    pub cpus: CpuList,
    /// Start of the random numbers by which windows are ordered.
    pub seed: u64,
}

impl EffectsPlan {
    /// The usual plan, or a shorter one for a first look.
    pub fn new(quick: bool, seed: u64) -> Self {
        Self {
            pairs: if quick { PAIRS_QUICK } else { PAIRS },
            processes: PROCESSES,
            runs: RUNS_IN_PROCESS,
            run_ns: RUN.as_nanos() as u64,
            cpus: CpuList::default(),
            seed,
        }
    }

    fn window_time(&self) -> Duration {
        (START + Duration::from_nanos(self.run_ns) * (self.runs + 1)) * self.processes * KINDS.len() as u32
    }

    fn order(&self, kind: Kind, runs: u32, operations: Option<u64>) -> Order {
        Order { kind, runs, operations, length_ns: self.run_ns, cpus: self.cpus.clone(), server: None }
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Each knob and kind of work.
    pub effects: Vec<Effect>,
    /// Which knobs make runs calmer here.
    pub conclusion: String,
}

/// Measures each knob, one after another. Every knob is as found when this returns, whatever it returns.
pub fn measure(
    host: &Host,
    switches: &mut [Box<dyn Switch + '_>],
    plan: &EffectsPlan,
    watch: Watch<'_>,
) -> Result<Measured> {
    measure_with(host, switches, plan, watch, &mut runs)
}

type Ask<'a> = &'a mut dyn FnMut(&Order) -> Result<Runs>;

fn measure_with(
    host: &Host,
    switches: &mut [Box<dyn Switch + '_>],
    plan: &EffectsPlan,
    watch: Watch<'_>,
    ask: Ask<'_>,
) -> Result<Measured> {
    let operations = KINDS.iter().map(|kind| operations(*kind, plan, ask)).collect::<Result<Vec<_>>>()?;
    let mut rng = Pcg64::seed_from_u64(plan.seed);
    let comparisons = switches.len() * KINDS.len();
    let mut left = switches.len() as u32 * plan.pairs;
    let mut pair_time = plan.window_time() * 2;
    let mut effects = Vec::new();
    // The runs are those of other processes, so that nothing is known to be foreign.
    let witness = Witness::new(host, 0, Others::Work);
    for switch in switches {
        let name = switch.name().to_owned();
        let mut pairs: [Vec<Windows>; KINDS.len()] = Default::default();
        for tuned_first in orders(plan.pairs, &mut rng) {
            watch(Event::Next { what: &name, left: pair_time * left })?;
            let begin = Instant::now();
            let mut windows: [Vec<Vec<f64>>; 2] = Default::default();
            let mut disturbed = false;
            for tuned in [tuned_first, !tuned_first] {
                if tuned {
                    switch.tune()?;
                }
                let window = witness.beside_step(|| window(&operations, plan, ask));
                if tuned {
                    // Also after a failure: what was tuned is put back first.
                    switch.put_back()?;
                }
                if let Some(side) = windows.get_mut(usize::from(tuned)) {
                    let (times, seen) = window?;
                    disturbed |= seen.is_notable();
                    *side = times;
                }
            }
            left -= 1;
            pair_time = begin.elapsed();
            let [found, tuned] = windows;
            for ((of_kind, kind), (found_ns, tuned_ns)) in
                pairs.iter_mut().zip(KINDS).zip(found.into_iter().zip(tuned))
            {
                let pair = Windows { tuned_first, found_ns, tuned_ns, disturbed };
                tell(watch, &format!("{name} {}", kind.name()), &pair)?;
                of_kind.push(pair);
            }
        }
        for (pairs, kind) in pairs.into_iter().zip(KINDS) {
            effects.push(Effect::new(&name, kind, pairs, plan.seed, comparisons)?);
        }
    }
    let conclusion = effect::conclusion(&effects);
    Ok(Measured { effects, conclusion })
}

fn operations(kind: Kind, plan: &EffectsPlan, ask: Ask<'_>) -> Result<(Kind, u64)> {
    Ok((kind, ask(&plan.order(kind, 1, None))?.operations))
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
fn window(operations: &[(Kind, u64)], plan: &EffectsPlan, ask: Ask<'_>) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::new(); operations.len()];
    for _ in 0..plan.processes {
        for (times, &(kind, operations)) in times.iter_mut().zip(operations) {
            let runs = ask(&plan.order(kind, plan.runs, Some(operations)))?.runs;
            times.extend(runs.iter().map(|run| run.wall_ns as f64 / operations as f64));
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use emu_core::Error;

    use super::*;
    use crate::noise::Run;
    use crate::testing::host_of;

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

    /// A host without accounts.
    fn calm() -> Host {
        let mut host = host_of(&["0"], "0");
        host.roots.proc = "/nonexistent".into();
        host.cgroups.hierarchies.clear();
        host
    }

    fn plan() -> EffectsPlan {
        EffectsPlan { pairs: 6, processes: 1, ..EffectsPlan::new(true, 7) }
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
            &calm(),
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
    fn every_run_is_ordered_on_the_cpus_of_the_plan() {
        let (spread, log) = (Cell::new(0.4), RefCell::default());
        let mut switches: Vec<Box<dyn Switch + '_>> =
            vec![Box::new(Fake { spread: &spread, factor: 2.0, log: &log })];
        let plan = EffectsPlan { cpus: "1,3".parse().unwrap(), ..plan() };
        let mut asked = 0;
        let mut ask = |order: &Order| {
            asked += 1;
            assert_eq!(order.cpus, plan.cpus);
            Ok(runs(order, 0.4, 1))
        };
        measure_with(&calm(), &mut switches, &plan, &mut |_| Ok(()), &mut ask).unwrap();
        // Two kinds: once to find the length of a run, then in both windows of six pairs.
        assert_eq!(asked, 2 * (1 + 12));
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
            assert!(measure_with(&calm(), &mut switches, &plan(), &mut |_| Ok(()), &mut ask).is_err());
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
