//! What the harness itself costs, measured before it measures.

use std::thread;
use std::time::{Duration, Instant};

use emu_core::{CpuId, clock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::Sample;
use crate::workload::now_ns;

/// Costs of the harness on this machine, in this run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnCosts {
    /// A look at the clock, in nanoseconds.
    pub clock_read_ns: f64,
    /// By how much a sleep of 1 ms lasts longer; the median, in nanoseconds.
    pub wake_up_ns: f64,
    /// How long the CPU was kept busy until its clock was steady, in nanoseconds.
    pub warm_up_ns: u64,
    /// Whether it became steady: five readings within 1 %.
    pub steady: bool,
}

impl OwnCosts {
    /// Takes 0.2 to 2 s, and leaves the CPU warm.
    pub(super) fn measure(cpu: CpuId) -> Self {
        let (warm_up_ns, steady) = warm_up(cpu);
        Self { clock_read_ns: clock_read_ns(), wake_up_ns: wake_up_ns(), warm_up_ns, steady }
    }
}

fn clock_read_ns() -> f64 {
    const READS: u32 = 10_000;
    let begin = now_ns();
    for _ in 0..READS {
        std::hint::black_box(now_ns());
    }
    (now_ns() - begin) as f64 / f64::from(READS)
}

fn wake_up_ns() -> f64 {
    const SLEEP: Duration = Duration::from_millis(1);
    let late = |_| {
        let begin = Instant::now();
        thread::sleep(SLEEP);
        begin.elapsed().saturating_sub(SLEEP).as_nanos() as f64
    };
    Sample::new((0..20).map(late).collect::<Vec<_>>()).map_or(0.0, |sample| sample.median())
}

fn warm_up(cpu: CpuId) -> (u64, bool) {
    const LONGEST: Duration = Duration::from_secs(2);
    const ALIKE: usize = 5;
    const SPREAD: f64 = 0.01;
    let begin = Instant::now();
    let mut clocks: Vec<f64> = Vec::new();
    let mut steady = false;
    while !steady && begin.elapsed() < LONGEST {
        // A reading that was disturbed says nothing.
        clocks.extend(clock::measure(cpu, clock::BUDGET).ok().map(|reading| reading.clock.as_f64()));
        steady = clocks.last_chunk::<ALIKE>().is_some_and(|last| {
            let (low, high) = last.iter().fold((f64::MAX, 0.0_f64), |(l, h), c| (l.min(*c), h.max(*c)));
            high < low * (1.0 + SPREAD)
        });
    }
    (begin.elapsed().as_nanos() as u64, steady)
}
