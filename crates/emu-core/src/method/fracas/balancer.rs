//! Spreads a zone's threads over the groups of its CPUs, at little cost.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::balance::{self, Place, Runnable};
use super::bindings::Bindings;
use super::births::Births;
use super::mark::Mark;
use super::per_cpu_groups::CpuGroups;
use super::quota_group::QuotaGroup;
use crate::control_file;
use crate::cpu_list::CpuList;
use crate::error::Result;
use crate::sys::Pid;
use crate::sys::time::{self, Nanos};

/// The shortest and the longest time between two looks at the groups.
const SOON: Nanos = 20_000_000;
const LATE: Nanos = 100_000_000;

/// Threads that have gone to sleep and woken up elsewhere are looked for this often.
const CENSUS_EVERY: Nanos = 1_000_000_000;

/// A look is followed by a pause of this many times the CPU time that it took: with births all the time, looks take 2 % of a
/// CPU. With 100 times, short processes at 25 % were 8 points slower.
const PAUSE: Nanos = 25;

/// How long no group has been crowded before groups are let loose on all CPUs again.
const CALM: Nanos = 1_000_000_000;

/// How long after a CPU of the zone has come back it cannot be told yet which threads the program has bound: the kernel
/// gives them the CPU back after a while. Nor how long before its loss was noticed.
const UNSURE: Nanos = 1_000_000_000;

/// The longest time for which it is trusted that threads are bound, where that leaves a CPU idle.
const TRUST: Nanos = 60_000_000_000;

/// A group that used this part of its quota has its demand full, whether its throttling showed or not: with a
/// quota close to the period, the next period can begin before the tick shows that the quota is used up.
const BUSY: f64 = 0.9;

#[derive(Debug)]
pub(crate) struct Balancer {
    groups: CpuGroups,
    /// Whether the threads were spread for the speeds in force; else each look tries it again.
    has_begun: bool,
    online_file: PathBuf,
    usable: CpuList,
    /// Those that are online, and yet cannot be used.
    missing: CpuList,
    looked: Nanos,
    bindings: Bindings,
    /// From when on bindings can be seen as they are: never, while a CPU of the zone is offline.
    sure_from: Nanos,
    /// When bindings are read anew. Set while threads share a group beside an idle CPU only because they are thought to be
    /// bound there; that may be out of date, or from before the kernel gave them all CPUs back.
    doubt: Option<Nanos>,
    /// How long it is trusted until the look after that.
    trust: Nanos,
    /// What the last look saw.
    before: Vec<Mark>,
    busy: Vec<bool>,
    lists: Vec<Vec<Pid>>,
    births: Births,
    /// Whether the last look found work for every CPU, while threads came and went.
    had_work: bool,
    stuck: usize,
    calm_since: Option<Nanos>,
    next: Nanos,
    pause: Nanos,
    /// Whether a group has come into use since the last look, and how early the next may be: keeps its cost low.
    has_woken: bool,
    rested: Nanos,
    /// When the next census may be: keeps its cost low.
    earliest: Nanos,
    /// When a group with time to spare is a reason for one, and the pause after it.
    retry: Nanos,
    backoff: Nanos,
    /// When there is one in any case.
    routine: Nanos,
}

impl Balancer {
    pub(crate) fn new(mut groups: CpuGroups, online_file: PathBuf, online: &CpuList) -> Self {
        let usable = groups.usable(online);
        Self {
            sure_from: if groups.is_whole(&usable) { 0 } else { Nanos::MAX },
            births: Births::new(groups.procfs()),
            groups,
            has_begun: false,
            online_file,
            usable,
            missing: CpuList::default(),
            looked: 0,
            bindings: Bindings::default(),
            doubt: None,
            trust: CENSUS_EVERY,
            before: Vec::new(),
            busy: Vec::new(),
            lists: Vec::new(),
            had_work: false,
            stuck: 0,
            calm_since: None,
            next: 0,
            pause: SOON,
            has_woken: false,
            rested: 0,
            earliest: 0,
            retry: 0,
            backoff: SOON,
            routine: 0,
        }
    }

    /// Before the first task runs, and with new speeds.
    pub(crate) fn begin(&mut self, governed: &mut [QuotaGroup]) -> Result<()> {
        self.has_begun = false;
        self.before = governed.iter().map(QuotaGroup::read).collect::<Result<_>>()?;
        self.busy = vec![false; governed.len()];
        self.had_work = false;
        self.births.stop();
        self.census(governed, time::now())?;
        // A program that begins starts others.
        self.births.expect(time::now());
        self.has_begun = true;
        Ok(())
    }

    pub(crate) fn next(&self) -> Nanos {
        self.births.next().map_or(self.next, |births| births.min(self.next))
    }

    pub(super) fn cpus(&self) -> &CpuList {
        self.groups.cpus()
    }

    pub(crate) fn missing(&self) -> &CpuList {
        &self.missing
    }

    pub(crate) fn stuck(&self) -> usize {
        self.stuck
    }

    /// Whether threads that the program has bound may lose that.
    pub(super) fn may_forget(&self) -> bool {
        self.groups.forget_bindings() && !self.bindings.is_empty()
    }

    pub(crate) fn look(&mut self, governed: &mut [QuotaGroup]) -> Result<()> {
        let begin = time::thread_cpu();
        let is_due = time::now() >= self.next;
        let result = if is_due { self.look_now(governed) } else { self.spread_newborn(governed) };
        let now = time::now();
        let cost = time::thread_cpu() - begin;
        self.rested = now + PAUSE * cost;
        if is_due {
            self.next = self.rested.max(now + self.pause);
        }
        self.births.rest(now, self.rested.max(self.earliest));
        if result.is_err() {
            // The next look tells whether it still fails, and one at births alone would not.
            self.births.stop();
        }
        result
    }

    fn spread_newborn(&mut self, governed: &mut [QuotaGroup]) -> Result<()> {
        let now = time::now();
        if self.births.look() && self.have_threads_changed(now)? {
            self.census(governed, now)
        } else {
            Ok(())
        }
    }

    fn have_threads_changed(&mut self, now: Nanos) -> Result<bool> {
        let known = std::mem::take(&mut self.lists);
        self.groups.threads(&mut self.lists)?;
        let have_changed = known != self.lists;
        if have_changed {
            self.births.expect(now);
        }
        Ok(have_changed)
    }

    /// Has a look as soon as may be, as a group has come into use: a thread that was born in it shares its quota until it is
    /// moved.
    pub(super) fn look_at_births(&mut self) {
        self.has_woken = true;
        self.next = self.next.min(self.rested);
    }

    fn look_now(&mut self, governed: &mut [QuotaGroup]) -> Result<()> {
        if !self.has_begun {
            return self.begin(governed);
        }
        let now = time::now();
        let busy = self.busy(governed)?;
        let (cpus_changed, renewed) = self.look_at_cpus(now);
        let any_busy = std::mem::take(&mut self.has_woken) || busy.contains(&true);
        let mut changed = busy != self.busy || cpus_changed;
        self.busy = busy;
        if any_busy {
            changed |= self.have_threads_changed(now)?;
        }
        self.had_work &= any_busy;
        let soon = shortest_pause(governed);
        if changed {
            (self.pause, self.backoff, self.retry) = (soon, soon, now);
        } else if !self.births.are_expected(now) {
            self.pause = (self.pause * 2).clamp(soon, LATE.max(soon));
        }
        let spare = self.busy.contains(&false);
        let reason = cpus_changed
            || any_busy && (changed || spare && now >= self.retry)
            || (any_busy || self.groups.is_pinned()) && now >= self.routine;
        let looked = if reason && now >= self.earliest { self.census(governed, now) } else { Ok(()) };
        // Threads are spread all the same, over the CPUs that there are.
        renewed.and(looked)
    }

    fn busy(&mut self, governed: &[QuotaGroup]) -> Result<Vec<bool>> {
        let marks = governed.iter().map(QuotaGroup::read).collect::<Result<Vec<_>>>()?;
        let before = std::mem::replace(&mut self.before, marks);
        Ok(self
            .before
            .iter()
            .zip(before)
            .zip(governed)
            .map(|((now, before), group)| {
                let used = now.usage.zip(before.usage).map_or(0, |(now, before)| now - before);
                let quota = group.duty() * (now.at - before.at) as f64;
                now.throttling.throttled > before.throttling.throttled || used as f64 >= BUSY * quota
            })
            .collect())
    }

    /// Returns whether the usable CPUs have changed, and whether the groups could take them up.
    fn look_at_cpus(&mut self, now: Nanos) -> (bool, Result<()>) {
        let before = std::mem::replace(&mut self.looked, now);
        let Some(online) = control_file::probe_cpus(&self.online_file) else { return (false, Ok(())) };
        let usable = self.groups.usable(&online);
        let back = !usable.difference(&self.usable).is_empty();
        let changed = usable != self.usable;
        self.missing = self.groups.cpus().intersection(&online).difference(&usable);
        self.usable = usable;
        if changed {
            self.bindings.forget_since(before - UNSURE);
            self.sure_from = if self.groups.is_whole(&self.usable) { now + UNSURE } else { Nanos::MAX };
        }
        (changed, self.groups.renew(back, &self.usable))
    }

    fn census(&mut self, governed: &mut [QuotaGroup], now: Nanos) -> Result<()> {
        let begin = time::thread_cpu();
        // What was born in the zone's own group in the middle of a move.
        self.stuck = self.groups.settle()?;
        self.groups.threads(&mut self.lists)?;
        self.groups.align(&self.lists)?;
        let places: Vec<_> = self
            .groups
            .groups()
            .iter()
            .zip(governed.iter())
            .map(|(group, governed)| Place {
                cpu: group.cpu,
                share: if self.usable.contains(group.cpu) { governed.asked().0 } else { 0.0 },
            })
            .collect();
        let closed = |place: usize| places.get(place).is_some_and(|place: &Place| place.share <= 0.0);
        let was_pinned = self.groups.is_pinned();
        if now >= self.sure_from {
            if self.doubt.is_some_and(|doubt| now >= doubt) {
                self.groups.unpin_for_a_look(&self.usable)?;
            }
            self.bindings.learn(&self.groups, &self.lists, now);
        }
        let mut runnable = self.bindings.census(&self.groups, &self.lists, &self.usable, closed);
        let has_moved = self.spread(&places, &mut runnable, now);
        let counts = balance::counts(&places, &runnable);
        let crowded = counts.iter().any(|&count| count > 1);
        let idle = places.iter().zip(&counts).any(|(place, &count)| place.share > 0.0 && count == 0);
        let has_work = !idle && self.births.are_expected(now);
        let was_work = std::mem::replace(&mut self.had_work, has_work) && has_work;
        for group in governed.iter_mut() {
            group.book_unused(was_work);
        }
        let is_in_doubt = crowded && idle && runnable.iter().any(|thread| thread.bound.is_some());
        if !is_in_doubt {
            (self.doubt, self.trust) = (None, CENSUS_EVERY);
        } else if self.doubt.is_none_or(|doubt| now >= doubt) {
            (self.doubt, self.trust) = (Some(now + self.trust), (2 * self.trust).min(TRUST));
        }
        let shares = || governed.iter().map(|group| group.asked().0);
        let unequal = shares().fold(0.0, f64::max) - shares().fold(f64::INFINITY, f64::min) > 1e-9;
        self.bind(crowded, unequal, now)?;
        if self.groups.is_pinned() && !was_pinned {
            // Threads can have bound themselves since the look at them.
            self.doubt = Some(now);
        }
        if has_moved {
            self.groups.threads(&mut self.lists)?;
            self.backoff = shortest_pause(governed);
        }
        self.retry = now + self.backoff;
        self.backoff = (self.backoff * 2).min(CENSUS_EVERY);
        self.routine = now + CENSUS_EVERY;
        self.earliest = time::now() + PAUSE * (time::thread_cpu() - begin);
        Ok(())
    }

    /// Moves threads to where they get most; returns whether any was. Those that turn out to be bound elsewhere stay, and the
    /// others are planned anew.
    fn spread(&mut self, places: &[Place], runnable: &mut [Runnable], now: Nanos) -> bool {
        let asks = now >= self.sure_from && self.groups.hide_bindings();
        let (mut asked, mut has_moved) = (BTreeSet::new(), false);
        loop {
            let before: Vec<_> = runnable.iter().map(|thread| thread.place).collect();
            balance::plan(places, runnable);
            let mut is_over = true;
            for (thread, from) in runnable.iter_mut().zip(before) {
                if thread.place == from {
                    continue;
                }
                if asks && asked.insert(thread.tid) {
                    thread.bound = self.bindings.ask(&self.groups, thread.tid, &self.usable, now);
                }
                if !places.get(thread.place).is_some_and(|place| thread.may_be_on(place.cpu)) {
                    (thread.place, is_over) = (from, false);
                }
                match self.groups.move_to(thread.tid, thread.place) {
                    Ok(()) => has_moved |= thread.place != from,
                    Err(_) => self.stuck += 1,
                }
            }
            if is_over {
                return has_moved;
            }
        }
    }

    fn bind(&mut self, crowded: bool, unequal: bool, now: Nanos) -> Result<()> {
        if crowded || unequal {
            self.calm_since = None;
            return self.groups.pin(true, &self.usable);
        }
        let calm = now - *self.calm_since.get_or_insert(now);
        if calm >= CALM { self.groups.pin(false, &self.usable) } else { Ok(()) }
    }
}

/// Within a period, a group that has used up its quota looks like one that is busy, and one that has not like one
/// with time to spare.
fn shortest_pause(governed: &[QuotaGroup]) -> Nanos {
    let period_us = governed.first().map_or(0, |group| group.asked().1);
    SOON.max(Nanos::try_from(period_us).unwrap_or(0) * 1_000)
}
