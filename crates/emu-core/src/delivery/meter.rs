//! The core clock while an emulation is at work, for methods that work by it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock;
use crate::cpu_list::CpuId;
use crate::speed::Hertz;

/// What one measurement takes from the tasks of its CPU: 0.2 % of a second.
const BUDGET: Duration = Duration::from_millis(2);

/// The sum and number of the clocks measured since the last change of targets.
#[derive(Debug, Default)]
pub(super) struct Meter(BTreeMap<CpuId, (f64, u32)>);

impl Meter {
    pub(super) fn add(&mut self, cpu: CpuId, clock: Option<Hertz>) {
        if let Some(clock) = clock {
            let (sum, count) = self.0.entry(cpu).or_default();
            *sum += clock.as_f64();
            *count += 1;
        }
    }

    pub(super) fn clock(&self, cpu: CpuId) -> Option<Hertz> {
        let &(sum, count) = self.0.get(&cpu)?;
        Some(Hertz((sum / f64::from(count)) as u64))
    }
}

/// `None` where the CPU is too busy to tell.
pub(super) fn measure(cpu: CpuId) -> Option<Hertz> {
    clock::measure(cpu, BUDGET).ok().map(|reading| reading.clock)
}
