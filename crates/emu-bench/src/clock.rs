//! The core clock of several CPUs.

use std::thread;
use std::time::Duration;

use emu_core::{CpuList, meter};

/// The mean core clock of the CPUs now in Hz, all measured at once for `budget`, as work on all of them keeps all of them
/// busy; `None` where one is too busy to tell.
pub fn mean(cpus: &CpuList, budget: Duration) -> Option<f64> {
    let clocks: Vec<f64> = thread::scope(|scope| {
        let meters: Vec<_> =
            cpus.iter().map(|cpu| scope.spawn(move || meter::measure(cpu, budget))).collect();
        meters.into_iter().map(|meter| Some(meter.join().ok()?.ok()?.clock.as_f64())).collect::<Option<_>>()
    })?;
    (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_cannot_be_measured_is_not_known() {
        assert_eq!(mean(&CpuList::default(), meter::BUDGET), None);
        assert_eq!(mean(&"8000".parse().unwrap(), meter::BUDGET), None);
    }
}
