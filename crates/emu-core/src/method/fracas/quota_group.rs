//! A group kept at a share of the CPUs by its quota.

use std::time::Duration;

use super::arrears::Arrears;
use super::idle_quota::{IdleQuota, QuotaTurns};
use super::mark::Mark;
use super::trim::{Due, Trim, Window};
use super::turn_end::Turn;
use crate::ablation::{Correction, is_off};
use crate::cgroup::{Bandwidth, Limit, PERIOD_MIN, QUOTA_MIN_US, Quota};
use crate::duty::stop_cost::StopCost;
use crate::error::Result;
use crate::sys::time::{self, Nanos};

/// The most that a quota makes up for, in nanoseconds per stall. No machine has lost as much, but one that is emulated
/// and busy has measured it: what is not sure must not make programs faster.
const STALL_COST_MOST: Nanos = 150_000;

#[derive(Debug)]
pub(crate) struct QuotaGroup {
    bandwidth: Bandwidth,
    /// How many CPUs the group is for: a quota of that many is none.
    size: f64,
    /// The most that v1's kernel accepts, because a group above has no more; in CPUs.
    ceiling: Option<f64>,
    /// The least that v1's kernel accepts, because a group of the program's own below has it; known once less was refused.
    floor: Option<f64>,
    asked: f64,
    period_us: u64,
    trim: Trim,
    rest: IdleQuota,
    arrears: Arrears,
    /// What of them the quota in force has on top, in microseconds.
    extra_us: u64,
    tick: Duration,
    /// Whether turns end when the quota is used up, and not at the next tick.
    has_turn_ends: bool,
    /// Where it is known, the quota is corrected by it and by the trim. Else the trim only keeps account.
    stall_cost: Option<StopCost>,
    /// Where the last window ended.
    mark: Option<Mark>,
    written: Option<Limit>,
    /// The limit in force instead, which somebody else has written.
    foreign: Option<Limit>,
    /// The limit, in CPUs, that the owner of a group that is not ours has given it: it is not raised above that.
    own: Option<f64>,
}

impl QuotaGroup {
    pub(crate) fn new(
        bandwidth: Bandwidth,
        size: usize,
        ceiling: Option<f64>,
        stall_cost: Option<StopCost>,
    ) -> Self {
        let size = size as f64;
        // What cannot be read will be told when it cannot be written.
        let own =
            if bandwidth.is_theirs() { bandwidth.limit().ok().flatten().and_then(Limit::cpus) } else { None };
        Self {
            bandwidth,
            size,
            ceiling,
            floor: None,
            asked: size,
            period_us: 0,
            trim: Trim::default(),
            rest: IdleQuota::default(),
            arrears: Arrears::default(),
            extra_us: 0,
            tick: time::tick(),
            has_turn_ends: false,
            stall_cost,
            mark: None,
            written: None,
            foreign: None,
            own,
        }
    }

    /// The limit that gives `asked` CPUs, as corrected so far.
    fn limit(&self, asked: f64, period_us: u64) -> Limit {
        let (most, own) = (self.ceiling.unwrap_or(f64::INFINITY), self.own.unwrap_or(f64::INFINITY));
        let trim = if is_off(Correction::Trim) { 1.0 } else { self.trim.factor() };
        let wanted = self.charged(asked, period_us) * trim;
        let quota = if asked >= own {
            Quota::Micros(((own.min(most) * period_us as f64) as u64).max(QUOTA_MIN_US))
        } else if asked >= self.size || asked > most && most >= self.size {
            Quota::Max
        } else if wanted > most {
            // Rounded down, as the kernel compares exactly.
            Quota::Micros((most.min(own) * period_us as f64) as u64)
        } else {
            Quota::of(wanted.min(own), period_us)
        };
        Limit { quota, period_us }
    }

    /// What the kernel is to charge the group with for `asked` CPUs to be left to its tasks. Without the cost of stalls, 10 %
    /// of 20 ms was 0.9 % slower in a quiet guest.
    fn charged(&self, asked: f64, period_us: u64) -> f64 {
        let Some(cost) = self.stall_cost.filter(|_| asked < self.size && !is_off(Correction::StallCost))
        else {
            return asked;
        };
        let period = period_us as f64 * 1e3;
        let run = asked * period;
        let stalls =
            if self.has_turn_ends { 1.0 } else { stalls_per_period(run, time::nanos(self.tick) as f64) };
        let lost = stalls * cost.of_stop(run / stalls).min(STALL_COST_MOST) as f64 / period;
        // Where hardly any time is left out of a period, the kernel does not do so in each.
        asked + lost.min((self.size - asked) / 2.0)
    }

    /// Where it fails, what was asked for before still counts.
    pub(crate) fn ask(&mut self, cpus: f64, period_us: u64) -> Result<()> {
        self.set(cpus, period_us, self.rest.is_resting())
    }

    /// As [`ask`](Self::ask) of a group in which nothing runs yet.
    pub(crate) fn begin(&mut self, cpus: f64, period_us: u64) -> Result<()> {
        self.set(cpus, period_us, true)
    }

    fn set(&mut self, cpus: f64, period_us: u64, is_resting: bool) -> Result<()> {
        let turns = self.turns(cpus, period_us);
        let is_resting = is_resting && turns.is_some_and(|turns| turns.resting_share().is_some());
        self.write(cpus, self.limit_now(cpus, period_us, is_resting))?;
        (self.asked, self.period_us) = (cpus, period_us);
        self.trim.restart();
        (self.arrears, self.extra_us) = (Arrears::default(), 0);
        self.rest.restart(is_resting, period_us as Nanos * 1_000, time::now());
        self.mark = None;
        Ok(())
    }

    /// The limit that gives `asked` CPUs to a group in use, or less to one at rest.
    fn limit_now(&self, asked: f64, period_us: u64, is_resting: bool) -> Limit {
        let mut full = self.limit(asked, period_us);
        if let (Quota::Micros(micros), false) = (&mut full.quota, is_resting) {
            *micros += self.extra_us;
        }
        let Some(turns) = self.turns(asked, period_us).filter(|_| is_resting) else { return full };
        let (Some(share), Quota::Micros(most)) = (turns.resting_share(), full.quota) else { return full };
        let Quota::Micros(micros) = Quota::of(share, period_us) else { return full };
        Limit { quota: Quota::Micros(micros.min(most)), period_us }
    }

    /// `None` where there are no turns, or where they are not ours to shift.
    fn turns(&self, asked: f64, period_us: u64) -> Option<QuotaTurns> {
        let is_ours = !self.bandwidth.is_theirs() && self.foreign.is_none();
        let can_tell = self.bandwidth.is_accounted();
        (is_ours
            && can_tell
            && !is_off(Correction::IdleQuota)
            && self.stall_cost.is_some()
            && self.size <= 1.0)
            .then(|| QuotaTurns::new(asked, period_us, self.tick))
    }

    /// Writes a limit for a group that is to have `asked` CPUs, or the least above it that the kernel accepts.
    fn write(&mut self, asked: f64, limit: Limit) -> Result<()> {
        let mut wanted = self.above_floor(asked, limit);
        if let Err(error) = self.bandwidth.set_limit(wanted) {
            self.floor = self.bandwidth.floor();
            let refused = std::mem::replace(&mut wanted, self.above_floor(asked, limit));
            if wanted == refused {
                return Err(error);
            }
            self.bandwidth.set_limit(wanted)?;
        }
        (self.written, self.foreign) = (Some(wanted), None);
        Ok(())
    }

    /// What is less than was asked for is a correction, and has to do without what the kernel refuses.
    fn above_floor(&self, asked: f64, mut limit: Limit) -> Limit {
        let floor = self.floor.filter(|floor| *floor <= asked);
        if let (Some(floor), Quota::Micros(micros)) = (floor, &mut limit.quota) {
            *micros = (*micros).max((floor * limit.period_us as f64).ceil() as u64);
        }
        limit
    }

    /// Tells of a limit that somebody else has written, which is left until something else is asked for. A group that
    /// is not ours has it from its owner: it bounds what is asked for.
    pub(crate) fn look(&mut self) -> Result<Option<String>> {
        let Some(written) = self.written else { return Ok(None) };
        self.floor = self.floor.and_then(|_| self.bandwidth.floor());
        // A group that has gone has no tasks.
        let foreign = self.bandwidth.limit()?.filter(|now| *now != written);
        if foreign != self.foreign {
            // A mean over both would be neither.
            self.trim.restart();
            (self.foreign, self.mark) = (foreign, None);
        }
        let Some(foreign) = foreign else { return Ok(None) };
        if self.bandwidth.is_theirs() {
            self.own = foreign.cpus();
        }
        let tell =
            |limit: Limit| limit.cpus().map_or("no limit".to_owned(), |cpus| format!("{cpus:.4} CPUs"));
        // To a group at rest less was written, for now.
        let ours = if self.rest.is_resting() { self.limit(self.asked, self.period_us) } else { written };
        let (file, now) = (self.bandwidth.limit_file(), tell(foreign));
        let file = file.display();
        Ok(Some(if foreign == ours {
            format!("somebody else has written {file}: {now} are in force while its tasks sleep, too")
        } else {
            format!("somebody else has written {file}: {now} instead of {} are in force", tell(ours))
        }))
    }

    pub(crate) fn shortfall(&self) -> Option<String> {
        let own = self.own.filter(|own| *own < self.asked)?;
        Some(format!(
            "{} was {own:.4} CPUs, which is less than the {:.4} asked for: it is not raised",
            self.bandwidth.limit_file().display(),
            self.asked
        ))
    }

    fn in_force(&self) -> Limit {
        self.foreign.unwrap_or_else(|| self.limit(self.asked, self.period_us))
    }

    /// CPUs, and the period in microseconds.
    pub(crate) fn asked(&self) -> (f64, u64) {
        (self.asked, self.period_us)
    }

    /// Whether this is asked for, with no period that is made longer.
    pub(crate) fn is_asked(&self, wanted: (f64, u64)) -> bool {
        wanted == self.asked() && self.written.is_none_or(|written| written.period_us == self.period_us)
    }

    /// The part of each period in which the group may run, per CPU.
    pub(crate) fn duty(&self) -> f64 {
        self.in_force().cpus().map_or(1.0, |cpus| (cpus / self.size).min(1.0))
    }

    /// What the tasks got per CPU while their demand was full, or what the quota gives where that is not known.
    pub(crate) fn effective(&self) -> f64 {
        let charged = self.trim.delivered().map_or_else(|| self.duty(), |cpus| cpus / self.size);
        // A limit of somebody else's is told as it is.
        let is_bounded = [self.ceiling, self.own].into_iter().flatten().any(|most| self.asked >= most);
        let is_ours = self.foreign.is_none() && self.period_us > 0 && !is_bounded;
        if is_ours { charged * self.asked / self.charged(self.asked, self.period_us) } else { charged }
    }

    /// The longest time for which one busy CPU of the group is throttled: a turn ends at the tick after its quota is
    /// used up, and the next ones pay for what it overran.
    pub(crate) fn longest_stall(&self) -> Duration {
        let turns = self.turns(self.asked, self.period_us);
        let at_rest = turns.map_or(Duration::ZERO, |turns| turns.longest_stall());
        longest_stall(self.duty(), self.in_force().period_us, self.tick).max(at_rest)
    }

    pub(crate) fn read(&self) -> Result<Mark> {
        Ok(Mark { at: time::now(), usage: self.bandwidth.usage(), throttling: self.bandwidth.throttled()? })
    }

    /// Ends a window and begins the next; true when the quota should be written anew, by [`renew`](Self::renew).
    pub(crate) fn end_window(&mut self) -> Result<bool> {
        if self.foreign.is_some() {
            return Ok(false);
        }
        let now = self.read()?;
        let Some(before) = self.mark.replace(now) else { return Ok(false) };
        let (Some(usage), Some(used)) = (now.usage, before.usage) else { return Ok(false) };
        let window = Window {
            elapsed: now.at - before.at,
            usage: usage - used,
            periods: now.throttling.periods.saturating_sub(before.throttling.periods),
            throttled: now.throttling.throttled.saturating_sub(before.throttling.throttled),
            stalled: now.throttling.stalled - before.throttling.stalled,
        };
        let before = self.limit(self.asked, self.period_us);
        let changed = self.trim.observe(&window, &self.due());
        Ok(changed && self.stall_cost.is_some() && before != self.limit(self.asked, self.period_us))
    }

    /// What a turn overruns in the mean, which a write forgives: half a tick where it ends at one. Where turns are ended, it is no
    /// more than the time between a tick and the end, and half of that in the mean.
    fn overrun(&self) -> Nanos {
        let tick = time::nanos(self.tick);
        if self.has_turn_ends { tick / 4 } else { tick / 2 }
    }

    /// Has the next period pay what is owed. That quota is written and written back, and each write forgives an overrun.
    fn pay(&mut self, turns: &QuotaTurns, had_rested: bool) {
        let was_paid = std::mem::take(&mut self.extra_us) > 0;
        let rest = (turns.period as f64 * (1.0 - self.asked)) as Nanos;
        let most = if self.rest.is_resting() { 0 } else { rest };
        // The full quota of one that has rested is written anyway.
        let forgiven = if had_rested { self.overrun() } else { 2 * self.overrun() };
        self.extra_us = (self.arrears.pay(most, forgiven) / 1_000) as u64;
        if was_paid || self.extra_us > 0 {
            self.rest.put_off(self.rest.next().min(time::now() + turns.period));
        }
    }

    fn due(&self) -> Due {
        let cpus = self.charged(self.asked, self.period_us);
        Due { cpus, period: self.period_us as Nanos * 1_000, tick: time::nanos(self.tick) }
    }

    pub(crate) fn renew(&mut self) -> Result<()> {
        self.write(self.asked, self.limit_now(self.asked, self.period_us, self.rest.is_resting()))
    }

    /// Tells which turns are to be ended: those that this quota ends, in each period since one that began at `begin`. The
    /// group counts on it from now on.
    pub(super) fn end_turns(&mut self, begin: Option<Nanos>) -> Option<Turn> {
        let turn = begin.and_then(|begin| self.turn_from(begin));
        self.has_turn_ends = turn.is_some();
        turn
    }

    fn turn_from(&self, begin: Nanos) -> Option<Turn> {
        let Limit { quota: Quota::Micros(quota_us), period_us } = self.written? else { return None };
        let [quota, period] = [quota_us, period_us].map(|micros| micros as Nanos * 1_000);
        (self.foreign.is_none() && quota < period).then_some(Turn { begin, period, quota })
    }

    pub(super) fn periods(&self) -> Result<u64> {
        Ok(self.bandwidth.throttled()?.periods)
    }

    /// Gives the group the kernel's shortest period, until something is asked for.
    pub(super) fn hasten(&mut self) -> Result<()> {
        let period_us = PERIOD_MIN.as_micros() as u64;
        self.write(self.asked, Limit { quota: Quota::Micros(period_us), period_us })
    }

    /// Makes the next period longer by so much, until [`renew`](Self::renew) in it. The kernel takes up the period
    /// when the one under way ends, the quota at once: it counts in both periods, so that each has half of what is
    /// added. Both writes also forgive an overrun.
    pub(super) fn lengthen(&mut self, by_us: u64) -> Result<()> {
        let mut limit = self.limit_now(self.asked, self.period_us, self.rest.is_resting());
        if let Quota::Micros(micros) = &mut limit.quota {
            let added = *micros as f64 * by_us as f64 / limit.period_us.max(1) as f64 / 2.0;
            let forgiven = self.overrun() as f64 / 1e3;
            *micros = ((*micros as f64 + added - forgiven) as u64).max(QUOTA_MIN_US);
        }
        limit.period_us += by_us;
        self.write(self.asked, limit)
    }

    pub(crate) fn settle_at(&self) -> Option<Nanos> {
        let turns = self.turns(self.asked, self.period_us)?;
        turns.resting_share().map(|_| self.rest.next())
    }

    /// Whether its tasks slept until about the last [`settle`](Self::settle).
    pub(super) fn has_woken(&self) -> bool {
        self.rest.has_woken()
    }

    /// Takes up what the group has left unused since the last look at the zone's threads, where there `was_work` for every CPU.
    pub(super) fn book_unused(&mut self, was_work: bool) {
        let Due { cpus, period, .. } = self.due();
        self.arrears.book(was_work, cpus, period);
    }

    /// To be called once in each period; true when the quota is to be written anew at once, by
    /// [`renew`](Self::renew).
    pub(crate) fn settle(&mut self) -> Result<bool> {
        // What fails is tried again, but not at once.
        self.rest.put_off(time::now() + self.period_us as Nanos * 1_000);
        let now = self.read()?;
        if let Some(turns) = self.turns(self.asked, self.period_us) {
            let had_rested = self.rest.is_resting();
            self.arrears.settle(&now, self.due().cpus, had_rested);
            self.rest.observe(&now, &turns);
            self.pay(&turns, had_rested);
        }
        let wanted = self.limit_now(self.asked, self.period_us, self.rest.is_resting());
        Ok(self.written != Some(self.above_floor(self.asked, wanted)))
    }
}

/// How often tasks that use up a quota are stalled by it in each period, at most once; both times in the same unit.
///
/// A turn ends at the first tick at which the quota of `run` is used up, and what it overran is taken from the next
/// periods. From a quota of a tick on, each period has a turn. Below, it depends on where the ticks are in a period:
/// this is the mean over all, within 0.1. With one stall in each, 5 % of 20 ms was 1.0 % faster in a quiet guest.
fn stalls_per_period(run: f64, tick: f64) -> f64 {
    if is_off(Correction::StallFrequency) {
        return 1.0;
    }
    (run / tick).sqrt().clamp(0.01, 1.0)
}

/// The longest time for which a task is throttled, at a `share` of one CPU.
pub(crate) fn longest_stall(share: f64, period_us: u64, tick: Duration) -> Duration {
    let turn = Duration::from_micros(period_us).mul_f64(share.clamp(0.0, 1.0)) + tick;
    if share <= 0.0 || share >= 1.0 { Duration::ZERO } else { turn.mul_f64((1.0 - share) / share) }
}

/// Calls `write` for each group just after its period has begun: a write refills the quota, and there it is full
/// anyway. A group without periods is written after one period. Those that still wait when `is_interrupted` are left out. Where
/// one fails, the others are written all the same.
pub(crate) fn at_period_start<T>(
    groups: &mut [(&mut QuotaGroup, T)],
    is_interrupted: &dyn Fn() -> bool,
    mut write: impl FnMut(&mut QuotaGroup, &T) -> Result<()>,
) -> Result<()> {
    let longest = groups.iter().map(|(group, _)| group.period_us).max().unwrap_or(0);
    let deadline = time::now() + longest as Nanos * 1_000;
    // A late look gives at most this part of a quota on top, once.
    let step = Duration::from_micros((longest / 100).clamp(100, 1_000));
    let mut waiting = Vec::with_capacity(groups.len());
    for (group, argument) in groups {
        waiting.push((group.bandwidth.throttled()?.periods, group, argument));
    }
    let mut result = Ok(());
    while !waiting.is_empty() && !is_interrupted() {
        let late = time::now() >= deadline;
        let mut still = Vec::with_capacity(waiting.len());
        for (periods, group, argument) in waiting {
            if late || group.bandwidth.throttled()?.periods != periods {
                result = result.and(write(group, argument));
            } else {
                still.push((periods, group, argument));
            }
        }
        waiting = still;
        if !waiting.is_empty() {
            time::sleep(step);
        }
    }
    result
}

#[cfg(test)]
mod tests;
