//! What a zone's tasks really get: an account beside the emulation that does not come from the code that sets it.
//!
//! A thread reads the CPU time of the zone's tasks once a second, as the kernel counts it. From this it works out the share
//! that was delivered while the tasks wanted all that they could get ([`account`]). Where that is not what was asked for, it
//! looks for the reason ([`reason`]).

mod account;
mod asked;
mod episode;
mod meter;
mod reading;
mod reason;
mod stretch;
mod times;
mod window;

pub use stretch::{CpuStretch, Stretch};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::duty::kept;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::method::{About, Trait};
use crate::speed::Targets;
use crate::status::{Basis, Delivered, Status};
use crate::sys::time::{self, Nanos};
use crate::sys::{Pid, lock};
use crate::zone::Zone;

use account::{Account, Off};
use asked::{Asked, TOLERANCE, Way};
use meter::Meter;
use reading::{Reading, Watch};
use stretch::Stretches;
use window::Window;

/// The first windows are short, so that short runs are told of too; each is twice as long as the one before, up to the last.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_secs(1);

/// What is off after a window of more than this can be explained by the next one.
const EXPLAINED: Duration = Duration::from_millis(100);

/// The part of one CPU that the readings may take, and CPU time in nanoseconds that they may take at once beyond it: what is read
/// for the first time costs the most, and an escape is often near the begin.
const COST: f64 = 0.002;
const BURST: f64 = 20e6;

/// By when what escapes is found: earlier, no other cause is told.
const SEARCHED: Duration = Duration::from_secs(2);

/// The shortest window, in periods.
const PERIODS: u32 = 3;

#[derive(Debug)]
pub(crate) struct Delivery {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    way: Way,
    /// Where the method keeps what it has measured of its costs, if it makes up for them.
    costs: Option<PathBuf>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    account: Account,
    stretches: Stretches,
    meter: Meter,
    /// Changes when windows that are under way no longer count.
    generation: u64,
    /// The shortest window.
    shortest: Duration,
    /// When the next window may begin; `None` while the tasks run freely on purpose.
    from: Option<Nanos>,
    is_ending: bool,
    /// Processes that live on after those that the zone was made for.
    notes: Vec<String>,
    /// Processes that leave the zone on purpose: outside of it they are not watched.
    let_go: BTreeSet<Pid>,
}

impl Delivery {
    /// `running` is as in [`retarget`](Self::retarget).
    pub(crate) fn watch(
        host: &Host,
        zone: &Zone,
        about: &'static About,
        running: f64,
        period: Duration,
    ) -> Result<Self> {
        let (moves_clock, stops) = (about.has(Trait::MovesClock), about.has(Trait::StopsTasks));
        let way = Way { moves_clock, stops, is_of_rest: zone.demand.exclude_background };
        let asked = Asked::of(&zone.demand.targets, way, running, period);
        let state = State {
            account: Account::new(asked),
            stretches: Stretches::begin(zone.demand.targets.clone()),
            meter: Meter::default(),
            generation: 0,
            shortest: shortest(period),
            from: Some(time::now()),
            is_ending: false,
            notes: Vec::new(),
            let_go: BTreeSet::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let may_freeze = (stops || moves_clock) && !about.has(Trait::SendsSignals);
        let watch = Watch::new(host, &zone.tasks, zone.demand.cpus(), may_freeze)?;
        if watch.is_blind() {
            let note =
                "/proc hides the processes of other users (hidepid): one that changes its user is not seen";
            lock(&shared.state).notes.push(note.into());
        }
        let watcher = Watcher { watch, host: host.clone(), shared: Arc::clone(&shared), about };
        let thread = thread::Builder::new()
            .name("emu-account".into())
            .spawn(move || watcher.run())
            .map_err(|e| Error::io("cannot start the thread that watches what is delivered", e))?;
        let makes_up = !moves_clock && !about.has(Trait::Published);
        let costs = makes_up.then(|| host.roots.state.clone());
        Ok(Self { shared, thread: Some(thread), way, costs })
    }

    /// The targets are in force after two periods. A method that moves the clock lets tasks run for the part `running` of
    /// the time.
    pub(crate) fn retarget(&self, targets: &Targets, running: f64, period: Duration) {
        let mut state = lock(&self.shared.state);
        let before = state.account.restart(Asked::of(targets, self.way, running, period));
        let generation = state.generation;
        state.stretches.next(targets, generation, before);
        state.meter = Meter::default();
        state.shortest = shortest(period);
        state.begin_window(Some(period * 2));
        self.shared.changed.notify_all();
    }

    /// The stretches that have ended since the last call.
    pub(crate) fn take_stretches(&self) -> Vec<Stretch> {
        lock(&self.shared.state).stretches.take(self.way.moves_clock)
    }

    /// Nothing counts until the next `retarget`.
    pub(crate) fn pause(&self) {
        lock(&self.shared.state).begin_window(None);
        self.shared.changed.notify_all();
    }

    /// To be called before they leave.
    pub(crate) fn let_go(&self, pids: &[Pid]) {
        lock(&self.shared.state).let_go.extend(pids);
    }

    /// A process that has come is watched wherever it goes, also where it had left before.
    pub(crate) fn take_in(&self, pid: Pid) {
        lock(&self.shared.state).let_go.remove(&pid);
    }

    pub(crate) fn tell(&self, status: &mut Status) {
        let state = lock(&self.shared.state);
        let State { account, meter, notes, .. } = &*state;
        let moves_clock = self.way.moves_clock;
        let basis = if moves_clock { Basis::CpuTimeAndClock } else { Basis::CpuTime };
        // Of the reference, what the CPU time was given of: of the clock, or of what the background load left.
        let left = 1.0 - status.background.unwrap_or(0.0);
        let whole = (left > 0.0).then(|| (1.0 / left, 0.0));
        let mut slowdowns = Vec::new();
        for cpu in &mut status.cpus {
            let scale = if moves_clock {
                meter.clock(cpu.cpu).zip(cpu.set_clock).map(|((measured, unsure), set)| {
                    cpu.clock = Some(measured);
                    (measured.as_f64() * cpu.set / (set.as_f64() * cpu.duty), unsure)
                })
            } else {
                whole
            };
            slowdowns.extend(scale);
            let seen = account.cpu(cpu.cpu).zip(scale);
            let seen = seen.map(|(seen, scale)| seen.times(basis, scale, cpu.asked.share));
            cpu.delivered = seen.filter(tells);
        }
        let count = status.cpus.len().max(1) as f64;
        let asked = status.cpus.iter().map(|cpu| cpu.asked.share).sum::<f64>() / count;
        let mean = |of: fn(&(f64, f64)) -> f64| slowdowns.iter().map(of).sum::<f64>() / count;
        let scale =
            (slowdowns.len() == status.cpus.len()).then(|| (mean(|scale| scale.0), mean(|scale| scale.1)));
        status.delivered = account
            .zone()
            .zip(scale)
            .map(|(seen, scale)| seen.times(basis, scale, if moves_clock { asked } else { seen.asked }))
            .filter(tells);
        if let Some(off) = status.delivered.filter(|_| moves_clock).and_then(off_by_clock) {
            status.add_problem(off);
        }
        status.used = account.used();
        account.problems().into_iter().for_each(|problem| status.add_problem(problem));
        if self.costs.is_some() && account.elapsed() >= SEARCHED && account.has_unexplained_excess() {
            status.add_problem(if is_late(status) {
                "emu has let the tasks run for too long: it had no CPU in time to stop them".into()
            } else {
                "what switching the tasks costs may be overrated, and made up for too well: it is measured anew before the \
                 next program begins"
                    .into()
            });
        }
        status.notes.extend(notes.iter().cloned());
    }

    /// Ends the account while the tasks are still in the zone, and tells all of it. Costs that let them run too fast are forgotten.
    /// Ones that make them too slow cannot be told from what a shared host takes.
    pub(crate) fn end(mut self, status: &mut Status) {
        self.join();
        self.tell(status);
        let are_wrong = !is_late(status) && lock(&self.shared.state).account.has_unexplained_excess();
        if let Some(kept) = self.costs.as_ref().filter(|_| are_wrong) {
            kept::forget(kept);
        }
    }

    fn join(&mut self) {
        lock(&self.shared.state).is_ending = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether the method itself has let tasks run for longer than was asked.
fn is_late(status: &Status) -> bool {
    status.cpus.iter().any(|cpu| cpu.set > cpu.asked.share * (1.0 + TOLERANCE))
}

/// A share that is far off and may yet be right tells nothing, as does one that may be anything.
fn tells(seen: &Delivered) -> bool {
    is_surely_off(seen) || (seen.error.abs() <= TOLERANCE && seen.high - seen.low <= seen.asked)
}

fn is_surely_off(seen: &Delivered) -> bool {
    seen.asked < seen.low || seen.asked > seen.high
}

/// What the kernel's account of CPU time alone does not tell: the clock is another one than was set, or that is far from the
/// one asked for.
fn off_by_clock(seen: Delivered) -> Option<String> {
    (is_surely_off(&seen) && seen.error.abs() > TOLERANCE).then(|| {
        let (share, asked) = (100.0 * seen.share, 100.0 * seen.asked);
        format!("by the clock that was measured, the tasks were given {share:.1} % instead of {asked:.1} %")
    })
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.join();
    }
}

fn shortest(period: Duration) -> Duration {
    FIRST.max(period * PERIODS)
}

impl State {
    fn begin_window(&mut self, after: Option<Duration>) {
        self.generation += 1;
        self.from = after.map(|after| time::now() + time::nanos(after));
    }
}

struct Watcher {
    watch: Watch,
    host: Host,
    shared: Arc<Shared>,
    about: &'static About,
}

impl Watcher {
    fn run(mut self) {
        loop {
            let Some((generation, shortest)) = self.wait_for_begin() else { return };
            let mut before = self.read(false);
            let mut length = shortest;
            let mut budget = BURST;
            loop {
                let begin = time::now();
                let is_changed = self.wait(length, generation);
                let late = time::span(time::now() - begin).saturating_sub(length);
                let spent = time::thread_cpu();
                if self.about.has(Trait::MovesClock) && !is_changed {
                    self.measure_clocks();
                }
                let after = self.read(length > EXPLAINED);
                let mut window = before.until(&after);
                // That binds tasks itself.
                if !self.about.has(Trait::SplitsCpus) {
                    let asked = lock(&self.shared.state).account.asked().clone();
                    window.out_of_reach = asked.out_of_reach(&window);
                }
                self.note_escapes(&window, before.outside_until(&after), length > LAST / 2);
                if let Some(off) = self.count(&window, generation, shortest) {
                    self.explain(off, late, &window, &before, &after);
                }
                if is_changed {
                    break;
                }
                before = after;
                let earned = (budget + COST * window.length as f64).min(BURST);
                budget = earned - (time::thread_cpu() - spent) as f64;
                let repayment = time::span((-budget / COST).max(0.0) as Nanos);
                length = (length * 2).min(LAST.max(shortest)).max(repayment);
            }
        }
    }

    fn read(&mut self, explains: bool) -> Reading {
        self.watch.let_go.clone_from(&lock(&self.shared.state).let_go);
        self.watch.read(explains)
    }

    fn wait_for_begin(&mut self) -> Option<(u64, Duration)> {
        let mut state = lock(&self.shared.state);
        loop {
            if state.is_ending {
                return None;
            }
            let wait = match state.from {
                Some(from) if from <= time::now() => return Some((state.generation, state.shortest)),
                Some(from) => time::span(from - time::now()),
                None => LAST,
            };
            state = self.shared.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns whether the window is the last one of its generation.
    fn wait(&self, length: Duration, generation: u64) -> bool {
        let is_open = |state: &mut State| !state.is_ending && state.generation == generation;
        let state = lock(&self.shared.state);
        let waited = self.shared.changed.wait_timeout_while(state, length, is_open);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn count(&self, window: &Window, generation: u64, shortest: Duration) -> Option<Off> {
        let mut state = lock(&self.shared.state);
        // A window shorter than a period tells nothing.
        let is_whole = window.length >= time::nanos(shortest / 2);
        if state.generation != generation {
            // The window was ended by new targets, which are not in force yet.
            if let Some(account) = state.stretches.account_of(generation).filter(|_| is_whole) {
                account.add(window);
            }
            return None;
        }
        if state.is_ending {
            state.notes.extend(self.watch.outliving());
        }
        if is_whole { state.account.add(window) } else { None }
    }

    /// Notes what has left the zone, however much it runs; `outside` are processes outside of emu's groups.
    fn note_escapes<'a>(
        &self,
        window: &Window,
        outside: impl Iterator<Item = (Pid, &'a Path)>,
        looks_above: bool,
    ) {
        let hierarchies = &self.host.cgroups.hierarchies;
        let frozen = if looks_above { self.watch.frozen_above(hierarchies) } else { None };
        let name = |pid| reading::name(&self.host.roots.proc, pid);
        let mut state = lock(&self.shared.state);
        state.account.frozen.extend(frozen);
        state.account.note_strays(window, name);
        for (pid, group) in outside {
            let told = || {
                format!(
                    "process {pid} ({}) has left the zone's cgroup for {}, and is not slowed there",
                    name(pid),
                    group.display()
                )
            };
            state.account.escaped.entry(pid).or_insert_with(told);
        }
    }

    fn measure_clocks(&self) {
        let cpus: Vec<_> = lock(&self.shared.state).account.asked().shares.keys().copied().collect();
        for cpu in cpus {
            let clock = meter::measure(cpu);
            lock(&self.shared.state).meter.add(cpu, clock);
        }
    }

    /// `late` is by how much the window is longer than it should have been.
    fn explain(&self, off: Off, late: Duration, window: &Window, before: &Reading, after: &Reading) {
        let Asked { shares, stops, .. } = lock(&self.shared.state).account.asked().clone();
        let found = match off {
            _ if late > LAST / 2 => {
                Some(format!("emu was stopped, or got no CPU, for {:.1} s", late.as_secs_f64()))
            }
            Off::Fast => reason::of_excess(
                &self.host.roots,
                &self.watch,
                window,
                &shares,
                self.about.has(Trait::EndsAtTicks),
            ),
            Off::Slow => reason::of_limit(&self.host, &self.watch, window, &shares),
        };
        let load = || {
            let times = [&before.cpu_times, &after.cpu_times];
            let free = 1.0 - shares.values().sum::<f64>() / shares.len().max(1) as f64;
            let burned = if self.about.has(Trait::Burns) { free } else { 0.0 };
            reason::of_load(window, times, &shares, burned, stops)
        };
        let mut state = lock(&self.shared.state);
        let State { account: Account { fast, slow, .. }, .. } = &mut *state;
        let episode = if off == Off::Fast { fast } else { slow };
        // Some load is always there: what was found later is the better reason.
        let reason = found.or(episode.reason.take());
        episode.reason = if off == Off::Slow { reason.or_else(load) } else { reason };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_off_or_anything_is_told_only_where_it_is_sure() {
        let tells = |share: f64, half: f64| {
            let interval = [share - half, share, share + half];
            super::tells(&Delivered::new(Basis::CpuTime, interval, 0.4, LAST))
        };
        assert!(tells(0.38, 0.05) && tells(0.3, 0.05) && tells(0.8, 0.3));
        assert!(!tells(0.35, 0.06) && !tells(0.4, 0.25));
    }
}
