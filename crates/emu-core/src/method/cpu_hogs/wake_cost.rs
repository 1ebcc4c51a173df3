//! What a real-time wake-up costs the tasks it interrupts.
//!
//! A burner's own CPU time shows its way through the scheduler in and out. The kernel's accounts do not show the
//! timer interrupt, refilled caches and, under a hypervisor, the exits for the timer: that part is what a probe loses
//! and the burner did not use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ablation::{Correction, is_off};
use crate::cpu_list::{CpuId, CpuList};
use crate::duty::kept::{Kept, why_unknown};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::sys::fork::{Child, fork_bound};
use crate::sys::shared::SharedCounter;
use crate::sys::time::{self, Nanos};
use crate::sys::timer_prearm::TimerPrearm;
use crate::sys::{affinity, chain, sched};
use crate::zone::{Demand, Zone};

/// The cost of one wake-up of a burner, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct WakeCost {
    /// CPU time of the burner beyond its burn: what it sees itself. Without it, 10 % of 10 ms was 1.2 % too slow in a
    /// quiet guest, and 10 % of 1 ms 12 %.
    pub visible: f64,
    /// What the interrupted tasks lose on top. Without it, these were 0.7 % and 7.4 % too slow.
    pub hidden: f64,
}

/// Period and share of the trial. The less of a period is left to the probe, the less does a wandering clock weigh: of 50 µs,
/// a wander of 1 % is half a microsecond.
const PERIOD: Nanos = 550_000;
const BURN: Nanos = 500_000;
/// Periods with burner that make one half of a pair. They pass evenly through the phases of a tick of 1 or 4 ms: in step
/// with it, the probe would meet a tick in every seventh period, say, or never, which makes a microsecond.
const PERIODS: i64 = 40;
/// The other half, without burner. The ticks in it weigh no more than the clock does.
const FREE: Nanos = 4_000_000;
/// Pairs for each kind of probe; the median over them counts.
const PAIRS: usize = 5;
/// What a normal probe may lose beyond a real-time one, in nanoseconds; more is other tasks at work.
const NORMAL_EXTRA: std::ops::RangeInclusive<f64> = 0.0..=5_000.0;
/// Costs outside this range are a disturbed trial, in nanoseconds.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.0..=100_000.0;
const FILE: &str = "wake-costs.json";

impl WakeCost {
    /// What is assumed where other load does not let it be measured.
    const ASSUMED: Self = Self { visible: 10_000.0, hidden: 4_000.0 };

    pub(super) fn is_plausible(&self) -> bool {
        PLAUSIBLE.contains(&self.visible) && PLAUSIBLE.contains(&self.hidden)
    }
}

/// Trials are made anew while they are disturbed, until they have taken so long in all, in nanoseconds.
const LONGEST: Nanos = 600_000_000;

/// In nanoseconds.
const GATHERING: Nanos = 10_000_000;

/// What of a wake-up's cost remains unknown, in seconds. Measured, whatever the period.
const UNKNOWN: f64 = 2e-6;
/// The same where no more than the first trial tells it: one pair is off by a microsecond, and a normal probe shows another one.
const UNKNOWN_AT_FIRST: f64 = 4e-6;

/// Where tasks run for longer in a period, in nanoseconds, nothing is measured, and no program is kept waiting: a burner sees
/// the visible part while it runs, and a few microseconds of the hidden one weigh some 0.3 % at most.
const SHORT_RUN: f64 = 1_000_000.0;

/// Whether the costs weigh much where tasks run for that share of a period.
fn weighs(period: Duration, share: f64) -> bool {
    time::nanos(period) as f64 * share < SHORT_RUN
}

fn load(host: &Host) -> Kept<CpuId, WakeCost> {
    Kept::load(host, FILE, WakeCost::is_plausible)
}

/// What of the costs is not known in an emulation that begins now, in seconds for each wake-up.
pub(super) fn unknown(host: &Host, demand: &Demand, period: Duration) -> f64 {
    let kept = load(host);
    let is_known = |cpu| kept.values(&cpu).len() > 1;
    let is_first = weighs(period, demand.lowest_share()) && !demand.cpus().iter().all(is_known);
    if is_first { UNKNOWN_AT_FIRST } else { UNKNOWN }
}

/// The costs on each CPU of the zone, in their order. They are measured while the zone's tasks have not begun, where a little
/// may weigh much in `period`. `notes` tell of such costs that are only assumed.
pub(super) fn of(
    host: &Host,
    zone: &Zone,
    period: Duration,
    notes: &mut Vec<String>,
) -> Result<Vec<WakeCost>> {
    let cpus = zone.demand.cpus();
    let mut kept = load(host);
    let weighs = weighs(period, zone.demand.lowest_share());
    let is_wanted = |cpu: &CpuId| weighs && kept.wants(cpu);
    let wanted: CpuList = cpus.iter().filter(|cpu| zone.is_new && is_wanted(cpu)).collect();
    if !wanted.is_empty() {
        let is_first = wanted.iter().any(|cpu| kept.values(&cpu).is_empty());
        let measured = match measure(&wanted, is_first) {
            // What is kept is good enough where it cannot be renewed.
            Err(_) if !is_first => Vec::new(),
            measured => measured?,
        };
        for (cpu, cost) in measured.into_iter().filter_map(|(cpu, cost)| Some((cpu, cost?))) {
            kept.insert(cpu, cost);
        }
        kept.save(host, FILE);
    }
    let figures = |cpu| {
        let visible = kept.median(&cpu, |cost| cost.visible)?;
        Some(WakeCost { visible, hidden: kept.median(&cpu, |cost| cost.hidden)? })
    };
    let unknown: CpuList = cpus.iter().filter(|cpu| figures(*cpu).is_none()).collect();
    if weighs && !unknown.is_empty() {
        notes.push(format!(
            "what a wake-up costs the tasks {} (CPUs {unknown}); {:.0} µs are assumed",
            why_unknown(zone),
            (WakeCost::ASSUMED.visible + WakeCost::ASSUMED.hidden) / 1e3
        ));
    }
    Ok(cpus.iter().map(|cpu| figures(cpu).unwrap_or(WakeCost::ASSUMED)).collect())
}

/// On each CPU at the same time: the first time in some 30 ms, later in 0.3 s, or twice that where other load disturbs it.
fn measure(cpus: &CpuList, is_first: bool) -> Result<Vec<(CpuId, Option<WakeCost>)>> {
    let there = Arc::new(AtomicUsize::new(0));
    let start = |cpu| {
        let (there, all) = (Arc::clone(&there), cpus.len());
        let trials = move || {
            take_cpu(cpu)?;
            gather(&there, all);
            trials(is_first)
        };
        let thread = thread::Builder::new().name("emu-trial".into()).spawn(trials);
        thread
            .map(|thread| (cpu, thread))
            .map_err(|e| Error::io("cannot start a thread to measure wake-ups", e))
    };
    let trials = cpus.iter().map(start).collect::<Result<Vec<_>>>()?;
    trials
        .into_iter()
        .map(|(cpu, trial)| {
            let cost = trial.join().unwrap_or_else(|_| {
                Err(Error::new(crate::error::ErrorKind::Failed, "the trial has panicked"))
            })?;
            Ok((cpu, cost))
        })
        .collect()
}

/// Waits until all threads are on their CPUs: one that starts on the CPU of a trial would begin its own after that. Where one
/// cannot, the others wait in vain for a moment.
fn gather(there: &AtomicUsize, all: usize) {
    let until = time::now() + GATHERING;
    there.fetch_add(1, Ordering::Relaxed);
    while there.load(Ordering::Relaxed) < all && time::now() < until {
        time::sleep(Duration::from_micros(100));
    }
}

fn trials(is_first: bool) -> Result<Option<WakeCost>> {
    become_real_time(BURNER)?;
    let until = time::now() + LONGEST;
    if is_first {
        // A program that waits for something to be known at all waits for one pair only.
        return Ok(cost_by(&trial_with(Some(PROBE), 1, until)?, None));
    }
    while time::now() < until {
        let cost = trial(until)?;
        if cost.is_some() {
            return Ok(cost);
        }
    }
    Ok(None)
}

/// One trial on the CPU of the calling thread; `None` when it was disturbed.
fn trial(until: Nanos) -> Result<Option<WakeCost>> {
    let seen = trial_with(Some(PROBE), PAIRS, until)?;
    // The fair scheduling class takes a little longer to hand the CPU back than the real-time one. A normal
    // probe shows it, but is at the mercy of other tasks, so that it is trusted for the difference only.
    let normal = trial_with(None, PAIRS, until)?;
    Ok(cost_by(&seen, Some(&normal)))
}

/// The median cost by pairs with a real-time probe, and with a normal one where there are such; `None` where too few tell it.
fn cost_by(seen: &[WakeCost], normal: Option<&[WakeCost]>) -> Option<WakeCost> {
    let hidden_of = |costs: &[WakeCost]| median(costs.iter().map(|cost| cost.hidden));
    let visible = median(seen.iter().chain(normal.unwrap_or_default()).map(|cost| cost.visible))?;
    let hidden = hidden_of(seen)?;
    let more = normal.map_or(Some(0.0), |normal| Some(hidden_of(normal)? - hidden))?;
    // Without it, 10 % of 1 ms was 1.0 % slower in a quiet guest.
    let is_trusted = NORMAL_EXTRA.contains(&more) && !is_off(Correction::NormalProbe);
    let hidden = if is_trusted { hidden + more } else { hidden };
    // On a quiet CPU the hidden part can come out slightly below zero, within its error.
    let cost = WakeCost { visible, hidden: hidden.clamp(*PLAUSIBLE.start(), *PLAUSIBLE.end()) };
    Some(cost).filter(WakeCost::is_plausible)
}

/// Trials against a probe of the given real-time priority, or a normal one; none where that has none of the CPU. The
/// probe is a process, as what is emulated: the switch of address spaces is part of the cost.
fn trial_with(priority: Option<i32>, pairs: usize, until: Nanos) -> Result<Vec<WakeCost>> {
    let work = SharedCounter::new().map_err(|e| Error::io("cannot share memory with a probe", e))?;
    let _probe = Probe::start(priority, &work)?;
    let mut costs = Vec::with_capacity(pairs);
    time::sleep_until(time::now() + PERIOD);
    let mut before = free_rate(&work);
    if before <= 0.0 {
        // Somebody else's real-time task or the hypervisor kept it from the CPU: no pair would tell anything.
        return Ok(costs);
    }
    while costs.len() < pairs && time::now() < until {
        let burnt = burn(&work)?;
        let after = free_rate(&work);
        // The clock wanders: the free rate is taken on both sides of the burning.
        costs.push(cost_of(&burnt, f64::midpoint(before, after)));
        before = after;
    }
    Ok(costs)
}

struct Probe(Child);

impl Probe {
    fn start(priority: Option<i32>, work: &SharedCounter) -> Result<Self> {
        let count = || {
            match priority {
                Some(priority) if sched::set_fifo(priority).is_err() => return 1,
                Some(_) => {}
                // Who may not have that competes as it is: what other tasks then take is no cost of a wake-up.
                None => drop(rustix::process::nice(-20)),
            }
            loop {
                chain::long(1);
                work.fetch_add(1, Ordering::Relaxed);
            }
        };
        #[expect(unsafe_code, reason = "a fork has a contract")]
        // SAFETY: `count` only computes and makes system calls.
        let child = unsafe { fork_bound([], count) };
        child.map(Self).map_err(|e| Error::io("cannot start a probe", e))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Priorities within the trial: the burner above the probe, both above everything normal.
const BURNER: i32 = 2;
const PROBE: i32 = 1;

fn take_cpu(cpu: CpuId) -> Result<()> {
    affinity::bind(cpu).map_err(|e| Error::io(format!("cannot run on CPU {cpu}"), e))
}

fn become_real_time(priority: i32) -> Result<()> {
    sched::set_fifo(priority).map_err(|e| Error::io(format!("cannot get real-time priority {priority}"), e))
}

/// Work of the probe per nanosecond while it has the CPU to itself, but for one wake-up.
fn free_rate(work: &AtomicU64) -> f64 {
    let (begin, first) = (time::now(), work.load(Ordering::Relaxed));
    time::sleep_until(begin + FREE);
    (work.load(Ordering::Relaxed) - first) as f64 / (time::now() - begin) as f64
}

struct Burnt {
    wall: f64,
    cpu: f64,
    burned: f64,
    work: f64,
    periods: f64,
}

fn burn(work: &AtomicU64) -> Result<Burnt> {
    // Ends with this: no wake-up that was told is left to strike the free probe.
    let mut announcer = TimerPrearm::new()?;
    let (begin, cpu, first) = (time::now(), time::thread_cpu(), work.load(Ordering::Relaxed));
    let mut burned = 0;
    for number in 1..=PERIODS {
        let woken = time::now();
        // This and the look at the CPU time: as burners do.
        announcer.tell(begin + (number + 1) * PERIOD);
        let mut now = woken;
        while now < woken + BURN {
            time::pass_moment();
            now = time::now();
        }
        burned += now - woken;
        std::hint::black_box(time::thread_cpu());
        time::sleep_until(begin + number * PERIOD);
    }
    Ok(Burnt {
        wall: (time::now() - begin) as f64,
        cpu: (time::thread_cpu() - cpu) as f64,
        burned: burned as f64,
        work: (work.load(Ordering::Relaxed) - first) as f64,
        periods: PERIODS as f64,
    })
}

fn cost_of(burnt: &Burnt, free_rate: f64) -> WakeCost {
    let used = burnt.work / free_rate;
    WakeCost {
        visible: (burnt.cpu - burnt.burned) / burnt.periods,
        hidden: (burnt.wall - burnt.cpu - used) / burnt.periods,
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing;
    use crate::speed::Target;

    #[test]
    fn cost_is_what_neither_burner_nor_probe_had() {
        // 20 periods of 1 ms: 850 µs burned, 15 µs of own overhead, 10 µs lost, 125 µs left for the probe.
        let burnt = Burnt {
            wall: 20e6,
            cpu: 20.0 * 865e3,
            burned: 20.0 * 850e3,
            work: 20.0 * 125e3 * 0.5,
            periods: 20.0,
        };
        let cost = cost_of(&burnt, 0.5);
        assert!((cost.visible - 15_000.0).abs() < 1e-6);
        assert!((cost.hidden - 10_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_normal_probe_adds_a_little_or_nothing() {
        let all = |hidden: [f64; 3]| hidden.map(|hidden| WakeCost { visible: 9_000.0, hidden });
        let seen = all([12_000.0, 8_000.0, 10_000.0]);
        let hidden = |normal: Option<&[WakeCost]>| cost_by(&seen, normal).map(|cost| cost.hidden);
        assert_eq!(hidden(None), Some(10_000.0));
        for (normal, expected) in [(11_000.0, 11_000.0), (9_000.0, 10_000.0), (16_000.0, 10_000.0)] {
            assert_eq!(hidden(Some(&all([normal; 3]))), Some(expected), "{normal}");
        }
        assert_eq!(hidden(Some(&[])), None, "other tasks had the CPU");
        assert_eq!(cost_by(&[], None), None);
        assert_eq!(cost_by(&all([-300.0; 3]), None).map(|cost| cost.hidden), Some(0.0));
        assert_eq!(cost_by(&[WakeCost { visible: -1.0, hidden: 0.0 }], None), None);
    }

    #[test]
    fn more_is_unknown_until_a_second_batch_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = testing::host();
        host.roots.state = dir.path().to_owned();
        let targets = (0..2).map(|cpu| (cpu, Target { share: 0.05, clock: None })).collect();
        let demand = Demand::new(targets);
        let is_first = |host: &Host, ms| unknown(host, &demand, Duration::from_millis(ms)) > UNKNOWN;
        for (batch, is_more) in [(1, true), (2, false)] {
            assert!(is_first(&host, 10) && !is_first(&host, 20), "nothing is measured for long runs");
            for cpu in 0..2 {
                let mut kept = load(&host);
                kept.insert(cpu, WakeCost::ASSUMED);
                kept.save(&host, FILE);
            }
            assert_eq!(is_first(&host, 10), is_more, "{batch}");
        }
    }
}
