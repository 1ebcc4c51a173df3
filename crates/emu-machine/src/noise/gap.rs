//! Gaps: moments at which a loop that does nothing but read a counter was not running.
//!
//! What the loop misses is what any program on that CPU misses: interrupts, other tasks, and what a hypervisor takes.
//! The idea is that of *selfish detour* (P. Beckman et al. 2006, *The influence of operating systems on the
//! performance of collective operations at extreme scale*) and of the kernel's osnoise tracer, which needs privilege.

use std::path::Path;
use std::time::Duration;

use emu_bench::stats::Sample;
use emu_bench::ticks::Ticks;
use emu_bench::workload::now_ns;
use emu_core::{Clocks, CpuId, CpuList, Error, Result, tsc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::timers::clock::tsc_unit_ns;
use super::kind::preemptions;
use super::period::Period;

/// Steps of the loop by which its usual time is found, and how many of those are looked at together.
const STEPS: usize = 20_000;

/// A gap is at least this long, in nanoseconds: the shortest interrupts take about a microsecond.
const THRESHOLD_MIN_NS: f64 = 1000.0;

/// A gap is at least so many times the usual step of the loop, so that a slow clock is not taken for noise.
const THRESHOLD_STEPS: f64 = 10.0;

/// Gaps of a CPU that are enough; then looking ends, as all of them are kept in the result.
pub(super) const ROOM: usize = 20_000;

/// A moment at which the loop did not run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// When it began, in nanoseconds from the first look.
    pub at_ns: u64,
    /// How long it was, without the usual step of the loop.
    pub length_ns: u64,
    /// Whether another task had the CPU.
    pub preempted: bool,
}

/// What was seen of one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuGaps {
    /// The CPU.
    pub cpu: CpuId,
    /// The counter that was read: `tsc` or `CLOCK_MONOTONIC`.
    pub counter: String,
    /// How long the loop ran, gaps included and accounts of them excluded.
    pub span_ns: u64,
    /// The usual step of the loop.
    pub step_ns: f64,
    /// What is longer is a gap.
    pub threshold_ns: f64,
    /// Share of the time that all gaps took.
    pub lost: f64,
    /// Share of the time that was lost to other tasks.
    pub preempted: f64,
    /// Share of the time that the hypervisor says it gave to others, by the kernel's account in steps of 10 ms.
    pub stolen: f64,
    /// The longest gap.
    pub longest_ns: u64,
    /// The period in which gaps come, if they do.
    pub period: Option<Period>,
    /// Share of the time that gaps of that period took.
    pub periodic: f64,
    /// The gaps in the order of time.
    pub gaps: Vec<Gap>,
}

impl CpuGaps {
    /// Gaps a second.
    pub fn rate_hz(&self) -> f64 {
        self.gaps.len() as f64 / (self.span_ns.max(1) as f64 / 1e9)
    }

    /// The middle length of a gap, in nanoseconds; `None` without gaps.
    pub fn median_ns(&self) -> Option<f64> {
        let lengths: Vec<_> = self.gaps.iter().map(|gap| gap.length_ns as f64).collect();
        Sample::new(lengths).ok().map(|sample| sample.median())
    }

    /// Share of the time lost neither to other tasks, nor by its account to the hypervisor, nor to anything in a period.
    pub fn unexplained(&self) -> f64 {
        (self.lost - self.preempted - self.stolen - self.periodic).max(0.0)
    }

    /// Whether looking ended before its time, at as many gaps as are kept.
    pub fn is_cut_short(&self) -> bool {
        self.gaps.len() >= ROOM
    }

    fn new(cpu: CpuId, counter: &Counter, seen: Seen, stolen: f64) -> Self {
        let Seen { step_ns, threshold_ns, span_ns, gaps } = seen;
        let span = span_ns.max(1) as f64;
        let share = |is_meant: &dyn Fn(&Gap) -> bool| {
            gaps.iter().filter(|gap| is_meant(gap)).map(|gap| gap.length_ns).sum::<u64>() as f64 / span
        };
        let times: Vec<f64> =
            gaps.iter().filter(|gap| !gap.preempted).map(|gap| gap.at_ns as f64 / 1e9).collect();
        let period = Period::of(&times, span / 1e9);
        let is_periodic = |gap: &Gap| {
            period.as_ref().is_some_and(|period| !gap.preempted && period.has(gap.at_ns as f64 / 1e9))
        };
        Self {
            cpu,
            counter: counter.name.into(),
            span_ns,
            step_ns,
            threshold_ns,
            lost: share(&|_| true),
            preempted: share(&|gap| gap.preempted),
            stolen,
            longest_ns: gaps.iter().map(|gap| gap.length_ns).max().unwrap_or(0),
            periodic: share(&is_periodic),
            period,
            gaps,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Seen {
    step_ns: f64,
    threshold_ns: f64,
    span_ns: u64,
    gaps: Vec<Gap>,
}

struct Counter {
    name: &'static str,
    read: fn() -> u64,
    unit_ns: f64,
}

impl Counter {
    /// The time-stamp counter where the kernel trusts it, as it is read in the fewest cycles; else the clock.
    fn new(clocks: &Clocks) -> Self {
        let is_trusted = clocks.source.as_deref() == Some("tsc");
        match is_trusted.then(tsc_unit_ns).flatten() {
            Some(unit_ns) => Self { name: "tsc", read: || tsc().unwrap_or(0), unit_ns },
            None => Self { name: "CLOCK_MONOTONIC", read: now_ns, unit_ns: 1.0 },
        }
    }
}

/// Looks for gaps on one CPU, to which the calling thread is bound.
pub(super) fn of_cpu(
    cpu: CpuId,
    clocks: &Clocks,
    proc: &Path,
    length: Duration,
    threshold: Option<Duration>,
) -> Result<CpuGaps> {
    let only: CpuList = [cpu].into_iter().collect();
    let counter = Counter::new(clocks);
    let before = Ticks::now(proc, &only)?;
    let threshold_ns = threshold.map(|threshold| threshold.as_nanos() as f64);
    let seen = look(&counter.read, counter.unit_ns, length, threshold_ns, &preemptions);
    let stolen = Ticks::now(proc, &only)?.since(before).stolen_share();
    if seen.span_ns == 0 {
        let what = format!("cannot look for gaps on CPU {cpu}: {} is too coarse for that", counter.name);
        return Err(Error::unavailable(what).hint("emu timers tells the resolution of each clock"));
    }
    Ok(CpuGaps::new(cpu, &counter, seen, stolen))
}

fn look(
    read: &dyn Fn() -> u64,
    unit_ns: f64,
    length: Duration,
    threshold_ns: Option<f64>,
    preemptions: &dyn Fn() -> u64,
) -> Seen {
    let mut steps: Vec<f64> = Vec::with_capacity(STEPS);
    let mut last = read();
    for _ in 0..STEPS {
        let now = read();
        steps.push(now.saturating_sub(last) as f64);
        last = now;
    }
    let step = Sample::new(steps).map_or(0.0, |steps| steps.median());
    let step_ns = step * unit_ns;
    if step <= 0.0 {
        return Seen { step_ns, threshold_ns: 0.0, span_ns: 0, gaps: vec![] };
    }
    let threshold_ns = threshold_ns.unwrap_or((step_ns * THRESHOLD_STEPS).max(THRESHOLD_MIN_NS));
    let threshold = (threshold_ns / unit_ns).ceil() as u64 + step as u64;
    // Written to now, so that the kernel gives the memory now and not in the loop.
    let mut jumps = vec![(u64::MAX, u64::MAX, true); ROOM];
    jumps.clear();
    let mut switches = preemptions();
    let length = (length.as_nanos() as f64 / unit_ns) as u64;
    let begin = read();
    let (mut last, mut unseen) = (begin, 0);
    // A counter that falls back is not what is looked for here: it only must not be taken for a long time.
    let passed = |now: u64, unseen: u64| now.saturating_sub(begin).saturating_sub(unseen);
    while passed(last, unseen) < length && jumps.len() < ROOM {
        let now = read();
        if now.saturating_sub(last) > threshold {
            let since = preemptions();
            jumps.push((passed(last, unseen), now - last - step as u64, since > switches));
            switches = since;
            let again = read();
            unseen += again.saturating_sub(now);
            last = again;
        } else {
            last = now;
        }
    }
    let in_ns = |units: u64| (units as f64 * unit_ns).round() as u64;
    let gap = |(at, length, preempted)| Gap { at_ns: in_ns(at), length_ns: in_ns(length), preempted };
    Seen {
        step_ns,
        threshold_ns,
        span_ns: in_ns(passed(last, unseen)),
        gaps: jumps.into_iter().map(gap).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A counter of steps of 20 units that jumps by `jump` every `every` reads, and says that another task ran at every
    /// second jump.
    fn seen(every: u64, jump: u64, unit_ns: f64, threshold_ns: Option<f64>) -> Seen {
        let (reads, jumps, count) = (Cell::new(0u64), Cell::new(0u64), Cell::new(1000u64));
        let read = || {
            reads.set(reads.get() + 1);
            let is_jump = reads.get().is_multiple_of(every);
            if is_jump {
                jumps.set(jumps.get() + 1);
            }
            count.set(count.get() + if is_jump { jump } else { 20 });
            count.get()
        };
        look(&read, unit_ns, Duration::from_millis(5), threshold_ns, &|| jumps.get() / 2)
    }

    #[test]
    fn jumps_of_the_counter_are_gaps_of_that_length() {
        let seen = seen(1000, 5020, 1.0, None);
        assert!((seen.step_ns - 20.0).abs() < 1e-9 && (seen.threshold_ns - 1000.0).abs() < 1e-9);
        // 999 steps of 20 ns and a jump of 5.02 µs are 25 µs.
        assert!((190..=201).contains(&seen.gaps.len()), "{}", seen.gaps.len());
        assert!(seen.gaps.iter().all(|gap| gap.length_ns == 5000), "{:?}", seen.gaps[0]);
        let preempted = seen.gaps.iter().filter(|gap| gap.preempted).count();
        assert!(preempted.abs_diff(seen.gaps.len() / 2) <= 1);
        assert!(seen.span_ns.abs_diff(5_000_000) < 30_000, "{}", seen.span_ns);
    }

    #[test]
    fn a_counter_in_other_units_gives_the_same_gaps() {
        let (ns, halves) = (seen(1000, 5020, 1.0, None), seen(1000, 10_020, 0.5, None));
        assert!(halves.gaps.iter().all(|gap| gap.length_ns == 5000));
        assert!((halves.step_ns - ns.step_ns / 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_shorter_than_the_threshold_is_no_gap() {
        assert!(seen(1000, 900, 1.0, None).gaps.is_empty());
        assert!(!seen(1000, 900, 1.0, Some(500.0)).gaps.is_empty());
        assert!(seen(1000, 5020, 1.0, Some(10_000.0)).gaps.is_empty());
        // A clock that takes 1 µs to read is slow, not noisy.
        assert!((seen(1_000_000, 20, 50.0, None).threshold_ns - 10_000.0).abs() < 1e-9);
    }

    #[test]
    fn a_look_with_more_gaps_than_are_kept_ends_early_and_says_so() {
        let counter = || Counter { name: "tsc", read: || 0, unit_ns: 1.0 };
        let calm = CpuGaps::new(0, &counter(), seen(1000, 5020, 1.0, None), 0.0);
        // A jump at every fourth read: five milliseconds would have 50 000.
        let busy = CpuGaps::new(0, &counter(), seen(4, 60, 1.0, Some(10.0)), 0.0);
        assert!(!calm.is_cut_short() && busy.is_cut_short());
        assert!(busy.span_ns < 5_000_000, "{}", busy.span_ns);
    }

    #[test]
    fn a_counter_that_stands_still_or_runs_back_ends() {
        assert_eq!(look(&|| 7, 1.0, Duration::from_millis(1), None, &|| 0).span_ns, 0);
        let reads = Cell::new(0u64);
        let back = || {
            reads.set(reads.get() + 1);
            // Falls back for a while, as on a CPU whose counter is behind.
            if (20_100..20_200).contains(&reads.get()) { reads.get() * 50 } else { reads.get() * 100 }
        };
        let seen = look(&back, 1.0, Duration::from_millis(1), None, &|| 0);
        assert!(seen.span_ns.abs_diff(1_000_000) < 1000, "{seen:?}");
    }

    #[test]
    fn this_cpu_can_be_watched() {
        let host = emu_core::Host::detect(&emu_core::Roots::system()).unwrap();
        let cpu = host.allowed.first().unwrap();
        let watch = || of_cpu(cpu, &host.clocks, &host.roots.proc, Duration::from_millis(30), None);
        let gaps = crate::kernel::on_one("a test", &[cpu].into_iter().collect(), watch).unwrap();
        assert!(gaps.span_ns >= 30_000_000 && gaps.step_ns > 0.0, "{gaps:?}");
        assert!((0.0..=1.0).contains(&gaps.lost) && gaps.preempted <= gaps.lost + 1e-12);
        assert!(gaps.gaps.iter().all(|gap| gap.length_ns as f64 >= gaps.threshold_ns * 0.99));
    }
}
