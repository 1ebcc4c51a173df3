//! A lower quota for a group at rest, so that a program that wakes up gains nothing by it.
//!
//! The kernel lets a group that was idle use a whole quota in what is left of the period, however little that is: work
//! ahead of the speed asked for, by *q(1 − s)/2* in the mean, for a quota *q* and the speed *s*. A program that ends in the
//! middle of a turn is ahead by as much again. So a group that sleeps gets a lower quota, and the full one from the first
//! period on that finds the lower one used up.
//!
//! In units of the period, let the lower quota be *x*. A program that wakes up with *r* of a period left uses *x* of it or,
//! where *r < x*, first *r* and then *x* of the next period, and gets the full quota when that period is over. Over
//! all *r* it is ahead then by *x²/2 + x(1 − s) − s/2* in the mean, plus *s(1 − s)/2* where it ends. The sum is zero for
//!
//! *x = √((1 − s)² + s²) − (1 − s)*.
//!
//! The turn ends at the kernel's next tick, half a tick late in the mean, which the write of the full quota forgives:
//! that is taken off. Where the kernel's least quota is more, the group stays at rest for as long as it is more than
//! half a quota ahead (Documentation/scheduler/sched-bwc.rst; `do_sched_cfs_period_timer`).

use std::time::Duration;

use super::mark::Mark;
use crate::cgroup::QUOTA_MIN_US;
use crate::sys::time::{self, Nanos};

/// After how many ticks without CPU time a group is idle: CPU time is accounted at ticks.
const IDLE_TICKS: Nanos = 2;

/// The part of the full quota below which a lower one is worth the looks.
const WORTH: f64 = 0.95;

/// How many ticks a period must have at least, for turns that end at them to be told from each other.
const PERIOD_TICKS: Nanos = 2;

/// Between two looks while it is not known when periods begin: in parts of a period, and bounded.
const STEP: Nanos = 100;
const STEP_MIN: Nanos = 100_000;
const STEP_MAX: Nanos = 1_000_000;

/// After how many periods a group is looked at again that was in full use.
const IN_FULL_USE: Nanos = 2;

/// For how many periods that is looked for; one begins after each write, even if the group is idle.
const SEARCH: Nanos = 2;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QuotaTurns {
    pub(crate) share: f64,
    pub(crate) period: Nanos,
    pub(crate) tick: Nanos,
}

impl QuotaTurns {
    pub(crate) fn new(share: f64, period_us: u64, tick: Duration) -> Self {
        Self { share, period: period_us as Nanos * 1_000, tick: time::nanos(tick) }
    }

    /// The quota at rest, as a share of one CPU; `None` where it would hardly be less than the full one.
    pub(crate) fn resting_share(&self) -> Option<f64> {
        let can_rest = self.share > 0.0 && self.share < 1.0 && self.period >= PERIOD_TICKS * self.tick;
        if !can_rest {
            return None;
        }
        let share = self.wanted().max(self.least());
        (share < WORTH * self.share).then_some(share)
    }

    fn wanted(&self) -> f64 {
        let rest = 1.0 - self.share;
        rest.hypot(self.share) - rest - self.tick as f64 / (2.0 * self.period as f64)
    }

    fn least(&self) -> f64 {
        (QUOTA_MIN_US * 1_000) as f64 / self.period as f64
    }

    /// Whether the kernel's least quota is more than the one wanted.
    fn is_raised(&self) -> bool {
        self.wanted() < self.least()
    }

    /// Whether a group that has used `used` since it woke up, and was stalled when `stalls` periods began, is to have its
    /// full quota.
    fn is_level(&self, used: Nanos, stalls: u64) -> bool {
        let quota = self.share * self.period as f64;
        let due = quota * (stalls as f64 - 1.0) + quota * self.share / 2.0;
        stalls > 0 && (!self.is_raised() || used as f64 - due <= quota / 2.0)
    }

    /// The longest time for which a program that wakes up is stalled.
    pub(crate) fn longest_stall(&self) -> Duration {
        let Some(share) = self.resting_share() else { return Duration::ZERO };
        let (period, quota) = (self.period as f64, self.share * self.period as f64);
        let used = share * period + self.tick as f64;
        // How many more periods pass until it is level.
        let more = ((used - quota * (1.0 + self.share) / 2.0) / quota).ceil().max(0.0);
        let more = if self.is_raised() { more } else { 0.0 };
        time::span(((1.0 + more - share) * period) as Nanos)
    }
}

#[derive(Debug, Default)]
pub(crate) struct IdleQuota {
    is_resting: bool,
    /// A moment at which a period began, or a little later; `None` until it is known.
    phase: Option<Nanos>,
    search_end: Nanos,
    next: Nanos,
    before: Option<Mark>,
    idle_since: Nanos,
    /// Whether the last look found it in use, and the one before idle.
    has_woken: bool,
    /// The counters when it was idle last, or used less than its quota.
    idle: Option<Mark>,
}

impl IdleQuota {
    /// Goes on, at rest or not, as another quota is written at `now`: periods may begin at other moments from then on.
    pub(crate) fn restart(&mut self, is_resting: bool, period: Nanos, now: Nanos) {
        *self = Self {
            is_resting,
            search_end: now + SEARCH * period,
            next: now,
            idle: self.idle,
            ..Self::default()
        };
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting
    }

    pub(super) fn has_woken(&self) -> bool {
        self.has_woken
    }

    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    pub(crate) fn put_off(&mut self, next: Nanos) {
        self.next = next;
    }

    pub(crate) fn observe(&mut self, now: &Mark, turns: &QuotaTurns) {
        // The first look after another quota may come late, and tells no idle time.
        if self.before.is_none() {
            self.idle_since = now.at;
        }
        let before = self.before.replace(*now).unwrap_or(*now);
        let is_idle = now.usage == before.usage && now.throttling.throttled == before.throttling.throttled;
        self.has_woken = !is_idle && self.idle_since < before.at;
        if !is_idle {
            self.idle_since = now.at;
        }
        self.decide(now, &before, turns);
        self.follow(now, &before, is_idle, turns);
    }

    fn decide(&mut self, now: &Mark, before: &Mark, turns: &QuotaTurns) {
        let (counts, last) = (now.throttling, before.throttling);
        if counts.periods != last.periods && counts.throttled == last.throttled {
            // With less than its quota, a program is not ahead.
            self.idle = Some(*before);
        }
        let idle = *self.idle.get_or_insert(*now);
        if now.at - self.idle_since >= turns.period.max(IDLE_TICKS * turns.tick) {
            self.idle = Some(*now);
            self.is_resting = true;
        } else if self.is_resting {
            let used = now.usage.zip(idle.usage).map_or(0, |(now, idle)| now - idle);
            let stalls = counts.throttled.saturating_sub(idle.throttling.throttled);
            self.is_resting = !turns.is_level(used, stalls);
        }
    }

    fn follow(&mut self, now: &Mark, before: &Mark, is_idle: bool, turns: &QuotaTurns) {
        let at = now.at;
        let begun = now.throttling.periods.saturating_sub(before.throttling.periods);
        let is_searching = at < self.search_end;
        match self.phase {
            None if is_searching && begun > 0 => self.phase = Some(at),
            // A period of a group in use begins, sooner or later; that of another does not.
            None if !is_searching && !is_idle => self.search_end = at + SEARCH * turns.period,
            // The kernel's timer is not where it was.
            Some(_) if !is_idle && begun == 0 => {
                (self.phase, self.search_end) = (None, at + SEARCH * turns.period);
            }
            _ => {}
        }
        // A group that was stalled in each period goes on running, most of the time.
        let is_in_full_use = begun > 0 && now.throttling.throttled == before.throttling.throttled + begun;
        let pause = if is_in_full_use && !self.is_resting { IN_FULL_USE } else { 1 };
        self.next = match self.phase {
            Some(phase) => phase + ((at - phase) / turns.period + pause) * turns.period,
            None if at < self.search_end => at + (turns.period / STEP).clamp(STEP_MIN, STEP_MAX),
            None => at + turns.period,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Throttling;

    const TICK: Nanos = 4_000_000;
    const PERIOD: Nanos = 20_000_000;
    /// The simulation goes on by this much.
    const STEP: Nanos = 50_000;

    /// What the kernel does with one thread of a group.
    struct Kernel {
        turns: QuotaTurns,
        quota: Nanos,
        left: Nanos,
        is_throttled: bool,
        period_end: Nanos,
        tick: Nanos,
        mark: Mark,
    }

    impl Kernel {
        fn new(share: f64) -> Self {
            let turns = QuotaTurns { share, period: PERIOD, tick: TICK };
            let mark = Mark { at: 0, usage: Some(0), throttling: Throttling::default() };
            let quota = (share * PERIOD as f64) as Nanos;
            let (period_end, tick) = (7_300_000, 1_100_000);
            Self { turns, quota, left: quota, is_throttled: false, period_end, tick, mark }
        }

        /// One step in which the thread has something to do or not; with `rest`, the quota is kept as it says.
        fn step(&mut self, wants: bool, rest: Option<&mut IdleQuota>) {
            let now = self.mark.at;
            if now >= self.period_end {
                self.period_end += PERIOD;
                self.mark.throttling.periods += 1;
                self.mark.throttling.throttled += u64::from(self.is_throttled);
                self.left = self.quota + self.left.min(0);
                self.is_throttled &= self.left <= 0;
            }
            if now >= self.tick {
                self.tick += TICK;
                self.is_throttled |= self.left <= 0;
            }
            if wants && !self.is_throttled {
                self.left -= STEP;
                self.mark.usage = self.mark.usage.map(|usage| usage + STEP);
            }
            self.mark.at += STEP;
            let Some(rest) = rest.filter(|rest| now >= rest.next()) else { return };
            let before = rest.is_resting();
            rest.observe(&self.mark, &self.turns);
            if rest.is_resting() != before {
                self.write(rest.is_resting());
            }
        }

        fn write(&mut self, is_resting: bool) {
            let share = self.turns.resting_share().filter(|_| is_resting).unwrap_or(self.turns.share);
            self.quota = (share * PERIOD as f64) as Nanos;
            (self.left, self.is_throttled) = (self.quota, false);
        }

        fn usage(&self) -> Nanos {
            self.mark.usage.unwrap()
        }
    }

    /// How much faster than asked a program runs that sleeps for a while, and then computes for ten periods' worth.
    fn gain(share: f64, keeps: bool) -> f64 {
        const BURSTS: Nanos = 200;
        let (mut kernel, mut rest) = (Kernel::new(share), IdleQuota::default());
        let work = (10.0 * share * PERIOD as f64) as Nanos;
        let mut took = 0;
        for burst in 0..BURSTS {
            // All phases of a period, and of a tick.
            let awake = kernel.mark.at + 3 * PERIOD + burst * 1_270_000 % (2 * PERIOD);
            while kernel.mark.at < awake {
                kernel.step(false, keeps.then_some(&mut rest));
            }
            let (begin, used) = (kernel.mark.at, kernel.usage());
            while kernel.usage() < used + work {
                kernel.step(true, keeps.then_some(&mut rest));
            }
            took += kernel.mark.at - begin;
        }
        (BURSTS * work) as f64 / share / took as f64 - 1.0
    }

    #[test]
    fn a_program_that_wakes_up_gains_little() {
        for (share, most, without) in
            [(0.1, 0.08, 0.15), (0.25, 0.06, 0.1), (0.5, 0.02, 0.06), (0.75, 0.02, 0.035)]
        {
            let gains = (gain(share, true), gain(share, false));
            assert!(gains.0.abs() < most && gains.1 > without, "{share}: {gains:?}");
        }
    }

    #[test]
    fn a_program_that_hardly_runs_does_not_pay_for_that_later() {
        let (mut kernel, mut rest) = (Kernel::new(0.25), IdleQuota::default());
        rest.restart(true, PERIOD, 0);
        kernel.write(true);
        while kernel.mark.at < 1_000 * PERIOD {
            let wants = kernel.mark.at % 10_000_000 < 400_000;
            kernel.step(wants, Some(&mut rest));
        }
        assert!(rest.is_resting());
        while kernel.mark.at < 1_004 * PERIOD {
            kernel.step(true, Some(&mut rest));
        }
        assert!(!rest.is_resting());
    }

    #[test]
    fn new_speeds_each_period_leave_a_used_group_its_full_quota() {
        let (mut kernel, mut rest) = (Kernel::new(0.5), IdleQuota::default());
        rest.restart(true, PERIOD, 0);
        kernel.write(true);
        while kernel.mark.at < 10 * PERIOD {
            // They are written as the period begins, before anybody looks.
            let is_asked = kernel.mark.at >= kernel.period_end;
            kernel.step(true, (!is_asked).then_some(&mut rest));
            if is_asked {
                rest.restart(rest.is_resting(), PERIOD, kernel.mark.at);
            }
        }
        assert!(!rest.is_resting());
    }

    #[test]
    fn a_late_look_at_a_new_quota_is_no_idle_time() {
        let (mut kernel, mut rest) = (Kernel::new(0.5), IdleQuota::default());
        rest.restart(false, PERIOD, 0);
        while kernel.mark.at < 3 * PERIOD {
            kernel.step(true, None);
        }
        rest.observe(&kernel.mark, &kernel.turns);
        assert!(!rest.is_resting());
    }

    #[test]
    fn a_group_wakes_up_once_until_it_sleeps_again() {
        let (mut kernel, mut rest) = (Kernel::new(0.5), IdleQuota::default());
        rest.restart(true, PERIOD, 0);
        kernel.write(true);
        for _ in 0..3 {
            let mut woken = Vec::new();
            let begin = kernel.mark.at;
            while kernel.mark.at < begin + 20 * PERIOD {
                let due = kernel.mark.at >= rest.next();
                kernel.step(kernel.mark.at >= begin + 10 * PERIOD, Some(&mut rest));
                if due && rest.has_woken() {
                    woken.push(kernel.mark.at - begin);
                }
            }
            // Found within a period, and one that began in the middle of it.
            assert!(
                matches!(woken[..], [at] if at > 10 * PERIOD && at <= 11 * PERIOD + 2 * STEP),
                "{woken:?}"
            );
        }
    }

    #[test]
    fn a_group_in_use_has_its_full_quota() {
        let (mut kernel, mut rest) = (Kernel::new(0.5), IdleQuota::default());
        rest.restart(true, PERIOD, 0);
        kernel.write(true);
        let mut rested = 0;
        while kernel.mark.at < 1_000 * PERIOD {
            kernel.step(true, Some(&mut rest));
            rested += Nanos::from(rest.is_resting()) * STEP;
        }
        assert!(rested <= 2 * PERIOD, "{rested}");
        let used = kernel.usage() as f64 / kernel.mark.at as f64;
        assert!((used - 0.5).abs() < 0.001, "{used}");
    }

    #[test]
    fn looks_come_just_after_periods_begin_even_if_late() {
        let (mut kernel, mut rest) = (Kernel::new(0.5), IdleQuota::default());
        rest.restart(true, PERIOD, 0);
        for moved in [0, 9_000_000] {
            let awake = kernel.mark.at + 5 * PERIOD;
            while kernel.mark.at < awake {
                kernel.step(false, Some(&mut rest));
            }
            kernel.period_end += moved;
            while kernel.mark.at < awake + 5 * PERIOD {
                kernel.step(true, Some(&mut rest));
            }
            let late = (rest.next() - kernel.period_end) % PERIOD;
            assert!((0..=300_000).contains(&late), "{late}");
        }
    }

    #[test]
    fn a_quota_at_the_kernel_s_least_has_no_lower_one() {
        let turns = |share| QuotaTurns { share, period: PERIOD, tick: TICK };
        for share in [0.05, 1.0] {
            assert_eq!((turns(share).resting_share(), turns(share).longest_stall()), (None, Duration::ZERO));
        }
        let at_least = turns(0.25);
        assert_eq!(at_least.resting_share(), Some(0.05));
        // At least two periods, as it uses up to a tick more.
        assert_eq!(at_least.longest_stall(), Duration::from_millis(39));
        assert!(turns(0.5).resting_share().unwrap() < 0.2);
    }
}
