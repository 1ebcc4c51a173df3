//! The core clock while an emulation is at work, for methods that work by it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::account::student;
use crate::clock;
use crate::cpu_list::CpuId;
use crate::speed::Hertz;

/// What one measurement takes from the tasks of its CPU: 0.2 % of a second.
const BUDGET: Duration = Duration::from_millis(2);

/// The clocks measured since the last change of targets.
#[derive(Debug, Default)]
pub(super) struct Meter(BTreeMap<CpuId, Clocks>);

/// Their number, sum, and sum of squares.
#[derive(Debug, Default)]
struct Clocks {
    count: u32,
    sum: f64,
    squares: f64,
}

impl Meter {
    pub(super) fn add(&mut self, cpu: CpuId, clock: Option<Hertz>) {
        if let Some(clock) = clock {
            let clocks = self.0.entry(cpu).or_default();
            clocks.count += 1;
            clocks.sum += clock.as_f64();
            clocks.squares += clock.as_f64().powi(2);
        }
    }

    /// The mean clock, and half of its 95 % interval as a part of it: what alternates is seen at single moments. A single one
    /// tells neither.
    pub(super) fn clock(&self, cpu: CpuId) -> Option<(Hertz, f64)> {
        let Clocks { count, sum, squares } = self.0.get(&cpu)?;
        let more = count.checked_sub(1).filter(|more| *more > 0)?;
        let mean = sum / f64::from(*count);
        let variance = ((squares - sum * mean) / f64::from(more)).max(0.0);
        let half = student(more) * (variance / f64::from(*count)).sqrt();
        Some((Hertz(mean as u64), half / mean))
    }
}

/// `None` where the CPU is too busy to tell.
pub(super) fn measure(cpu: CpuId) -> Option<Hertz> {
    clock::measure(cpu, BUDGET).ok().map(|reading| reading.clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_alternate_are_told_with_their_scatter() {
        let mut meter = Meter::default();
        let clock = |meter: &Meter| meter.clock(0);
        meter.add(0, Some(Hertz(1_000)));
        assert_eq!(clock(&meter), None);
        meter.add(0, Some(Hertz(1_000)));
        assert_eq!(clock(&meter), Some((Hertz(1_000), 0.0)));
        for clock in [3_000, 3_000, 1_000, 3_000] {
            meter.add(0, Some(Hertz(clock)));
        }
        let (mean, half) = clock(&meter).unwrap();
        // The standard deviation is 1,095, and that of the mean 447.
        assert!(mean == Hertz(2_000) && (half - 2.57 * 447.2 / 2_000.0).abs() < 1e-3, "{half}");
        assert_eq!(meter.clock(1), None);
    }
}
