//! How evenly the threads or processes of a job share its work.

use schemars::JsonSchema;
use serde::Serialize;

use super::window::Window;
use crate::stats::{self, Sample};

/// Jain's fairness index of the parts of a window; see [`fairness`](stats::fairness). Medians over the windows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Fairness {
    /// Without emulation.
    pub native: f64,
    /// Under emulation.
    pub emulated: f64,
}

impl Fairness {
    /// Which part of the native index may be missing: with [`TURNS_NS`](Self::TURNS_NS) each, chance takes less.
    const LOST: f64 = 0.1;

    /// CPU time of some turns, in nanoseconds: one is some 3 ms (`base_slice_ns` in debugfs). Over fewer nobody shares evenly.
    const TURNS_NS: u64 = 15_000_000;

    /// `None` where there is one part, or windows were too short for some turns of each.
    pub(super) fn of<'a>(sides: impl Iterator<Item = (&'a Window, &'a Window)>) -> Option<Self> {
        let index = |window: &Window| {
            let turns_ns = Self::TURNS_NS.saturating_mul(window.done.parts.len() as u64);
            stats::fairness(&window.done.parts).filter(|_| window.done.cpu_ns >= turns_ns)
        };
        let (native, emulated): (Vec<_>, Vec<_>) =
            sides.filter_map(|(native, emulated)| index(native).zip(index(emulated))).unzip();
        let median = |values: Vec<f64>| Sample::new(values).ok().map(|sample| sample.median());
        Some(Self { native: median(native)?, emulated: median(emulated)? })
    }

    /// Whether some parts got so little under emulation that the sum of all hides it.
    pub fn is_lost(&self) -> bool {
        self.emulated < self.native * (1.0 - Self::LOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_lost_where_some_starve_that_do_not_natively() {
        let fairness = |native, emulated| Fairness { native, emulated };
        assert!(fairness(1.0, 0.5).is_lost() && fairness(0.89, 0.75).is_lost());
        assert!(!fairness(1.0, 0.95).is_lost() && !fairness(0.89, 0.89).is_lost());
        assert!(!fairness(0.5, 1.0).is_lost());
    }
}
