//! The speed of CPUs over time, as a trace: turbo, heat and steal make it waver.
//!
//! A thread on each CPU computes all the time, as a CPU that has nothing to do shows neither heat nor steal. What other
//! tasks of this system take is left out: it is not the CPU that is slower then.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use emu_core::{CpuId, CpuList, Error, Host, Result, STEP_MIN, clock};

use crate::kernel::on_each_cpu;
use crate::waiting::waited;

/// Steps of a recording; more are a slip.
const STEPS_MAX: u128 = 1_000_000;

/// How long, how closely and where is looked.
#[derive(Debug, Clone)]
pub struct WaveringPlan {
    cpus: CpuList,
    every: Duration,
    steps: u32,
}

impl WaveringPlan {
    /// A plan for these CPUs.
    pub fn new(host: &Host, cpus: Option<&CpuList>, length: Duration, every: Duration) -> Result<Self> {
        let cpus = cpus.unwrap_or(&host.allowed).clone();
        host.check_cpus(&cpus)?;
        if every < STEP_MIN {
            return Err(Error::usage(format!("steps of {every:?} are too short"))
                .hint(format!("a trace has steps of {STEP_MIN:?} or more")));
        }
        match length.as_nanos() / every.as_nanos() {
            0 => Err(Error::usage(format!("{length:?} is shorter than a step of {every:?}"))
                .hint("record for longer, or with shorter steps")),
            steps if steps > STEPS_MAX => {
                Err(Error::usage(format!("{length:?} has too many steps of {every:?}"))
                    .hint(format!("{STEPS_MAX} are the most")))
            }
            steps => Ok(Self { cpus, every, steps: steps as u32 }),
        }
    }

    /// How long it takes.
    pub fn length(&self) -> Duration {
        self.every * self.steps
    }
}

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Wavering {
    every: Duration,
    /// The clock that each CPU gave in each step, in hertz.
    clocks: Vec<(CpuId, Vec<f64>)>,
}

/// Looks at the CPUs, until all steps are done or `ends` is set.
pub fn record(host: &Host, plan: &WaveringPlan, ends: &AtomicBool) -> Result<Wavering> {
    let schedstat = host.roots.proc.join("thread-self/schedstat");
    let together = Barrier::new(plan.cpus.len());
    let clocks = on_each_cpu("the recording", &plan.cpus, |cpu| {
        together.wait();
        let clocks = filled(of_thread(plan, &schedstat, ends)).ok_or_else(|| {
            Error::unavailable(format!("cannot record CPU {cpu}: other tasks had it in every step"))
                .hint("choose other CPUs, or record when the machine is calm")
        })?;
        Ok((cpu, clocks))
    })?;
    // One may have been ended a step before another.
    let steps = clocks.iter().map(|(_, clocks)| clocks.len()).min().unwrap_or(0);
    let cut = |(cpu, mut clocks): (CpuId, Vec<f64>)| {
        clocks.truncate(steps);
        (cpu, clocks)
    };
    Ok(Wavering { every: plan.every, clocks: clocks.into_iter().map(cut).collect() })
}

/// The clock of each step; `None` where others took so much of it that it tells nothing.
fn of_thread(plan: &WaveringPlan, schedstat: &Path, ends: &AtomicBool) -> Vec<Option<f64>> {
    let begin = Instant::now();
    let mut clocks = Vec::new();
    for step in 1..=plan.steps {
        let before = waited(schedstat);
        let left = (plan.every * step).saturating_sub(begin.elapsed());
        let seen = clock::delivered(left);
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let others = waited(schedstat).zip(before).map_or(0, |(after, before)| after - before) as f64 * 1e-9;
        let wall = seen.wall.as_secs_f64();
        let own = wall - others;
        clocks.push((own >= 0.1 * plan.every.as_secs_f64()).then(|| seen.clock.as_f64() * wall / own));
    }
    clocks
}

/// A step that tells nothing is as the one before, and the first ones as the first that tells; `None` where none does.
fn filled(steps: Vec<Option<f64>>) -> Option<Vec<f64>> {
    let mut last = steps.iter().find_map(|step| *step);
    steps
        .into_iter()
        .map(|step| {
            last = step.or(last);
            last
        })
        .collect()
}

impl Wavering {
    /// The number of steps.
    pub fn steps(&self) -> usize {
        self.clocks.first().map_or(0, |(_, clocks)| clocks.len())
    }

    /// The highest clock of all steps and CPUs, in hertz.
    pub fn highest(&self) -> f64 {
        self.clocks.iter().flat_map(|(_, clocks)| clocks).copied().fold(0.0, f64::max)
    }

    /// As a trace: shares of [the highest](Self::highest), or clocks.
    pub fn trace(&self, as_clocks: bool) -> String {
        let highest = self.highest();
        let mut text = format!("# 100% is {:.4} GHz\ntime_s,cpu,speed\n", highest / 1e9);
        for step in 0..self.steps() {
            let time = (self.every * step as u32).as_secs_f64();
            for (cpu, clocks) in &self.clocks {
                let clock = clocks.get(step).copied().unwrap_or(highest);
                // Writing to a string cannot fail.
                let _ = if as_clocks {
                    writeln!(text, "{time},{cpu},{:.4}GHz", clock / 1e9)
                } else {
                    writeln!(text, "{time},{cpu},{:.2}%", (100.0 * clock / highest).max(0.01))
                };
            }
        }
        let _ = writeln!(text, "{},*,end", (self.every * self.steps() as u32).as_secs_f64());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{ErrorKind, Roots, Trace};

    #[test]
    fn a_recording_is_a_trace() {
        let host = Host::detect(&Roots::system()).unwrap();
        let first: CpuList = host.allowed.iter().take(1).collect();
        let [length, every] = [65, 20].map(Duration::from_millis);
        let plan = WaveringPlan::new(&host, Some(&first), length, every).unwrap();
        let seen = record(&host, &plan, &AtomicBool::new(false)).unwrap();
        assert_eq!((seen.steps(), plan.length()), (3, Duration::from_millis(60)));
        assert!((1e8..1e10).contains(&seen.highest()), "{seen:?}");
        let trace: Trace = seen.trace(false).parse().unwrap();
        assert_eq!((trace.steps(), trace.length()), (3, Some(plan.length())));
        assert_eq!(trace.cpus(), Some(first));
    }

    #[test]
    fn a_step_of_others_is_as_its_neighbour() {
        let of_others = [None, None, Some(2.0), None, Some(3.0), None];
        assert_eq!(filled(of_others.into()).unwrap(), [2.0, 2.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!((filled(vec![None; 3]), filled(vec![])), (None, Some(vec![])));
    }

    #[test]
    fn what_was_seen_is_written_as_shares_or_clocks() {
        let clocks = vec![(0, vec![2e9, 1e9]), (1, vec![0.5e9, 2e9])];
        let seen = Wavering { every: Duration::from_millis(100), clocks };
        let lines = |as_clocks| seen.trace(as_clocks).lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(false), ["0,0,100.00%", "0,1,25.00%", "0.1,0,50.00%", "0.1,1,100.00%", "0.2,*,end"]);
        assert_eq!(lines(true)[1], "0,1,0.5000GHz");
    }

    #[test]
    fn plans_that_make_no_sense_are_refused() {
        let host = Host::detect(&Roots::system()).unwrap();
        let plan = |length, every| {
            WaveringPlan::new(&host, None, Duration::from_millis(length), Duration::from_millis(every))
        };
        assert!(plan(1000, 100).is_ok());
        for (length, every) in [(1000, 5), (50, 100), (100_000_000, 10)] {
            assert_eq!(plan(length, every).unwrap_err().kind(), ErrorKind::Usage, "{length} {every}");
        }
    }
}
