//! The loop of a thread that burns a CPU for part of each period, in a closed loop on what it really took.
//!
//! Five things are corrected while it runs:
//! - its own occupancy: wake-ups that come late, burns that end late or are taken from it (the [`Ledger`]);
//! - what emu's other threads take from the tasks, where they have no other CPU;
//! - what each wake-up costs the tasks: the part that the burner sees in its own CPU time is booked like a burn, the
//!   part that it cannot see was measured ([`WakeCost`]) and is scaled with what is usual of the visible one;
//! - what tasks outside the zone have of the CPU ([`BackgroundLoad`]): it burns of what they leave;
//! - the core clock, for targets in hertz: the share follows what the burner measures ([`ClockMeter`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::background_load::BackgroundLoad;
use super::clock_meter::{self, ClockMeter};
use super::wake_cost::WakeCost;
use crate::ablation::{Correction, is_off};
use crate::cpu_list::CpuId;
use crate::duty::idle_pusher::{IdlePusher, SEARCH_FOR_AFTER_BURN};
use crate::duty::{Command, Counters, Grid, Ledger, Wait};
use crate::error::{Error, Result};
use crate::speed::Target;
use crate::sys::time::{self, Nanos};
use crate::sys::timer_prearm::TimerPrearm;
use crate::sys::{affinity, sched};

/// Above all normal tasks, below the kernel's interrupt threads (50) and far from 99, which is for the
/// watchdogs that keep the machine alive.
pub(super) const PRIORITY: i32 = 10;

/// The shortest burn worth a wake-up. At high speeds the burner sleeps through periods until this much is
/// owed, as a wake-up alone costs that order of time. Burning in each period, 99 % of 1 ms was 1.2 % slower in a quiet guest.
const MIN_BURN: Nanos = 20_000;

/// Tasks get at least this much of a period that is not skipped, whatever is owed.
const MIN_RUN: Nanos = 10_000;

/// A gap in the burn loop above this is looked into: it may be time in which tasks ran. Counting all gaps as burned, 10 %
/// of 1 ms was 0.8 % slower in a quiet guest.
const GAP: Nanos = 50_000;

/// So many periods are slept through at most while the clock that a target in hertz goes by is not sure.
const SKIPPED_UNSURE: i64 = 4;

/// At speeds up to this a CPU of several looks for tasks that wait for another one when its burn ends.
///
/// While all CPUs burn, they have so little time for normal tasks that its differences exceed the kernel's
/// `imbalance_pct`; the periodic balancer then sometimes puts two tasks on one CPU. An idle CPU pulls one back, but not on
/// every attempt, and a burner going to sleep is one attempt per period.
const LOOKS_BELOW: f64 = 0.25;
/// But not more often than that: each time costs some microseconds.
const LOOKS_APART: Nanos = 5_000_000;
/// So much of the time that looks took is taken from tasks at most: where there are some, the first look is the last.
const LOOK_COST_MAX: Nanos = 4_000;

/// What emu itself took is made up for by this part of a period in each. All at once, two periods of 50 and 80 % in turn were
/// at 81.6 % in a quiet guest.
const PAID_AT_ONCE: Nanos = 32;
/// In so many periods at most.
const PAYMENTS: Nanos = 8;

/// Weight of a new observation of the wake-up cost.
const COST_WEIGHT: f64 = 0.02;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Settings {
    /// The periods, the same for all CPUs of the zone.
    pub(super) grid: Grid,
    pub(super) target: Target,
}

impl Settings {
    pub(super) fn new(grid: Grid, target: Target) -> Self {
        Self { grid, target }
    }
}

/// What the burner publishes beside its [`Counters`].
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) counters: Counters,
    /// Hertz; 0 before there are readings enough.
    pub(super) clock: AtomicU64,
    pub(super) on_its_cpu: AtomicBool,
    /// Nanoseconds that were due and could not be burned.
    pub(super) dropped: AtomicU64,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            clock: AtomicU64::new(0),
            on_its_cpu: AtomicBool::new(true),
            dropped: AtomicU64::new(0),
        }
    }
}

pub(super) fn take_cpu(cpu: CpuId) -> Result<()> {
    affinity::bind(cpu)
        .map_err(|e| Error::io(format!("cannot run a burner on CPU {cpu}"), e))
        .map_err(|e| e.hint_on(&[libc::EINVAL], "is the CPU online, and in the cpuset of emu?"))?;
    sched::set_fifo(PRIORITY).map_err(|e| {
        Error::io(format!("cannot give the burner of CPU {cpu} real-time priority {PRIORITY}"), e)
            .hint_on(
                &[libc::EPERM],
                "it needs CAP_SYS_NICE, no sandbox (seccomp) that forbids it and, on kernels with CONFIG_RT_GROUP_SCHED, a \
                 cgroup with real-time budget",
            )
    })
}

pub(super) struct Loop<'a> {
    cpu: CpuId,
    seen: &'a Seen,
    announcer: TimerPrearm,
    /// Where it can be told, and the place of this burner there.
    background: Option<(Arc<BackgroundLoad>, usize)>,
    ledger: Ledger,
    /// At which it was charged last.
    share: f64,
    /// The cost as measured on the quiet CPU, to scale the hidden part.
    reference: WakeCost,
    visible: f64,
    /// Thread CPU time at the end of the last burn.
    rested: Nanos,
    /// CPU time of all of emu at that moment, where it has no other CPU than this one: its other threads take theirs from the
    /// tasks. Without it, steps of 100 ms at 20 % were 3.9 % slower in a quiet guest, as a new speed costs emu some 0.8 ms.
    emu: Option<Nanos>,
    /// What of it is still to be made up for.
    unpaid: Nanos,
    clock: ClockMeter,
    pusher: Option<IdlePusher>,
    next_look: Nanos,
    /// Its CPU time when it was told to look last.
    looked: Nanos,
}

impl<'a> Loop<'a> {
    pub(super) fn new(
        cpu: CpuId,
        cost: WakeCost,
        seen: &'a Seen,
        announcer: TimerPrearm,
        background: Option<(Arc<BackgroundLoad>, usize)>,
        pusher: Option<IdlePusher>,
        has_one_cpu: bool,
    ) -> Self {
        Self {
            cpu,
            seen,
            announcer,
            background,
            ledger: Ledger::new(),
            share: 1.0,
            reference: cost,
            visible: cost.visible,
            rested: time::thread_cpu(),
            emu: has_one_cpu.then(time::process_cpu),
            unpaid: 0,
            clock: ClockMeter::default(),
            pusher,
            next_look: 0,
            looked: 0,
        }
    }

    pub(super) fn run(&mut self, wait: &Wait<Settings>) {
        let (mut command, mut generation) = wait.command();
        let mut index = None;
        while let Command::Run(settings) = command {
            let next = self.one_period(settings, index, wait, generation);
            index = Some(next);
            if wait.generation() != generation {
                (command, generation) = wait.command();
                self.seen.counters.restart();
                if let Command::Run(new) = command
                    && new.grid != settings.grid
                {
                    self.ledger.cut(settings.grid.begin(next) - new.grid.begin(0), self.share);
                    index = Some(0);
                }
            }
        }
    }

    /// Waits for the next period worth a burn, burns, and returns the index of the period after it.
    fn one_period(
        &mut self,
        settings: Settings,
        planned: Option<i64>,
        wait: &Wait<Settings>,
        generation: u32,
    ) -> i64 {
        let grid = settings.grid;
        let background = self.background.as_ref().map_or(0.0, |(background, _)| background.share());
        let share = beside(self.clock.share(settings.target), background);
        let due = (1.0 - share) * grid.period() as f64;
        // The very first burn begins at once: a program must not have a full-speed period to start with.
        let first = planned.unwrap_or_else(|| grid.index(time::now()));
        let skipped = self.periods_to_skip(settings, due);
        let index = first.saturating_add(skipped);
        if !wait.until(grid.begin(index), generation) {
            // New settings: the periods slept through so far are charged as they were.
            let reached = grid.index(time::now()).max(first - 1);
            self.charge(grid, reached + 1 - first, share);
            if share >= 1.0 {
                // Nothing was taken from tasks that are not slowed.
                self.rest();
            }
            return reached + 1;
        }
        let woken = time::now();
        let cpu = time::thread_cpu();
        let seen = cpu - self.rested;
        let late = (grid.index(woken) - index).max(0);
        self.seen.counters.missed.fetch_add(late as u64, Ordering::Relaxed);
        let index = index + late;
        let owing = if is_off(Correction::LateStart) { late } else { 0 };
        let elapsed = self.charge(grid, index + 1 - first - owing, share);
        let left = elapsed - (elapsed as f64 * background) as Nanos;
        if self.is_displaced() {
            // Burning elsewhere would slow a CPU that is not ours.
            self.ledger.clear();
            self.background.iter().for_each(|(background, place)| background.displaced(*place));
            self.rest();
            return index + 1;
        }
        let hidden = self.settle_wake_up(seen as f64);
        let taken = self.taken_by_emu(seen, grid.period() / PAID_AT_ONCE);
        self.ledger.settle(taken as f64);
        let cost = self.cost();
        if due >= cost + MIN_BURN as f64 {
            // No period is going to be slept through.
            self.announcer.tell(grid.begin(index + 2));
        }
        let burn = self.ledger.owed() - hidden;
        // At the end of the period the next burn begins; the tasks' part must lie before it.
        let latest = grid.begin(index + 1) - MIN_RUN;
        let until = (woken + burn.max(0.0) as Nanos).min(latest.max(woken));
        if self.clock.is_due(settings.target, woken, until - woken)
            && let Some(clock) = self.clock.read()
        {
            self.seen.clock.store(clock as u64, Ordering::Relaxed);
        }
        if let Some((background, place)) = &self.background {
            // Who has this CPU look works for emu, too.
            background.woken(*place, woken, cpu + self.looked);
        }
        let burned = Self::burn(woken, until, wait, generation);
        self.rest();
        if let Some((background, place)) = &self.background {
            background.burned(*place, self.rested + self.looked, (burned, self.rested - cpu));
        }
        self.ledger.settle(burned as f64 + hidden);
        let counters = &self.seen.counters;
        counters.periods.fetch_add(1 + skipped as u64, Ordering::Relaxed);
        counters.add_stop(burned, seen + hidden as Nanos);
        // Of the time that others left, so that shares are of it too.
        counters.add_elapsed(left);
        counters.burned.fetch_add(burned, Ordering::Relaxed);
        self.look(share, grid.begin(index + 1));
        counters.cpu.store(self.rested + self.looked, Ordering::Relaxed);
        index + 1
    }

    /// Notes what has used CPU time so far, at the end of a burn.
    fn rest(&mut self) {
        self.rested = time::thread_cpu();
        self.emu = self.emu.map(|_| time::process_cpu());
    }

    /// Has this CPU look for tasks that wait for another one until the `next` burn, if that may be needed at this speed.
    fn look(&mut self, share: f64, next: Nanos) {
        let Some(pusher) =
            self.pusher.as_ref().filter(|_| share <= LOOKS_BELOW && !is_off(Correction::SearchAfterBurn))
        else {
            return;
        };
        let now = time::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOKS_APART;
        pusher.search(next.min(now + SEARCH_FOR_AFTER_BURN));
        let cpu = pusher.cpu();
        self.ledger.settle((cpu - self.looked).min(LOOK_COST_MAX) as f64);
        self.looked = cpu;
    }

    /// Whole periods to sleep through until a burn is worth its wake-up.
    fn periods_to_skip(&self, settings: Settings, due: f64) -> i64 {
        // The clock that a target in hertz goes by is measured in burns.
        let (most, least) = match settings.target.clock {
            Some(_) if self.clock.sure(settings.target).is_none() => (SKIPPED_UNSURE, MIN_BURN),
            Some(_) if time::now() >= self.clock.next => (periods_of_clock(settings.grid), clock_meter::BURN),
            Some(_) => (periods_of_clock(settings.grid), MIN_BURN),
            None => (1 << 20, MIN_BURN),
        };
        let looks = |background: &BackgroundLoad| (background.every() / settings.grid.period()).max(1);
        let most = match &self.background {
            Some((background, _)) if settings.target.share < 1.0 => most.min(looks(background)),
            _ => most,
        };
        if due <= 0.0 {
            // Full speed: nothing to do until new settings come, or another clock.
            return most;
        }
        if is_off(Correction::SkippedPeriods) {
            return 0;
        }
        let worth = self.cost() + least as f64;
        let owed = self.ledger.carried(settings.grid.period() as f64);
        (((worth - owed) / due).ceil() - 1.0).clamp(0.0, most as f64) as i64
    }

    fn charge(&mut self, grid: Grid, periods: i64, share: f64) -> Nanos {
        self.share = share;
        let elapsed = grid.period().saturating_mul(periods.max(0));
        self.ledger.charge(elapsed as f64, grid.period() as f64, share);
        self.seen.dropped.store(self.ledger.dropped() as u64, Ordering::Relaxed);
        elapsed
    }

    /// What a wake-up usually costs the tasks now, in nanoseconds.
    fn cost(&self) -> f64 {
        self.visible + self.hidden()
    }

    /// The part of it that the burner cannot see.
    fn hidden(&self) -> f64 {
        if is_off(Correction::HiddenWakeCost) {
            return 0.0;
        }
        if is_off(Correction::HiddenScaling) {
            return self.reference.hidden;
        }
        // Unscaled, 10 % of 1 ms was 1.9 % slower in a quiet guest.
        self.reference.hidden * self.visible / self.reference.visible.max(1.0)
    }

    /// Books `seen`, the CPU time since the last burn: the way to sleep and the way back, which tasks did not have.
    /// Returns what they lost unseen.
    fn settle_wake_up(&mut self, seen: f64) -> f64 {
        if !is_off(Correction::VisibleWakeCost) {
            self.ledger.settle(seen);
        }
        // An interrupt that struck just then, or a turn of another guest, says nothing of what cannot be seen.
        if (0.2..5.0).contains(&(seen / self.reference.visible.max(1.0))) {
            self.visible += COST_WEIGHT * (seen - self.visible);
        }
        self.hidden()
    }

    /// Up to `most` of what emu's other threads had of this CPU until this burn, in which they wait; this thread has had `seen`
    /// since the last one. The rest is left to the next ones, as far as a few of them make up for it.
    fn taken_by_emu(&mut self, seen: Nanos, most: Nanos) -> Nanos {
        let taken = self.emu.map_or(0, |emu| (time::process_cpu() - emu - seen).max(0));
        self.unpaid = (self.unpaid + taken).min(PAYMENTS * most);
        let paid = self.unpaid.min(most);
        self.unpaid -= paid;
        paid
    }

    fn is_displaced(&mut self) -> bool {
        let mut displaced = affinity::current_cpu() != Some(self.cpu);
        if displaced {
            // Succeeds as soon as the CPU is back.
            displaced = take_cpu(self.cpu).is_err();
        }
        self.seen.on_its_cpu.store(!displaced, Ordering::Relaxed);
        displaced
    }

    /// Keeps the CPU from `woken` until `until`, and returns for how long tasks were really kept from it. New settings wait
    /// for the end of the burn, which was due under the old ones.
    fn burn(woken: Nanos, until: Nanos, wait: &Wait<Settings>, generation: u32) -> Nanos {
        let mut lost = 0;
        let mut now = time::now();
        let mut switches = None;
        while now < until && !(wait.generation() != generation && wait.is_stopped()) {
            time::pass_moment();
            let before = now;
            now = time::now();
            if now - before > GAP && !is_off(Correction::BurnGaps) {
                // Only a switch to another task gives time away, as where emu is stopped; steal and interrupts take it
                // from all alike.
                let seen = switches_away();
                if switches.replace(seen).is_some_and(|known| known < seen) {
                    lost += now - before;
                }
            } else if switches.is_none() {
                switches = Some(switches_away());
            }
        }
        now - woken - lost
    }
}

/// What all tasks are to have so that those of the zone have `share` of what others leave, who have theirs.
fn beside(share: f64, background: f64) -> f64 {
    1.0 - (1.0 - share) * (1.0 - background)
}

/// Periods after which the clock is measured even so.
fn periods_of_clock(grid: Grid) -> i64 {
    ((clock_meter::EVERY + clock_meter::LATE) / grid.period()).max(1)
}

/// How often another task has had the CPU of this thread, from `getrusage(RUSAGE_THREAD)`.
fn switches_away() -> i64 {
    nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD)
        .map_or(0, |usage| usage.involuntary_context_switches() + usage.voluntary_context_switches())
}

#[cfg(test)]
mod tests;
