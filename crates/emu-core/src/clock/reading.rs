//! The core clock of a CPU, with an interval.

use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{PAIR_CYCLES, timed_pair};
use crate::cpu_list::{CpuId, CpuList};
use crate::error::{Error, Result};
use crate::speed::Hertz;
use crate::sys::{affinity, sched, time};

/// Pairs that a reading needs at least; fewer say that the CPU was not ours.
const KEPT_MIN: usize = 20;

/// Time that is enough for a reading.
pub const BUDGET: Duration = Duration::from_millis(20);

/// A pair counts as undisturbed when neither chain took longer than this factor of what the quicker tenth of its kind took. An
/// interrupt or a preemption costs a microsecond or more, over 10 % of a long chain; steps of the clock itself are smaller.
const DISTURBED: f64 = 1.03;

/// The core clock of one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ClockReading {
    /// The CPU measured.
    pub cpu: CpuId,
    /// The median over the undisturbed pairs.
    pub clock: Hertz,
    /// Lower end of a 95 % interval of the median (order statistics, normal approximation).
    pub low: Hertz,
    /// Its upper end.
    pub high: Hertz,
    /// Pairs taken.
    pub taken: usize,
    /// Pairs kept; the others were hit by an interrupt, a preemption or steal, and are left out.
    pub kept: usize,
}

/// Measures the core clock of `cpu` for `budget` ([`BUDGET`] is enough), on a thread of its own. Where the caller may, it runs
/// at the lowest real-time priority, so that other tasks do not disturb it; it always leaves the CPU after `budget`.
///
/// # Errors
/// The CPU cannot be used by this process, or it was so busy that fewer than 20 pairs were undisturbed.
pub fn measure(cpu: CpuId, budget: Duration) -> Result<ClockReading> {
    measure_all(&[cpu].into_iter().collect(), budget)?.pop().ok_or_else(panicked)
}

/// Measures every CPU of the list, all at once, as work on all of them keeps all of them busy.
///
/// # Errors
/// As [`measure`].
pub fn measure_all(cpus: &CpuList, budget: Duration) -> Result<Vec<ClockReading>> {
    thread::scope(|scope| {
        let start = |cpu| {
            let meter = thread::Builder::new().name("emu-meter".into());
            let meter = meter.spawn_scoped(scope, move || {
                affinity::bind(cpu)
                    .map_err(|e| Error::io(format!("cannot run the meter on CPU {cpu}"), e))?;
                // Without the privilege the meter still works; more pairs are rejected.
                let _ = sched::set_fifo(1);
                reading(cpu, &take(budget))
            });
            meter.map_err(|e| Error::io("cannot start the meter", e))
        };
        let meters = cpus.iter().map(start).collect::<Result<Vec<_>>>()?;
        meters.into_iter().map(|meter| meter.join().unwrap_or_else(|_| Err(panicked()))).collect()
    })
}

/// The mean core clock of the CPUs now in Hz, all measured at once for `budget`; `None` for no CPU, and where one is too busy.
pub fn mean(cpus: &CpuList, budget: Duration) -> Option<f64> {
    let readings = measure_all(cpus, budget).ok()?;
    let sum: f64 = readings.iter().map(|reading| reading.clock.as_f64()).sum();
    (!readings.is_empty()).then(|| sum / readings.len() as f64)
}

fn panicked() -> Error {
    Error::new(crate::error::ErrorKind::Failed, "the meter has panicked")
}

fn take(budget: Duration) -> Vec<(i64, i64)> {
    let end = time::now() + time::nanos(budget);
    // The first pair warms the instruction cache and is left out.
    timed_pair();
    let mut pairs = Vec::with_capacity(4096);
    while time::now() < end {
        pairs.push(timed_pair());
    }
    pairs
}

fn reading(cpu: CpuId, pairs: &[(i64, i64)]) -> Result<ClockReading> {
    let short_limit = undisturbed_limit(pairs.iter().map(|pair| pair.0));
    let long_limit = undisturbed_limit(pairs.iter().map(|pair| pair.1));
    let mut clocks: Vec<f64> = pairs
        .iter()
        .filter(|(short, long)| *short as f64 <= short_limit && *long as f64 <= long_limit && long > short)
        .map(|(short, long)| PAIR_CYCLES as f64 * 1e9 / (long - short) as f64)
        .collect();
    clocks.sort_by(f64::total_cmp);
    let kept = clocks.len();
    let at = |index: usize| clocks.get(index.min(kept.saturating_sub(1))).map(|clock| Hertz(*clock as u64));
    // 95 % interval of a median: ranks n/2 ∓ 0.98 √n (binomial, normal approximation).
    let reach = 0.98 * (kept as f64).sqrt();
    let low = (kept as f64 / 2.0 - reach).max(0.0) as usize;
    let high = (kept as f64 / 2.0 + reach).ceil() as usize;
    match (at(kept / 2), at(low), at(high)) {
        (Some(clock), Some(low), Some(high)) if kept >= KEPT_MIN => {
            Ok(ClockReading { cpu, clock, low, high, taken: pairs.len(), kept })
        }
        _ => Err(Error::unavailable(format!(
            "cannot measure the clock of CPU {cpu}: only {kept} of {} timings were undisturbed",
            pairs.len()
        ))
        .hint("let the CPU calm down, or ask for a share such as 40%")),
    }
}

/// Two reads of a 40 ns clock are allowed for.
fn undisturbed_limit(times: impl Iterator<Item = i64>) -> f64 {
    let mut times: Vec<i64> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 10).map_or(0.0, |quick| *quick as f64 * DISTURBED + 80.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timings of a CPU at `ghz` GHz whose loop, calls and clock reads cost `overhead` ns for each chain.
    fn synthetic(ghz: f64, overhead: f64, disturb_every: usize) -> Vec<(i64, i64)> {
        (0..400)
            .map(|i| {
                let hit = if disturb_every > 0 && i % disturb_every == 0 { 3_000 } else { 0 };
                ((5_000.0 / ghz + overhead) as i64 + hit, (25_000.0 / ghz + overhead) as i64)
            })
            .collect()
    }

    #[test]
    fn overhead_and_interrupts_do_not_bias_the_clock() {
        for (overhead, disturb_every) in [(0.0, 0), (300.0, 0), (50.0, 3)] {
            let reading = reading(0, &synthetic(3.6, overhead, disturb_every)).unwrap();
            assert!((reading.clock.as_f64() / 3.6e9 - 1.0).abs() < 1e-3, "{reading:?}");
            assert!(reading.low <= reading.clock && reading.clock <= reading.high);
        }
        assert_eq!(reading(0, &synthetic(3.6, 50.0, 4)).unwrap().kept, 300);
    }

    #[test]
    fn too_few_undisturbed_pairs_are_an_error() {
        assert!(reading(0, &synthetic(3.6, 0.0, 0)[..10]).is_err());
        assert!(reading(0, &[]).is_err());
    }

    #[test]
    fn this_cpu_has_a_clock_that_a_cpu_can_have() {
        let cpu = affinity::get(0).unwrap().first().unwrap();
        let clock = measure(cpu, Duration::from_millis(20)).unwrap().clock.as_f64();
        assert!((0.2e9..8e9).contains(&clock), "{clock}");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(measure(8000, Duration::from_millis(1)).is_err());
    }

    #[test]
    fn a_clock_that_cannot_be_measured_is_not_known() {
        assert_eq!(mean(&CpuList::default(), BUDGET), None);
        assert_eq!(mean(&"8000".parse().unwrap(), BUDGET), None);
    }
}
