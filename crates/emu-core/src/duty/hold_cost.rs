//! What a hold costs the tasks beyond the time for which they are held.
//!
//! A task that is let go has to be woken, on a CPU that may have to be woken itself, and to find its way out of
//! the kernel: some 10 µs, under a hypervisor 50 µs. Tasks that were asleep are woken, too, and take the CPU
//! from those that work until they sleep again: some µs each. Both are measured by a probe, a process that does
//! nothing but look at the clock, which is held and let go a few times as the zone will be: by itself, and with
//! sleeping children.

use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;

use rustix::process::{Signal, nice, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::holder::{Hold, Notes, settle_controller};
use super::own_time::OwnTime;
use super::waker::{LEAD, Waker};
use crate::kept::Kept;
use crate::sys::fork;
use crate::sys::time::{self, Nanos};
use crate::zone::Pid;
use crate::{CpuList, Error, ErrorKind, Host, Result};

/// Name of the file in the state folder.
const FILE: &str = "hold-costs.json";

/// The cost of one hold, in nanoseconds, beyond the [`OwnTime`] of emu on a zone of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct HoldCost {
    /// What every task loses.
    pub(crate) base: f64,
    /// What those that work lose more for each task that sleeps.
    pub(crate) sleeper: f64,
}

impl HoldCost {
    /// What is assumed where other load does not let it be measured.
    const ASSUMED: Self = Self { base: 30_000.0, sleeper: 3_000.0 };

    /// The cost of holding by `way` on `cpus`: from the state folder where it was measured in this boot, else
    /// measured now, by the holds that `make` returns for the probes. That takes 0.3 s. Where other load does
    /// not let it be measured, something is assumed, and `notes` say so.
    ///
    /// # Errors
    /// The probe cannot be started or held.
    pub(crate) fn of<H: Hold>(
        host: &Host,
        cpus: &CpuList,
        way: &str,
        notes: &mut Vec<String>,
        make: impl Fn(Pid) -> Result<H>,
    ) -> Result<Self> {
        let key = format!("{way} on {cpus} of {}", host.allowed);
        let mut kept: Kept<String, Self> = Kept::load(host, FILE, Self::is_plausible);
        if let Some(cost) = kept.values.get(&key) {
            return Ok(*cost);
        }
        let measure = |sleepers| {
            let mut probe = Probe::start(sleepers)?;
            let hold = make(probe.child.pid())?;
            probe.measure(host, cpus, hold)
        };
        let (Some(base), Some(more)) = (measure(0)?, measure(SLEEPERS)?) else {
            notes.push(format!(
                "what a hold costs the tasks could not be measured on these busy CPUs; {:.0} µs are assumed",
                Self::ASSUMED.base / 1e3
            ));
            return Ok(Self::ASSUMED);
        };
        let sleeper = ((more - base) as f64 / SLEEPERS as f64).clamp(*SLEEPER.start(), *SLEEPER.end());
        let cost = Self { base: base as f64, sleeper };
        kept.values.insert(key, cost);
        kept.save(host, FILE);
        Ok(cost)
    }

    fn is_plausible(&self) -> bool {
        let base = *PLAUSIBLE.start() as f64..=*PLAUSIBLE.end() as f64;
        base.contains(&self.base) && SLEEPER.contains(&self.sleeper)
    }
}

/// How often a probe is held.
const HOLDS: usize = 20;
/// So many holds must be undisturbed.
const ENOUGH: usize = 5;
/// For how long each time.
const HOLD: Nanos = 3_000_000;
/// How long it runs in between.
const FREE: Nanos = 1_500_000;
/// A stretch without the CPU that may have been a hold.
const GAP: Nanos = HOLD / 2;
/// Losses outside this range are a disturbed measurement: another task had the CPU.
const PLAUSIBLE: std::ops::RangeInclusive<Nanos> = 0..=500_000;
/// Sleeping children of the second probe.
const SLEEPERS: usize = 16;
/// What one of them can cost.
const SLEEPER: std::ops::RangeInclusive<f64> = 0.0..=30_000.0;
/// The probe ends by itself after this time, whatever becomes of its parent.
const LIFETIME: Nanos = 5_000_000_000;

/// One hold of a probe.
#[derive(Debug, Clone, Copy)]
struct Sample {
    from: Nanos,
    free: Nanos,
    /// What emu itself took from the probe, which the holder measures as it goes.
    own: Nanos,
}

/// A process that looks at the clock and tells, through a pipe, when it could not.
struct Probe {
    child: fork::Child,
    gaps: PipeReader,
}

impl Probe {
    /// Starts one and waits until it has its sleeping children.
    fn start(sleepers: usize) -> Result<Self> {
        let (mut gaps, tell) = std::io::pipe().map_err(|e| Error::io("cannot make a pipe", e))?;
        let child = fork::fork([tell.as_fd()], || probe(&tell, sleepers))
            .map_err(|e| Error::io("cannot start a process to measure holds with", e))?;
        drop(tell);
        let probe = Self { child, gaps: gaps.try_clone().map_err(|e| Error::io("cannot copy a pipe", e))? };
        gaps.read_exact(&mut [0; 16]).map_err(|e| Error::io("cannot read from the probe", e))?;
        Ok(probe)
    }

    /// Holds it again and again; returns what a hold costs it, if it was not disturbed too often.
    fn measure<H: Hold>(&mut self, host: &Host, cpus: &CpuList, mut hold: H) -> Result<Option<Nanos>> {
        let (host, cpus) = (host.clone(), cpus.clone());
        let measured = std::thread::Builder::new().name("emu-measure".into()).spawn(move || {
            time::no_timer_slack();
            // The notes are given when the emulation begins.
            let is_away = settle_controller(&host, &cpus, &Notes::default());
            let is_in_the_way = !is_away && cpus.len() == 1;
            let waker = Waker::beside_controller(is_away, &cpus, &Notes::default())?;
            let mut holds = Vec::with_capacity(HOLDS);
            let mut own_time = OwnTime::start();
            for _ in 0..HOLDS {
                std::thread::sleep(time::span(FREE));
                own_time.before_hold();
                let from = hold.hold(time::now() + HOLD)?.from;
                own_time.held(from);
                if let Some(waker) = &waker {
                    std::thread::sleep(time::span(from + HOLD - LEAD - time::now()));
                    waker.wake();
                }
                std::thread::sleep(time::span(from + HOLD - time::now()));
                own_time.before_let_go();
                waker.as_ref().inspect(|waker| waker.rest());
                let free = hold.let_go()?;
                let own = own_time.free(free);
                holds.push(Sample { from, free, own: if is_in_the_way { own } else { 0 } });
            }
            std::thread::sleep(time::span(FREE));
            Ok(holds)
        });
        let measured = measured.map_err(|e| Error::io("cannot start a thread to measure holds", e))?;
        let holds: Vec<Sample> = measured
            .join()
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Failed, "the measurement has panicked")))?;
        self.child.end();
        let mut told = Vec::new();
        self.gaps.read_to_end(&mut told).map_err(|e| Error::io("cannot read from the probe", e))?;
        Ok(median_loss(&holds, &gaps_in(&told)))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.child.end();
    }
}

/// The probe's life: makes its children, says so, and looks at the clock. Makes system calls only.
fn probe(tell: &PipeWriter, sleepers: usize) -> i32 {
    // Ahead of other tasks where that is allowed, so that what is measured is the hold and not their load; but not in
    // real time, because the zone's tasks share their CPUs with those that they wake up beside.
    let _ = nice(-20);
    for _ in 0..sleepers {
        // A child that cannot be made is missing from a load that is a guess anyway.
        let _ = fork::fork([], sleep);
    }
    tell_gap(tell, 0, 0);
    let end = time::now() + LIFETIME;
    let mut last = time::now();
    while last < end {
        let now = time::now();
        if now - last >= GAP {
            tell_gap(tell, last, now);
        }
        last = now;
    }
    0
}

/// The life of a sleeping child, which ends with its parent.
fn sleep() -> i32 {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    std::thread::sleep(time::span(LIFETIME));
    0
}

fn tell_gap(tell: &PipeWriter, before: Nanos, after: Nanos) {
    let mut gap = [0; 16];
    let (first, second) = gap.split_at_mut(8);
    first.copy_from_slice(&before.to_ne_bytes());
    second.copy_from_slice(&after.to_ne_bytes());
    let _ = rustix::io::write(tell, &gap);
}

/// The gaps as the probe has told them: when it last had the CPU, and when again.
fn gaps_in(told: &[u8]) -> Vec<(Nanos, Nanos)> {
    let number = |bytes: &[u8]| bytes.try_into().map(Nanos::from_ne_bytes).ok();
    told.chunks_exact(16)
        .filter_map(|gap| {
            let (before, after) = gap.split_at(8);
            Some((number(before)?, number(after)?))
        })
        .collect()
}

/// By how much the gap of a hold is longer than the hold and emu's own time: the median over the holds
/// that nothing else has disturbed, if there are enough of them.
fn median_loss(holds: &[Sample], gaps: &[(Nanos, Nanos)]) -> Option<Nanos> {
    let loss_of = |&Sample { from, free, own }: &Sample| {
        let middle = from + (free - from) / 2;
        let (before, after) = gaps.iter().find(|(before, after)| (*before..*after).contains(&middle))?;
        let loss = Some((after - before) - (free - from)).filter(|loss| PLAUSIBLE.contains(loss))?;
        Some((loss - own).max(0))
    };
    let mut losses: Vec<_> = holds.iter().filter_map(loss_of).collect();
    losses.sort_unstable();
    losses.get(losses.len() / 2).copied().filter(|_| losses.len() >= ENOUGH)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_loss_is_what_the_gap_has_beyond_the_hold() {
        let hold = |k: Nanos| Sample { from: k * 10_000_000, free: k * 10_000_000 + 3_000_000, own: 0 };
        let holds: Vec<_> = (0..8).map(hold).collect();
        let mut gaps: Vec<_> = holds.iter().map(|hold| (hold.from - 10_000, hold.free + 40_000)).collect();
        assert_eq!(median_loss(&holds, &gaps), Some(50_000));
        let with_own: Vec<_> = holds.iter().map(|hold| Sample { own: 20_000, ..*hold }).collect();
        assert_eq!(median_loss(&with_own, &gaps), Some(30_000));
        // Others had the CPU: not a loss of the hold's.
        gaps[..3].iter_mut().for_each(|gap| gap.1 += 2_000_000);
        assert_eq!(median_loss(&holds, &gaps), Some(50_000));
        gaps[3].1 += 2_000_000;
        assert_eq!(median_loss(&holds, &gaps), None, "too few are left");
        assert_eq!(median_loss(&holds, &[]), None);
        assert_eq!(median_loss(&[], &[]), None);
    }

    #[test]
    fn a_probe_tells_when_it_was_stopped() {
        use rustix::process::{Pid as ProcessId, Signal, kill_process};
        let mut probe = Probe::start(0).unwrap();
        let pid = ProcessId::from_raw(probe.child.pid()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = time::now();
        std::thread::sleep(Duration::from_millis(50));
        let continued = time::now();
        kill_process(pid, Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        probe.child.end();
        let mut told = Vec::new();
        probe.gaps.read_to_end(&mut told).unwrap();
        let middle = stopped + (continued - stopped) / 2;
        assert!(
            gaps_in(&told).iter().any(|(before, after)| (*before..*after).contains(&middle)),
            "{:?}",
            gaps_in(&told)
        );
    }
}
