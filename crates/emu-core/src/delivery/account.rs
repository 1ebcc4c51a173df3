//! From the CPU time of tasks to the share that was delivered.
//!
//! A CPU is *fully demanded* in a window when one of its tasks computed or waited for a CPU all the time for which it was not
//! stopped. Only then does the CPU time of the tasks tell what the emulation delivers. Where single tasks do not tell, because
//! they moved between CPUs or lived shortly, the zone as a whole may.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::asked::{Asked, FULL};
use super::episode::Episode;
use super::window::{TaskWindow, Window};
use crate::cpu_list::{CpuId, CpuList};
use crate::status::{Basis, Delivered};
use crate::sys::Pid;
use crate::sys::time::{self, Nanos};

/// Which CPU a task belongs to does not matter where it ran less than this part of a window.
const STRAY: f64 = 0.01;

/// The part of the time for which a single window may stand beside its own.
const UNSEEN: f64 = 0.5;

/// So many escaped processes are named.
const NAMED: usize = 4;

/// The whole account is told when it is off by more than this.
const MEAN_TOLERANCE: f64 = 0.07;

/// How long at a stretch more than was asked has to be delivered before it is told, and less, in nanoseconds. A shared host
/// delays tasks now and then, but nothing makes them faster.
const TOO_FAST: Nanos = 300_000_000;
const TOO_SLOW: Nanos = 1_200_000_000;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sum {
    got: f64,
    asked: f64,
    wall: f64,
    observed: f64,
    /// For the scatter: the number of windows, and the sum of `wall × (share − asked)²`.
    windows: u32,
    squares: f64,
}

impl Sum {
    fn add(&mut self, got: f64, asked: f64, wall: f64, length: Nanos) {
        self.got += got;
        self.asked += asked;
        self.wall += wall;
        self.observed += length as f64;
        self.windows += 1;
        self.squares += (got - asked).powi(2) / wall;
    }

    /// The mean share, with the scatter of the windows for what was not observed of `elapsed`, and the grain at both ends. A
    /// single window has no scatter, and does not stand for a longer time.
    fn delivered(&self, elapsed: f64, grain: impl Fn(f64) -> f64) -> Option<Delivered> {
        let unseen = (1.0 - self.observed / elapsed.max(self.observed)).max(0.0);
        if self.windows == 0 || (self.windows == 1 && unseen > UNSEEN) {
            return None;
        }
        let (share, asked) = (self.got / self.wall, self.asked / self.wall);
        let off = share - asked;
        let variance = (self.squares / self.wall - off * off).max(0.0);
        let scatter = match self.windows - 1 {
            0 => 0.0,
            more => student(more) * (variance * unseen / f64::from(more)).sqrt(),
        };
        let half = scatter.hypot(grain(asked) / self.observed);
        let interval = [(share - half).max(0.0), share, share + half];
        Some(Delivered::new(Basis::CpuTime, interval, asked, time::span(self.observed as Nanos)))
    }
}

/// The quantile of Student's distribution for an interval of 95 %.
pub(super) fn student(freedom: u32) -> f64 {
    const FEW: [f64; 5] = [12.71, 4.30, 3.18, 2.78, 2.57];
    FEW.get(freedom as usize - 1).copied().unwrap_or_else(|| 1.96 + 2.5 / f64::from(freedom))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Off {
    Fast,
    Slow,
}

/// The account since the last change of targets, and the episodes since the start.
#[derive(Debug)]
pub(super) struct Account {
    asked: Asked,
    elapsed: f64,
    /// CPU time of all processes, and the time for which it is known.
    used: (f64, f64),
    zone: Sum,
    cpus: BTreeMap<CpuId, Sum>,
    pub(super) fast: Episode,
    pub(super) slow: Episode,
    /// Processes that have left the zone, with how they have, in words.
    pub(super) escaped: BTreeMap<Pid, String>,
    /// Groups above the zone that others have frozen.
    pub(super) frozen: BTreeSet<PathBuf>,
}

impl Account {
    pub(super) fn new(asked: Asked) -> Self {
        Self {
            asked,
            elapsed: 0.0,
            used: (0.0, 0.0),
            zone: Sum::default(),
            cpus: BTreeMap::new(),
            fast: Episode::default(),
            slow: Episode::default(),
            escaped: BTreeMap::new(),
            frozen: BTreeSet::new(),
        }
    }

    /// What went wrong before is kept. Returns the account of the old targets.
    pub(super) fn restart(&mut self, asked: Asked) -> Self {
        // With targets that change often, what escapes is off for longer than each of them lasts.
        let (fast, slow) = (std::mem::take(&mut self.fast), std::mem::take(&mut self.slow));
        let (escaped, frozen) = (std::mem::take(&mut self.escaped), std::mem::take(&mut self.frozen));
        std::mem::replace(self, Self { fast, slow, escaped, frozen, ..Self::new(asked) })
    }

    pub(super) fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Returns whether the window was off.
    pub(super) fn add(&mut self, window: &Window) -> Option<Off> {
        let length = window.length as f64;
        self.elapsed += length;
        if let Some(used) = window.used {
            self.used = (self.used.0 + used as f64, self.used.1 + length);
        }
        let (got, asked) = self.by_cpu(window).or_else(|| self.of_zone(window))?;
        let side = if got > asked { Off::Fast } else { Off::Slow };
        let counts = side == Off::Fast || !self.asked.is_of_rest;
        let off = (counts && self.asked.beyond(got, asked, length) > 0.0).then_some(side);
        self.fast.window(off == Some(Off::Fast), window, got, asked);
        self.slow.window(off == Some(Off::Slow), window, got, asked);
        off
    }

    /// The CPUs that are fully demanded by tasks that stay on them; `None` where a task moved, or none is busy.
    fn by_cpu(&mut self, window: &Window) -> Option<(f64, f64)> {
        if !window.is_whole {
            return None;
        }
        let (mut got, mut asked, mut wall) = (0.0, 0.0, 0.0);
        let matters = |task: &&TaskWindow| task.run as f64 > STRAY * task.wall as f64;
        let stays =
            |task: &TaskWindow| task.cpus.0 == task.cpus.1 && self.asked.shares.contains_key(&task.cpus.1);
        if !window.tasks.iter().filter(matters).all(stays) {
            return None;
        }
        // What lived shortly is the CPU's where there is one. Of several, with much of it, the zone as a whole tells.
        let mut passing = window.run().map_or(0, |all| all - window.seen());
        if self.asked.shares.len() > 1 {
            if passing as f64 > STRAY * window.length as f64 + time::USER_TICK as f64 {
                return None;
            }
            passing = 0;
        }
        let mut of_cpus = Vec::new();
        for (&cpu, &share) in &self.asked.shares {
            let tasks = || window.tasks.iter().filter(move |task| task.cpus.1 == cpu);
            let Some(busy) = tasks().find(|task| self.asked.is_busy(task)) else { continue };
            let length = busy.wall as f64;
            let run = (tasks().map(|task| task.run).sum::<Nanos>() + passing) as f64;
            of_cpus.push((cpu, run, share * length, length));
        }
        // Limits that are not bound to CPUs may meet on one of them: the zone as a whole tells.
        let busy = window.tasks.iter().filter(|task| self.asked.is_busy(task)).count();
        let are_together = of_cpus.len() < busy.min(self.asked.shares.len());
        if are_together && of_cpus.iter().any(|(_, run, share, _)| run > share) {
            return None;
        }
        let moved =
            |&(_, run, share, length): &(_, f64, f64, f64)| self.asked.may_have_moved(run, share, length);
        if busy < self.asked.shares.len() && of_cpus.iter().any(moved) {
            return None;
        }
        for (cpu, run, share, length) in of_cpus {
            self.cpus.entry(cpu).or_default().add(run, share, length, window.length);
            (got, asked, wall) = (got + run, asked + share, wall + length);
        }
        if wall == 0.0 {
            return None;
        }
        self.zone.add(got, asked, wall, window.length);
        Some((got, asked))
    }

    /// The zone as a whole: where it has a busy task for each CPU, a single one, or used all that was asked for.
    fn of_zone(&mut self, window: &Window) -> Option<(f64, f64)> {
        let length = window.length as f64;
        let cpus = self.asked.shares.len();
        let busy: Vec<_> = window.tasks.iter().filter(|task| self.asked.is_busy(task)).collect();
        let all = self.asked.total() * length;
        let run = window.run()? as f64;
        let (got, asked, wall) = match *busy.as_slice() {
            [one] if cpus > 1 && window.is_whole => {
                let share = self.asked.shares.get(&one.cpus.1);
                let asked = share.copied().unwrap_or_else(|| self.asked.highest());
                let (all_run, run, wall) = (run, one.run as f64, one.wall as f64);
                // Less may be what it had beside others on a CPU.
                let is_enough =
                    |run: f64| run >= asked * wall || self.asked.beyond(run, asked * wall, wall) <= 0.0;
                let is_shared = !is_enough(run) && is_enough(all_run);
                if is_shared || self.asked.may_have_moved(run, asked * wall, wall) {
                    return None;
                }
                (run, asked * wall, wall)
            }
            ref busy if self.are_everywhere(busy, &window.out_of_reach) => {
                let shares = || self.reachable(&window.out_of_reach);
                let asked = shares().map(|(_, share)| share).sum::<f64>() * length;
                let is_more = run > asked && self.asked.beyond(run, asked, length) > 0.0;
                match is_more {
                    false => (run, asked, shares().count() as f64 * length),
                    true if run > all => (run, all, cpus as f64 * length),
                    // Others may have had it on the CPUs that the busy ones may not use.
                    true => return None,
                }
            }
            // No CPU gives a task so much, whatever the others have.
            _ => match window.tasks.iter().find_map(|task| self.too_much(task)) {
                Some(told) => told,
                None if run >= FULL * all && all > 0.0 => (run, all, cpus as f64 * length),
                None => return None,
            },
        };
        self.zone.add(got, asked, wall, window.length);
        Some((got, asked))
    }

    /// The CPUs that busy tasks may use, and what was asked for of each.
    fn reachable(&self, out_of_reach: &CpuList) -> impl Iterator<Item = (CpuId, f64)> {
        let shares = self.asked.shares.iter().map(|(&cpu, &share)| (cpu, share));
        shares.filter(|(cpu, _)| !out_of_reach.contains(*cpu))
    }

    /// Whether each CPU that these tasks may use has had one of them, and each may have one.
    fn are_everywhere(&self, busy: &[&TaskWindow], out_of_reach: &CpuList) -> bool {
        let was_on = |cpu: CpuId| busy.iter().any(|task| task.cpus.0 == cpu || task.cpus.1 == cpu);
        busy.len() >= self.reachable(out_of_reach).count()
            && self.reachable(out_of_reach).all(|(cpu, _)| was_on(cpu))
    }

    /// What a task had, and might have had on the fastest CPU, where it had more.
    fn too_much(&self, task: &TaskWindow) -> Option<(f64, f64, f64)> {
        let (run, wall) = (task.run as f64, task.wall as f64);
        let asked = self.asked.highest() * wall;
        (run > asked && self.asked.beyond(run, asked, wall) > 0.0).then_some((run, asked, wall))
    }

    pub(super) fn zone(&self) -> Option<Delivered> {
        self.zone.delivered(self.elapsed, |share| self.asked.grain(share))
    }

    pub(super) fn cpu(&self, cpu: CpuId) -> Option<Delivered> {
        self.cpus.get(&cpu)?.delivered(self.elapsed, |share| self.asked.grain(share))
    }

    /// CPU time of all tasks per time, in CPUs; `None` where less than half of the time is known.
    pub(super) fn used(&self) -> Option<f64> {
        let (used, known) = self.used;
        (known > 0.0 && known >= self.elapsed / 2.0).then(|| used / known)
    }

    /// How long the targets have been watched.
    pub(super) fn elapsed(&self) -> Duration {
        time::span(self.elapsed as Nanos)
    }

    /// Whether more was delivered than was asked, for long enough to be told or by much on the whole, and nothing was found
    /// that escapes.
    pub(super) fn has_unexplained_excess(&self) -> bool {
        let is_above =
            || self.zone().is_some_and(|seen| seen.asked < seen.low && seen.error > MEAN_TOLERANCE);
        (self.fast.longest >= TOO_FAST || is_above())
            && self.fast.reason().is_none()
            && self.escaped.is_empty()
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let told = |episode: &Episode, least: Nanos, what: &str| {
            (episode.longest >= least).then(|| {
                let (total, ratio) = (time::span(episode.total), 100.0 * episode.ratio());
                let why = episode.reason().map_or(String::new(), |why| format!(": {why}"));
                let total = total.as_secs_f64();
                format!("for {total:.1} s the tasks ran too {what}, at {ratio:.0} % of the speed asked{why}")
            })
        };
        let fast = told(&self.fast, TOO_FAST, "fast");
        let slow = told(&self.slow, TOO_SLOW, "slow");
        let mut problems: Vec<_> = fast.into_iter().chain(slow).collect();
        if let Some(seen) = self.zone().filter(|_| problems.is_empty()) {
            let is_sure = seen.asked < seen.low || seen.asked > seen.high && !self.asked.is_of_rest;
            if seen.error.abs() > MEAN_TOLERANCE && is_sure {
                let (share, asked) = (100.0 * seen.share, 100.0 * seen.asked);
                problems.push(format!("the tasks were given {share:.1} % instead of {asked:.1} %"));
            }
        }
        let frozen = |group: &PathBuf| format!("others than emu have frozen the cgroup {}", group.display());
        problems.extend(self.frozen.iter().map(frozen));
        problems.extend(self.escaped.values().take(NAMED).cloned());
        if let Some(more @ 1..) = self.escaped.len().checked_sub(NAMED) {
            problems.push(format!("{more} other processes have left the zone"));
        }
        problems
    }

    /// Notes the tasks that run on other CPUs than the zone's; `name` names one.
    pub(super) fn note_strays(&mut self, window: &Window, name: impl Fn(Pid) -> String) {
        let shares = &self.asked.shares;
        let runs = |task: &&TaskWindow| task.run as f64 > STRAY * task.wall as f64;
        let strays =
            |task: &&TaskWindow| ![task.cpus.0, task.cpus.1].iter().any(|cpu| shares.contains_key(cpu));
        for task in window.tasks.iter().filter(runs).filter(strays) {
            let (tid, cpu) = (task.tid, task.cpus.1);
            let told = || format!("task {tid} ({}) runs on CPU {cpu}, outside the zone", name(tid));
            self.escaped.entry(tid).or_insert_with(told);
        }
    }
}

#[cfg(test)]
mod tests;
