//! A quota that holds in the mean: what the group really used corrects it, slowly and within bounds.

use crate::sys::time::Nanos;

/// The farthest that a quota is moved from what was asked, relative. The kernel's own error is a few parts in
/// a thousand; anything larger is not an error of the quota and must not be answered with one.
const BOUND: f64 = 0.02;

/// Corrections are made in steps of this size, so that the kernel's tick does not show as noise, and a quota
/// takes few different values.
const STEP: f64 = 0.001;

/// The time in which an accumulated error is paid back.
const HORIZON: f64 = 20e9;

/// What a group did between two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    /// How long, in nanoseconds: whole periods.
    pub(crate) elapsed: Nanos,
    /// CPU time used, in nanoseconds.
    pub(crate) usage: Nanos,
    /// Periods that the kernel counted.
    pub(crate) periods: u64,
    /// Those of them in which the quota was used up.
    pub(crate) throttled: u64,
}

impl Window {
    /// Whether demand was certainly full: the quota was used up in every single period. Otherwise usage says
    /// what the tasks wanted, not what they were given.
    pub(crate) fn is_full(&self, period: Nanos) -> bool {
        let expected = self.elapsed as f64 / period.max(1) as f64;
        self.throttled == self.periods && self.periods as f64 + 1.5 >= expected && self.periods > 0
    }
}

/// The account of a quota.
///
/// The kernel charges what a turn overran at its tick to the next periods, so that a quota is nearly right by
/// itself. What is left (timers that come late, unused remains that expire) accumulates here: the account is
/// CPU time used beyond what was due, over windows in which demand was full, and the quota is moved so that it
/// is paid back over [`HORIZON`].
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Trim {
    /// CPU time used beyond what was due, in nanoseconds.
    account: f64,
    /// Relative correction in force.
    correction: f64,
    /// Whether the last window was full too: at the edge between idling and full use, part of a period's quota
    /// belongs to neither window.
    in_full_use: bool,
    used: f64,
    elapsed: f64,
}

impl Trim {
    /// Takes in a window of a group that is due `cpus` CPUs; true when the correction has changed.
    pub(crate) fn observe(&mut self, window: &Window, cpus: f64, period: Nanos) -> bool {
        let was_full = std::mem::replace(&mut self.in_full_use, window.is_full(period));
        if !(was_full && self.in_full_use) || cpus <= 0.0 {
            return false;
        }
        self.used += window.usage as f64;
        self.elapsed += window.elapsed as f64;
        // What no correction within the bounds can pay back in time is not carried on.
        let most = BOUND * cpus * HORIZON;
        self.account = (self.account + window.usage as f64 - cpus * window.elapsed as f64).clamp(-most, most);
        let wanted = -self.account / (cpus * HORIZON);
        // Half a step more than rounding needs keeps the correction from swinging between two steps.
        if (wanted - self.correction).abs() < STEP {
            return false;
        }
        self.correction = (wanted / STEP).round() * STEP;
        true
    }

    /// What the quota is to be multiplied with.
    pub(crate) fn factor(&self) -> f64 {
        1.0 + self.correction
    }

    /// CPUs used, averaged over all windows of full demand; `None` before the first.
    pub(crate) fn delivered(&self) -> Option<f64> {
        (self.elapsed > 0.0).then(|| self.used / self.elapsed)
    }

    /// Starts anew as the quota was changed, keeping the correction.
    pub(crate) fn restart(&mut self) {
        *self = Self { correction: self.correction, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: Nanos = 20_000_000;

    fn window(usage: f64, throttled: u64) -> Window {
        Window { elapsed: 2_000_000_000, usage: usage as Nanos, periods: 100, throttled }
    }

    #[test]
    fn demand_is_full_only_when_every_period_was_throttled() {
        assert!(window(0.0, 100).is_full(PERIOD));
        assert!(!window(0.0, 99).is_full(PERIOD));
        let asleep = Window { periods: 50, throttled: 50, ..window(0.0, 0) };
        assert!(!asleep.is_full(PERIOD), "it had nothing to run in half of the periods");
        let unlimited = Window { periods: 0, throttled: 0, elapsed: PERIOD, usage: 0 };
        assert!(!unlimited.is_full(PERIOD));
    }

    #[test]
    fn partial_demand_never_moves_the_quota() {
        let mut trim = Trim::default();
        for _ in 0..100 {
            assert!(!trim.observe(&window(1e8, 70), 0.5, PERIOD));
        }
        assert_eq!(trim, Trim::default());
        assert_eq!(trim.delivered(), None);
    }

    #[test]
    fn the_first_window_of_full_demand_only_marks_the_begin() {
        let mut trim = Trim::default();
        trim.observe(&window(5e8, 100), 0.5, PERIOD);
        assert_eq!(trim.delivered(), None);
        trim.observe(&window(1e9, 100), 0.5, PERIOD);
        assert_eq!(trim.delivered(), Some(0.5));
    }

    proptest! {
        /// Whatever the kernel's own error within the bounds, the mean comes right.
        #[test]
        fn a_constant_error_is_trimmed_away(
            bias in -0.015f64..0.015, share in 0.05f64..0.95, noise in proptest::collection::vec(-1.0f64..1.0, 100),
        ) {
            let mut trim = Trim::default();
            let (mut used, mut due, mut offset) = (0.0, 0.0, 0.0);
            for (index, noise) in noise.iter().enumerate() {
                // A turn ends up to a tick late and the next periods pay for it: noise that does not add up.
                let next = noise * 4e6 * share;
                let usage = share * 2e9 * (1.0 + bias) * trim.factor() + next - offset;
                offset = next;
                trim.observe(&window(usage, 100), share, PERIOD);
                prop_assert!((trim.factor() - 1.0).abs() <= BOUND + 1e-9);
                if index >= 50 {
                    used += usage;
                    due += share * 2e9;
                }
            }
            prop_assert!((used / due - 1.0).abs() < 0.002, "{}", used / due - 1.0);
        }

        #[test]
        fn no_window_moves_a_quota_out_of_bounds(windows in proptest::collection::vec((0i64..4_000_000_000, 0u64..=100), 1..50)) {
            let mut trim = Trim::default();
            for (usage, throttled) in windows {
                trim.observe(&window(usage as f64, throttled), 0.3, PERIOD);
                prop_assert!((trim.factor() - 1.0).abs() <= BOUND + 1e-9);
            }
        }
    }
}
