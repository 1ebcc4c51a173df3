//! What was asked of a method, and when CPU time is off that.

use std::collections::BTreeMap;
use std::time::Duration;

use super::window::{TaskWindow, Window};
use crate::cpu_list::{CpuId, CpuList};
use crate::speed::Targets;
use crate::sys::affinity;
use crate::sys::time::{self, Nanos};

/// From this part of the time on, a task that computes or waits wants all that it can get. The rest is for wake-ups and for the
/// grain of the kernel's account.
pub(super) const FULL: f64 = 0.97;

/// A window that is off by more than this part of what was asked, beyond its grain, is told.
pub(super) const TOLERANCE: f64 = 0.10;

/// How a method gives tasks their speed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) moves_clock: bool,
    pub(super) stops: bool,
    pub(super) is_of_rest: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    /// The share of each CPU's time.
    pub(super) shares: BTreeMap<CpuId, f64>,
    /// Tasks are stopped for the rest of the time, and so neither run nor wait.
    pub(super) stops: bool,
    /// The shares are of what a background load leaves: less than they are of all time is right.
    pub(super) is_of_rest: bool,
    pub(super) period: Nanos,
}

impl Asked {
    /// A method that moves the clock leaves tasks the part `running` of the time.
    pub(super) fn of(targets: &Targets, way: Way, running: f64, period: Duration) -> Self {
        let share = |share: f64| if way.moves_clock { running } else { share };
        let shares = targets.iter().map(|(&cpu, target)| (cpu, share(target.share))).collect();
        let stops = way.stops || way.moves_clock && running < 1.0;
        Self { shares, stops, is_of_rest: way.is_of_rest, period: time::nanos(period) }
    }

    pub(super) fn total(&self) -> f64 {
        self.shares.values().sum()
    }

    pub(super) fn highest(&self) -> f64 {
        self.shares.values().copied().fold(0.0, f64::max)
    }

    /// How far CPU time is off what was asked for beyond what is tolerated; negative where it is not off.
    pub(super) fn beyond(&self, got: f64, asked: f64, wall: f64) -> f64 {
        (got - asked).abs() - TOLERANCE * asked - self.grain(asked / wall)
    }

    /// Whether a single task that is off the share of its CPU may have had what it had on CPUs of other speeds meanwhile.
    pub(super) fn may_have_moved(&self, run: f64, asked: f64, wall: f64) -> bool {
        let is_off = |asked: f64| self.beyond(run, asked, wall) > 0.0;
        let lowest = self.shares.values().copied().fold(f64::INFINITY, f64::min);
        let [low, high] = [lowest, self.highest()].map(|share| share * wall);
        is_off(asked) && (run > low || !is_off(low)) && (run < high || !is_off(high))
    }

    /// How far CPU time can be off by where a window begins and ends in a period, and by the kernel's account, which has what a
    /// running task used up to the last tick.
    pub(super) fn grain(&self, share: f64) -> f64 {
        self.period as f64 * share * (1.0 - share) + time::tick().as_nanos() as f64
    }

    /// Whether a task got all that there was for it, or waited for more.
    pub(super) fn is_busy(&self, task: &TaskWindow) -> bool {
        let wall = task.wall as f64;
        let share = self.shares.get(&task.cpus.1).copied().unwrap_or_else(|| self.highest());
        let could_run = if self.stops { share } else { 1.0 };
        (task.run + task.wait) as f64 >= FULL * could_run * wall
            || task.run as f64 >= FULL * self.highest() * wall
    }

    /// The CPUs that no busy task of a window may use, as the program has bound them all to others.
    pub(super) fn out_of_reach(&self, window: &Window) -> CpuList {
        let zone: CpuList = self.shares.keys().copied().collect();
        let mut left = zone.clone();
        for task in window.tasks.iter().filter(|task| self.is_busy(task)) {
            // One that has ended does not tell.
            let Ok(allowed) = affinity::get(task.tid) else { continue };
            left = left.difference(&allowed);
            if left.is_empty() {
                break;
            }
        }
        if left == zone { CpuList::default() } else { left }
    }
}
