//! The core clock before and after a window, by which rates can be told per cycle and a change is seen.

use std::time::Duration;

use emu_core::{CpuList, clock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long the meter has on each CPU: over a hundred timings, of which 20 must be undisturbed.
const BUDGET: Duration = Duration::from_millis(1);

/// The core clock around a window: the mean over its CPUs, in Hz, with nothing engaged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoreClock {
    /// Just before.
    pub before_hz: f64,
    /// Just after.
    pub after_hz: f64,
}

impl CoreClock {
    /// The mean of before and after.
    pub fn mean_hz(&self) -> f64 {
        f64::midpoint(self.before_hz, self.after_hz)
    }

    /// By which share it changed meanwhile.
    pub fn change(&self) -> f64 {
        change(self.before_hz, self.after_hz)
    }
}

/// By which share one clock differs from another.
pub(super) fn change(a: f64, b: f64) -> f64 {
    (a / b).ln().abs().exp_m1()
}

/// `None` where a CPU is too busy to tell.
pub(super) fn measure(cpus: &CpuList) -> Option<f64> {
    clock::mean(cpus, BUDGET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_alike_in_both_directions() {
        let (rising, falling) = (change(2e9, 2.2e9), change(2.2e9, 2e9));
        assert!((rising - 0.1).abs() < 1e-12 && (falling - 0.1).abs() < 1e-12);
        let rising = CoreClock { before_hz: 2e9, after_hz: 2.2e9 };
        assert!((rising.mean_hz() - 2.1e9).abs() < 1.0 && (rising.change() - 0.1).abs() < 1e-12);
    }
}
