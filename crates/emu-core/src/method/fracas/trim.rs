//! A quota that holds in the mean: what the group really used corrects it, slowly and within bounds.

use crate::sys::time::Nanos;

/// The farthest that a quota is moved from what was asked, relative. The kernel's own error is a few parts in a
/// thousand, and up to 3 % on Linux 6.1 where less than half a tick of each period is left out; anything
/// larger is not an error of the quota and must not be answered with one.
const BOUND: f64 = 0.04;

/// Corrections are made in steps of this size: a quota takes few different values.
const STEP: f64 = 0.001;

/// The time in which an accumulated error is paid back, in nanoseconds.
const HORIZON: f64 = 8e9;

/// Usage and stalls that make up this much of a window leave nothing that can be called idle.
const ALL: f64 = 0.995;
/// More than that is an error of the accounting, not full use.
const MORE_THAN_ALL: f64 = 1.05;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    /// Whole periods.
    pub(crate) elapsed: Nanos,
    pub(crate) usage: Nanos,
    pub(crate) periods: u64,
    /// Those of them in which the quota was used up.
    pub(crate) throttled: u64,
    /// For how long the group was throttled in them.
    pub(crate) stalled: Nanos,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Due {
    pub(crate) cpus: f64,
    pub(crate) period: Nanos,
    pub(crate) tick: Nanos,
}

impl Due {
    /// The error of an account that means nothing: a window's ends can fall anywhere in a turn, which can end
    /// up to a tick late.
    fn noise(&self) -> f64 {
        self.cpus * self.period as f64 + 2.0 * self.tick as f64
    }
}

impl Window {
    /// Whether demand was certainly full: the quota was used up in every single period; or the group ran or was
    /// stalled all the time, where so little of a period is left out that the next one begins before the tick.
    /// Otherwise usage says what the tasks wanted or what others left them.
    pub(crate) fn is_full(&self, period: Nanos) -> bool {
        let elapsed = self.elapsed as f64;
        let every_period = self.throttled == self.periods
            && self.periods > 0
            && self.periods as f64 + 1.5 >= elapsed / period.max(1) as f64;
        let all_the_time = (self.usage as f64 + self.stalled as f64) / elapsed;
        every_period || self.throttled > 0 && (ALL..MORE_THAN_ALL).contains(&all_the_time)
    }
}

/// The account of a quota: CPU time used beyond what was due, over windows in which demand was full.
///
/// The kernel charges what a turn overran at its tick to the next periods, so that a quota is nearly right by itself,
/// and best left alone: each write to it forgives such a debt. What is lost or won otherwise accumulates here (timers
/// that come late, remains that are dropped when the next period begins). What of it is more than noise moves the
/// quota, so that it is paid back over [`HORIZON`]. After the time `t` the mean is wrong by at most (noise +
/// `HORIZON` × the kernel's own error) / `t`: with 100 ms periods by less than 0.5 % after a minute.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Trim {
    account: f64,
    /// Relative.
    correction: f64,
    /// Whether the last window was full too: at the edge between idling and full use, part of a period's quota
    /// belongs to neither window.
    in_full_use: bool,
    used: f64,
    elapsed: f64,
}

impl Trim {
    /// Takes in a window; true when the correction has changed.
    pub(crate) fn observe(&mut self, window: &Window, due: &Due) -> bool {
        let was_full = std::mem::replace(&mut self.in_full_use, window.is_full(due.period));
        if !(was_full && self.in_full_use) || due.cpus <= 0.0 {
            return false;
        }
        self.used += window.usage as f64;
        self.elapsed += window.elapsed as f64;
        // What no correction within the bounds can pay back in time is not carried on. Noise comes on top of that twice:
        // what is not answered, and what the account swings by around it.
        let most = BOUND * due.cpus * HORIZON + 2.0 * due.noise();
        let error = window.usage as f64 - due.cpus * window.elapsed as f64;
        self.account = (self.account + error).clamp(-most, most);
        let beyond_noise = self.account.signum() * (self.account.abs() - due.noise()).max(0.0);
        let wanted = (-beyond_noise / (due.cpus * HORIZON)).clamp(-BOUND, BOUND);
        // Half a step more than rounding needs keeps the correction from swinging between two steps.
        if (wanted - self.correction).abs() < STEP {
            return false;
        }
        self.correction = (wanted / STEP).round() * STEP;
        true
    }

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
    const TICK: Nanos = 4_000_000;

    fn window(usage: f64, throttled: u64) -> Window {
        Window { elapsed: 2_000_000_000, usage: usage as Nanos, periods: 100, throttled, stalled: 0 }
    }

    fn due(cpus: f64) -> Due {
        Due { cpus, period: PERIOD, tick: TICK }
    }

    #[test]
    fn demand_is_full_when_every_period_was_throttled() {
        assert!(window(0.0, 100).is_full(PERIOD));
        assert!(!window(0.0, 99).is_full(PERIOD));
        let asleep = Window { periods: 50, throttled: 50, ..window(0.0, 0) };
        assert!(!asleep.is_full(PERIOD), "it had nothing to run in half of the periods");
        let unlimited = Window { periods: 0, throttled: 0, ..window(0.0, 0) };
        assert!(!unlimited.is_full(PERIOD));
    }

    #[test]
    fn demand_is_full_when_a_group_always_ran_or_was_stalled() {
        // Linux 6.1, 95 % of 20 ms: throttled in every third period, and busy in all of them.
        let busy = Window { stalled: 156_000_000, ..window(1_844e6, 38) };
        assert!(busy.is_full(PERIOD));
        assert!(!Window { stalled: 100_000_000, ..busy }.is_full(PERIOD), "it slept a little");
        assert!(!Window { stalled: 600_000_000, ..busy }.is_full(PERIOD), "no accounting to go by");
        let alone = Window { throttled: 0, stalled: 0, ..window(2e9, 0) };
        assert!(!alone.is_full(PERIOD), "it had the CPU to itself and no quota to speak of");
    }

    #[test]
    fn partial_demand_never_moves_the_quota() {
        let mut trim = Trim::default();
        for _ in 0..100 {
            assert!(!trim.observe(&window(1e8, 70), &due(0.5)));
        }
        assert_eq!(trim, Trim::default());
        assert_eq!(trim.delivered(), None);
    }

    #[test]
    fn the_first_window_of_full_demand_only_marks_the_begin() {
        let mut trim = Trim::default();
        trim.observe(&window(5e8, 100), &due(0.5));
        assert_eq!(trim.delivered(), None);
        trim.observe(&window(1e9, 100), &due(0.5));
        assert_eq!(trim.delivered(), Some(0.5));
    }

    #[test]
    fn turns_that_end_at_the_tick_are_no_reason_to_move_a_quota() {
        // Windows that begin before a turn and end after one, and the other way round.
        for quota in [0.05, 0.25, 0.9] {
            let (mut trim, mut early) = (Trim::default(), false);
            for _ in 0..100 {
                let swing = quota * PERIOD as f64 + TICK as f64;
                early = !early;
                let usage = quota * 2e9 + if early { swing } else { -swing };
                assert!(!trim.observe(&window(usage, 100), &due(quota)), "{quota}");
            }
        }
    }

    proptest! {
        /// Whatever the kernel's own error within the bounds, the mean comes right.
        #[test]
        fn a_constant_error_is_trimmed_away(
            bias in -0.035f64..0.035, share in 0.05f64..0.95, noise in proptest::collection::vec(-1.0f64..1.0, 100),
        ) {
            let mut trim = Trim::default();
            let (mut used, mut wanted, mut offset) = (0.0, 0.0, 0.0);
            for noise in noise {
                // A turn ends up to a tick late and the next periods pay for it: noise that does not add up.
                let next = noise * TICK as f64;
                let usage = share * 2e9 * (1.0 + bias) * trim.factor() + next - offset;
                offset = next;
                trim.observe(&window(usage, 100), &due(share));
                prop_assert!((trim.factor() - 1.0).abs() <= BOUND + 1e-9);
                used += usage;
                wanted += share * 2e9;
            }
            // Corrections come in steps, so that one may be missing; the first and the last turn may end a tick off.
            let longest = due(share).noise()
                + 2.0 * TICK as f64
                + (0.035 + STEP) * share * HORIZON
                + 3.0 * share * 2e9 * 0.035;
            let longest = longest / wanted;
            prop_assert!((used / wanted - 1.0).abs() < longest, "{} of {longest}", used / wanted - 1.0);
        }

        #[test]
        fn no_window_moves_a_quota_out_of_bounds(
            windows in proptest::collection::vec((0i64..4_000_000_000, 0u64..=100, 0i64..4_000_000_000), 1..50),
        ) {
            let mut trim = Trim::default();
            for (usage, throttled, stalled) in windows {
                trim.observe(&Window { stalled, ..window(usage as f64, throttled) }, &due(0.3));
                prop_assert!((trim.factor() - 1.0).abs() <= BOUND + 1e-9);
            }
        }
    }
}
