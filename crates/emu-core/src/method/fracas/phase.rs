//! Brings the periods of the CPUs' groups into one phase, so that threads which wait for each other run at the same time.
//!
//! The kernel gives each group's period a random offset when the group is made (`init_cfs_bandwidth`, kernel/sched/fair.c),
//! and keeps it over idle times and new quotas. Two threads at 25 % then have about a quarter of their time in common, and
//! a program that spins at barriers gets on only in that. A period that is longer once moves the offset by the difference.

use std::time::Duration;

use super::quota_group::QuotaGroup;
use super::turn_end::PRIORITY;
use crate::error::Result;
use crate::sys::sched;
use crate::sys::time::{self, Nanos};

/// How far apart the periods may begin, as a part of one: less than a tick makes of the turns anyway.
const CLOSE: f64 = 0.01;

/// How often a group is looked at, as a part of the period, and at least.
const STEP: f64 = 0.002;
const STEP_MIN: Duration = Duration::from_micros(50);

/// A period that is seen so much later, in nanoseconds, is not known to have begun then.
const LATE: Nanos = 1_000_000;

/// A group whose period did not begin within so many has nothing to run.
const PATIENCE: f64 = 1.6;

/// The next try, in periods: soon, while groups begin to run, then later and later, up to a second.
const SOON: Nanos = 2;
const LATEST: Nanos = 1_000_000_000;

/// Has the next periods of groups that are in no use yet begin within a millisecond.
///
/// A timer that is started expires at the next multiple of the period since it expired last (`start_cfs_bandwidth`). With a
/// period of 1 ms that is soon, and it keeps the moment when a longer period is written at once. What cannot be written so,
/// as a group above has less, is moved later.
pub(super) fn gather(groups: &mut [QuotaGroup]) {
    for group in groups {
        let _ = group.hasten();
    }
}

#[derive(Debug)]
pub(super) struct Phase {
    /// When to look; `None` while the phases are known to be the same.
    next: Option<Nanos>,
    begin: Option<Nanos>,
    pause: Nanos,
    /// The periods of each group at the last look: a group that has new ones is in use.
    before: Vec<u64>,
}

impl Phase {
    pub(super) fn new(groups: &[QuotaGroup], period_us: u64) -> Self {
        let pause = SOON * period_us as Nanos * 1_000;
        let before = groups.iter().map(|group| group.periods().unwrap_or(0)).collect();
        Self { next: Some(time::now() + pause), begin: None, pause, before }
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.next
    }

    /// When a period began, of all groups or, before they are in one phase, of the first; `None` until it is known.
    pub(super) fn begin(&self) -> Option<Nanos> {
        self.begin
    }

    /// Moves the periods into one phase, if all groups are in use; takes up to six periods. Where `is_interrupted`
    /// ends it, a period may be too long: it is to be set anew. A failure is tried again by the next look.
    pub(super) fn look(
        &mut self,
        groups: &mut [QuotaGroup],
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.next = Some(time::now() + self.pause);
        let periods = groups.iter().map(QuotaGroup::periods).collect::<Result<Vec<_>>>()?;
        let before = std::mem::replace(&mut self.before, periods);
        let period = groups.first().map_or(0, |group| group.asked().1) as Nanos * 1_000;
        self.pause = (self.pause * 2).min(LATEST.max(SOON * period));
        if before.iter().zip(&self.before).any(|(before, now)| before == now) {
            return Ok(());
        }
        ahead_of_tasks(|| self.align(groups, period, is_interrupted))
    }

    fn align(
        &mut self,
        groups: &mut [QuotaGroup],
        period: Nanos,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let Some(begins) = observe(groups, period, is_interrupted)? else { return Ok(()) };
        // The others come to begin with the first.
        self.begin = begins.first().copied();
        let delays = delays(&begins, period);
        if delays.iter().all(|delay| *delay == 0) {
            self.next = None;
            return Ok(());
        }
        delay(groups, &delays, period, is_interrupted)?;
        self.next = Some(time::now() + self.pause);
        Ok(())
    }
}

/// With real-time priority, if allowed: between busy tasks, this thread would see a period up to a tick after it has begun.
fn ahead_of_tasks<T>(look: impl FnOnce() -> T) -> T {
    let is_ahead = sched::set_fifo(PRIORITY).is_ok();
    let result = look();
    if is_ahead {
        // Who has no more than a limit that allows the priority may not give it back, and stays ahead.
        let _ = sched::set_normal();
    }
    result
}

/// When the next period of each group began; `None` where one has nothing to run, or when interrupted.
fn observe(
    groups: &[QuotaGroup],
    period: Nanos,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Option<Vec<Nanos>>> {
    let mut begins = vec![None; groups.len()];
    let mut before = groups.iter().map(QuotaGroup::periods).collect::<Result<Vec<_>>>()?;
    let deadline = time::now() + (period as f64 * PATIENCE) as Nanos;
    let mut last = time::now();
    while begins.iter().any(Option::is_none) {
        if last > deadline || is_interrupted() {
            return Ok(None);
        }
        time::sleep(step(period));
        for ((group, before), begin) in groups.iter().zip(&mut before).zip(&mut begins) {
            let periods = group.periods()?;
            if begin.is_none() && periods != *before {
                let now = time::now();
                // Else the next one is waited for.
                *begin = (now - last <= LATE).then(|| last.midpoint(now));
                *before = periods;
            }
        }
        last = time::now();
    }
    Ok(begins.into_iter().collect())
}

fn step(period: Nanos) -> Duration {
    time::span((period as f64 * STEP) as Nanos).max(STEP_MIN)
}

/// By how much each group's period has to begin later, so that all begin together; zero for those that are close enough.
fn delays(begins: &[Nanos], period: Nanos) -> Vec<Nanos> {
    let Some(&first) = begins.first() else { return Vec::new() };
    let close = (period as f64 * CLOSE) as Nanos;
    let delay = |begin: &Nanos| {
        let delay = (first - begin).rem_euclid(period);
        if delay <= close || period - delay <= close { 0 } else { delay }
    };
    begins.iter().map(delay).collect()
}

/// Makes one period of each group longer, at the same share: each is written after a period has begun, and back after
/// the next.
fn delay(
    groups: &mut [QuotaGroup],
    delays: &[Nanos],
    period: Nanos,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<()> {
    let mut steps: Vec<_> = delays.iter().map(|delay| u8::from(*delay != 0) * 2).collect();
    let mut seen = groups.iter().map(QuotaGroup::periods).collect::<Result<Vec<_>>>()?;
    let deadline = time::now() + 4 * period;
    while steps.iter().any(|left| *left > 0) && !is_interrupted() {
        // One whose tasks have gone to sleep in the middle is written back all the same.
        let is_late = time::now() > deadline;
        for (((group, delay), left), seen) in
            groups.iter_mut().zip(delays).zip(&mut steps).zip(&mut seen).filter(|((_, left), _)| **left > 0)
        {
            let periods = group.periods()?;
            if periods == *seen && !is_late {
                continue;
            }
            *seen = periods;
            if *left == 2 && !is_late {
                group.lengthen((*delay / 1_000) as u64)?;
                *left = 1;
            } else {
                group.renew()?;
                *left = 0;
            }
        }
        time::sleep(step(period));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_delayed_until_it_begins_with_the_first() {
        const PERIOD: Nanos = 20_000_000;
        assert_eq!(delays(&[100, 100 + 3 * PERIOD], PERIOD), [0, 0]);
        assert_eq!(delays(&[10_000_000, 4_000_000, 16_000_000], PERIOD), [0, 6_000_000, 14_000_000]);
        // A late look is no reason, on either side.
        assert_eq!(delays(&[0, 150_000, PERIOD - 150_000], PERIOD), [0, 0, 0]);
        assert_eq!(delays(&[], PERIOD), [0; 0]);
    }
}
