//! What one clock is worth: its cost, its step, and whether it ever runs back.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use emu_bench::stats::Sample;
use emu_bench::workload::{confine, now_ns};
use emu_core::{CpuId, CpuList, Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock::{Clock, Counts};
use crate::kernel::{on_each_cpu, on_one};

const WHAT: &str = "the readers of clocks";

/// Reads that are timed together, so that the reads of the timing clock vanish.
const BATCH: u32 = 500;

const BATCHES: usize = 41;

const STEPS: usize = 200;

/// Reads between two looks at whether time is up.
const CHECK: u64 = 64;

/// What one clock is worth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quality {
    /// Its name.
    pub clock: String,
    /// What it counts.
    pub counts: Counts,
    /// The step that the system declares, in nanoseconds.
    pub declared_ns: Option<f64>,
    /// Time of one read, in nanoseconds: the median of batches.
    pub cost_ns: f64,
    /// The smallest step that was seen, in nanoseconds; not below the cost of a read. `None` where it did not move.
    pub step_ns: Option<f64>,
    /// By how much the difference of two reads may be wrong as they are rounded, in nanoseconds.
    pub error_ns: f64,
    /// Steps back seen by readers that stay on one CPU, for each CPU.
    pub within: Vec<Backwards>,
    /// Steps back from one CPU to the next; `None` on a single CPU.
    pub across: Option<Backwards>,
}

/// How often a clock ran back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Backwards {
    /// The CPU; of several, the one on which it was furthest behind.
    pub cpu: CpuId,
    /// Pairs of reads that were compared.
    pub reads: u64,
    /// Of them, those whose second read was the lower.
    pub count: u64,
    /// The longest step back, in nanoseconds.
    pub worst_ns: i64,
}

impl Backwards {
    fn on(cpu: CpuId) -> Self {
        Self { cpu, reads: 0, count: 0, worst_ns: 0 }
    }

    fn compare(&mut self, before: i64, now: i64) {
        self.reads += 1;
        if now < before {
            self.count += 1;
            self.worst_ns = self.worst_ns.max(before - now);
        }
    }
}

impl Quality {
    /// Judges a clock on these CPUs, spending about four times `length`.
    pub fn of(clock: &dyn Clock, cpus: &CpuList, length: Duration) -> Result<Self> {
        let first = cpus.first().ok_or_else(|| Error::usage("there is no CPU to read clocks on"))?;
        let (cost_ns, step_ns) = on_one(WHAT, &[first].into_iter().collect(), || {
            Ok((cost(clock, first), step(clock, first, length * 2)))
        })?;
        Ok(Self {
            clock: clock.name().into(),
            counts: clock.counts(),
            declared_ns: clock.declared_ns(),
            cost_ns,
            step_ns,
            error_ns: step_ns.or(clock.declared_ns()).unwrap_or(0.0) * f64::from(clock.summands()),
            within: within(clock, cpus, length)?,
            across: if cpus.len() < 2 { None } else { Some(across(clock, cpus, length)?) },
        })
    }
}

fn cost(clock: &dyn Clock, cpu: CpuId) -> f64 {
    let batch = |_| {
        let begin = now_ns();
        for _ in 0..BATCH {
            std::hint::black_box(clock.read(cpu));
        }
        (now_ns() - begin) as f64 / f64::from(BATCH)
    };
    Sample::new((0..BATCHES).map(batch).collect::<Vec<_>>()).map_or(0.0, |sample| sample.median())
}

fn step(clock: &dyn Clock, cpu: CpuId, length: Duration) -> Option<f64> {
    let (begin, mut steps, mut smallest) = (Instant::now(), 0, None);
    let mut last = clock.read(cpu);
    while steps < STEPS && begin.elapsed() < length {
        let now = clock.read(cpu);
        if now > last {
            steps += 1;
            let step = now - last;
            smallest = Some(smallest.map_or(step, |other: i64| other.min(step)));
        }
        last = now;
    }
    smallest.map(|step| step as f64)
}

fn within(clock: &dyn Clock, cpus: &CpuList, length: Duration) -> Result<Vec<Backwards>> {
    on_each_cpu(WHAT, cpus, |cpu| {
        let mut seen = Backwards::on(cpu);
        let (begin, mut last) = (Instant::now(), clock.read(cpu));
        // However late this reader comes to run, it has read.
        loop {
            let now = clock.read(cpu);
            seen.compare(last, now);
            last = now;
            if seen.reads.is_multiple_of(CHECK) && begin.elapsed() >= length {
                return Ok(seen);
            }
        }
    })
}

/// Reads on one CPU after the other. A clock of the whole machine or process is read by a thread on each CPU in turn, as
/// the kernel checks its time-stamp counters (`arch/x86/kernel/tsc_sync.c`); one of a thread by a thread that moves.
fn across(clock: &dyn Clock, cpus: &CpuList, length: Duration) -> Result<Backwards> {
    if clock.counts() == Counts::Thread {
        return on_one(WHAT, cpus, || moving(clock, cpus, length));
    }
    let ring = Ring::new(clock, cpus, length);
    let seen = on_each_cpu(WHAT, cpus, |cpu| Ok(ring.read(cpu)))?;
    let worst = seen.iter().max_by_key(|seen| seen.worst_ns).map_or(0, |seen| seen.cpu);
    Ok(seen.iter().fold(Backwards::on(worst), |sum, seen| Backwards {
        reads: sum.reads + seen.reads,
        count: sum.count + seen.count,
        worst_ns: sum.worst_ns.max(seen.worst_ns),
        ..sum
    }))
}

struct Ring<'a> {
    clock: &'a dyn Clock,
    /// That of each reader, in the order of their turns.
    cpus: &'a CpuList,
    length: Duration,
    begin: Instant,
    turn: AtomicUsize,
    last: AtomicI64,
}

impl<'a> Ring<'a> {
    fn new(clock: &'a dyn Clock, cpus: &'a CpuList, length: Duration) -> Self {
        let (turn, last) = (AtomicUsize::new(0), AtomicI64::new(i64::MIN));
        Self { clock, cpus, length, begin: Instant::now(), turn, last }
    }

    /// Reads at each of its turns until time is up. A read is compared with the one before, of another CPU.
    fn read(&self, cpu: CpuId) -> Backwards {
        let (readers, place) = (self.cpus.len(), self.cpus.iter().take_while(|other| *other != cpu).count());
        let mut seen = Backwards::on(cpu);
        loop {
            let mut waited = 0u64;
            // Acquire: what is read now is later than the read of the one before.
            while self.turn.load(Ordering::Acquire) % readers != place {
                waited += 1;
                // The one before has gone when time is up, and its turn does not end.
                if waited.is_multiple_of(4096) && self.begin.elapsed() > self.length {
                    return seen;
                }
                spin_loop();
            }
            let now = self.clock.read(cpu);
            let before = self.last.swap(now, Ordering::Relaxed);
            if before != i64::MIN {
                seen.compare(before, now);
            }
            let is_over = seen.reads.is_multiple_of(CHECK) && self.begin.elapsed() > self.length;
            self.turn.fetch_add(1, Ordering::Release);
            if is_over {
                return seen;
            }
        }
    }
}

fn moving(clock: &dyn Clock, cpus: &CpuList, length: Duration) -> Result<Backwards> {
    let mut seen = Backwards::on(cpus.first().unwrap_or(0));
    let begin = Instant::now();
    let mut last = i64::MIN;
    while begin.elapsed() < length {
        for cpu in cpus.iter() {
            confine(&[cpu].into_iter().collect())?;
            let now = clock.read(cpu);
            if last != i64::MIN {
                let worst_ns = seen.worst_ns;
                seen.compare(last, now);
                if seen.worst_ns > worst_ns {
                    seen.cpu = cpu;
                }
            }
            // Just before it moves again.
            last = clock.read(cpu);
        }
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::super::clock::SystemClock;
    use super::super::clock::testing::{RIGHT, Synthetic};
    use super::*;
    use emu_core::{Host, Roots};

    const LENGTH: Duration = Duration::from_millis(20);

    fn runs_back(quality: &Quality) -> bool {
        quality.within.iter().chain(&quality.across).any(|seen| seen.count > 0)
    }

    fn cpus() -> CpuList {
        Host::detect(&Roots::system()).unwrap().allowed
    }

    #[test]
    fn no_clock_of_this_machine_is_accused() {
        for clock in SystemClock::all() {
            let quality = Quality::of(&clock, &cpus(), LENGTH).unwrap();
            assert!(!runs_back(&quality), "{quality:?}");
            assert!(quality.cost_ns > 0.0 && quality.within.iter().all(|seen| seen.reads > 0), "{quality:?}");
        }
    }

    #[test]
    fn only_a_clock_that_falls_back_is_accused() {
        assert!(!runs_back(&Quality::of(&RIGHT, &cpus(), LENGTH).unwrap()));
        let falling = Synthetic { falls_every_ns: 2_000_000, ..RIGHT };
        let quality = Quality::of(&falling, &cpus(), LENGTH).unwrap();
        for seen in &quality.within {
            assert!(seen.count >= 1 && seen.worst_ns <= 1000, "{quality:?}");
        }
    }

    #[test]
    fn a_skew_is_found_with_its_size_and_only_between_its_cpus() {
        let cpus = cpus();
        if cpus.len() < 2 {
            eprintln!("left out of a_skew_between_cpus: there is one CPU");
            return;
        }
        let skewed = cpus.iter().next_back().unwrap();
        for counts in [Counts::Wall, Counts::Thread] {
            let clock = Synthetic { counts, skewed, skew_ns: 50_000_000, ..RIGHT };
            let quality = Quality::of(&clock, &cpus, LENGTH).unwrap();
            assert!(quality.within.iter().all(|seen| seen.count == 0), "{quality:?}");
            let across = quality.across.unwrap();
            assert!(across.count > 0 && across.count < across.reads, "{across:?}");
            assert_eq!(across.cpu, skewed);
            // The time that passes from one read to the next hides a part of the skew.
            assert!((1_000_000..=50_000_000).contains(&across.worst_ns), "{across:?}");
        }
    }

    #[test]
    fn a_coarse_clock_shows_its_step() {
        let ticks = Synthetic { step_ns: 1_000_000, ..RIGHT };
        let quality = Quality::of(&ticks, &cpus(), LENGTH).unwrap();
        assert!((quality.step_ns.unwrap() - 1e6).abs() < 1.0 && (quality.error_ns - 1e6).abs() < 1.0);
        let still = Synthetic { step_ns: i64::MAX, ..RIGHT };
        let quality = Quality::of(&still, &cpus(), LENGTH).unwrap();
        assert_eq!(quality.step_ns, None);
    }
}
