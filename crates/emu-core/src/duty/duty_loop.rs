//! The loop of the methods that stop all tasks of a zone for a part of each period and resume them.
//!
//! One thread runs it on a [`Grid`] of periods. Every period begins with a stop of the length that the [`Ledger`] owes, so an
//! emulation begins with its tasks stopped. The real length of each stop and its cost are settled in the ledger. The tasks' CPU
//! time is not used for it: the kernel charges tasks with their way into the stop and out of it, which is most of the cost.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::PERIOD_MAX;
use super::duty_thread::{Command, Counters, DutyThread, Wait, settle_duty_thread};
use super::grid::Grid;
use super::idle_pusher::{IdlePusher, SEARCH_FOR};
use super::ledger::Ledger;
use super::own_time::OwnTime;
use super::pin_apart::PinApart;
use super::status;
pub(crate) use super::stop::{Stop, Stopped};
use super::stop_cost::StopCost;
use super::task_sampler::TaskSampler;
use crate::ablation::{Correction, is_off};
use crate::error::Result;
use crate::host::Host;
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::speed::Targets;
use crate::status::Status;
use crate::sys::time::{self, Nanos};
use crate::undo::Journal;
use crate::zone::Zone;

pub(crate) struct DutyLoop {
    thread: DutyThread<f64>,
    progress: Arc<Progress>,
    cpus_folder: PathBuf,
    notes: Notes,
}

#[derive(Debug, Default)]
struct Progress {
    counters: Counters,
    /// Length of the present cycle in nanoseconds: one period, or several where there are many tasks.
    cycle: AtomicI64,
    /// Stops that were made, and those of them that the kernel did not confirm in time.
    stops: AtomicI64,
    unconfirmed: AtomicI64,
}

impl fmt::Debug for DutyLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DutyLoop").field("controller", &self.thread).finish_non_exhaustive()
    }
}

impl DutyLoop {
    /// The tasks are stopped when this returns, and may have been before.
    pub(crate) fn start(
        name: &str,
        host: &Host,
        zone: &Zone,
        (period, share, cost): (Duration, f64, StopCost),
        mut stopper: impl Stop,
        journal: &Journal,
        notes: Notes,
    ) -> Result<Self> {
        let period = time::nanos(period);
        let progress = Arc::new(Progress { cycle: AtomicI64::new(period), ..Progress::default() });
        let begin = {
            let (progress, notes, host, cpus) =
                (Arc::clone(&progress), notes.clone(), host.clone(), zone.demand.cpus());
            let pin_apart = PinApart::new(&host, &cpus, journal);
            move || {
                let is_away = settle_duty_thread(&host, &cpus, &notes);
                let grid = Grid::new(time::now(), period);
                let first = stopper.stop(time::now() + period)?;
                let shared_cpus = Some(cpus.len() as i64)
                    .filter(|&cpus| !is_away && cpus > 1 && !is_off(Correction::SharedController));
                let own_time =
                    (!is_away && cpus.len() == 1 && !is_off(Correction::OwnTime)).then(OwnTime::start);
                let idle_pusher = IdlePusher::beside_duty_thread(is_away, &cpus, &notes)?;
                let last_cpu = time::thread_cpu();
                let ledger = Ledger::new();
                Ok(LoopState {
                    stopper,
                    grid,
                    share,
                    ledger,
                    cost,
                    sampler: TaskSampler::new(&host.roots.proc, pin_apart.is_some()),
                    early: Early::default(),
                    shared_cpus,
                    own_time,
                    idle_pusher,
                    pin_apart,
                    cpus: cpus.len().max(1) as i64,
                    cpu_costs: [0; COSTS],
                    last_cpu,
                    first: Some(first),
                    progress,
                    notes,
                })
            }
        };
        let thread = DutyThread::spawn(name, share, begin, |mut state, wait| state.run(wait))?;
        Ok(Self { thread, progress, cpus_folder: host.roots.cpus(), notes })
    }

    pub(crate) fn set(&self, share: f64) {
        self.thread.set(share);
    }

    /// The length of the present cycle.
    pub(crate) fn period(&self) -> Duration {
        time::span(self.progress.cycle.load(Ordering::Relaxed))
    }

    pub(crate) fn status(&self, method: MethodId, targets: &Targets, more_notes: &[String]) -> Status {
        let Progress { counters, stops, unconfirmed, .. } = &*self.progress;
        let mut status = status::of(method, self.period(), counters, targets, &self.cpus_folder);
        status.notes.extend_from_slice(more_notes);
        status.add_all(&self.notes);
        let unconfirmed = unconfirmed.load(Ordering::Relaxed);
        if unconfirmed > 0 {
            status.notes.push(format!(
                "{unconfirmed} of {} stops were not confirmed in time: tasks that get no CPU, or cannot be interrupted, stop later",
                stops.load(Ordering::Relaxed)
            ));
        }
        if let Some(why) = self.thread.ended() {
            status.end(status::ended(&why));
        }
        status
    }

    /// Resumes the tasks for good.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.thread.stop()
    }
}

/// In nanoseconds. A shorter stop is put off until more is owed: it would consist of latency only.
const STOP_MIN: f64 = 200_000.0;
/// The least part of its share that each period gives the tasks, however much is owed.
const RUN_MIN: f64 = 0.5;
/// How long a stop may wait to be confirmed, as a part of what is owed.
const CONFIRM: f64 = 0.5;
/// The largest part of one CPU that this thread and the idle pushers use where there are many tasks: stops are made fewer and
/// longer to stay below it.
const OWN_CPU_MAX: f64 = 0.02;
/// The part to aim for: the mean cost of a stop is above the median that is measured.
const OWN_CPU_AIM: f64 = 0.9 * OWN_CPU_MAX;
/// Below this number of tasks, a stop takes the thread long only when something else disturbed it.
const MANY_TASKS: usize = 50;
const COSTS: usize = 5;
/// The part of the run time after a stop in which idle CPUs search for tasks that wait on other CPUs.
const SEARCH_PART: f64 = 0.25;
/// Resumed sleepers get this multiple of the CPU time that they needed lately to sleep again.
const WAY_OUT: f64 = 1.5;

/// In nanoseconds. Waiting tasks stop only once they get a CPU, and their waiting time is known only then.
const SETTLE: Nanos = 300_000;

/// The sleeping tasks that were resumed before the end of the last stop.
#[derive(Debug, Clone, Copy, Default)]
struct Early {
    part: f64,
    /// How long this thread took to resume them.
    took: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Nanos,
    cpu: Nanos,
}

impl Moment {
    fn now() -> Self {
        Self { at: time::now(), cpu: time::thread_cpu() }
    }

    /// How long this thread kept its CPU from this moment to `end`, at most: the tasks may preempt it.
    fn until(self, end: Nanos) -> Nanos {
        (end - self.at).clamp(0, (time::thread_cpu() - self.cpu).max(0))
    }
}

struct LoopState<S> {
    stopper: S,
    grid: Grid,
    share: f64,
    ledger: Ledger,
    cost: StopCost,
    sampler: TaskSampler,
    early: Early,
    /// The number of CPUs among which this thread's own work is spread; `None` where it runs outside the zone, or the zone has
    /// one CPU.
    shared_cpus: Option<i64>,
    /// `Some` where emu and the tasks share the zone's only CPU.
    own_time: Option<OwnTime>,
    /// Wakes the CPUs before the tasks resume; `None` where this thread does so by running itself.
    idle_pusher: Option<IdlePusher>,
    pin_apart: Option<PinApart>,
    cpus: i64,
    /// CPU time of this thread and of the idle pushers for each of the last stops.
    cpu_costs: [Nanos; COSTS],
    last_cpu: Nanos,
    /// The stop that `start` began; it is the first period's.
    first: Option<Stopped>,
    progress: Arc<Progress>,
    notes: Notes,
}

impl<S: Stop> LoopState<S> {
    fn run(&mut self, wait: &Wait<f64>) -> Result<()> {
        let mut index = 0;
        loop {
            let (Command::Run(share), generation) = wait.command() else { return self.stopper.release() };
            if share.to_bits() != self.share.to_bits() {
                index = self.begin_anew(index);
                self.share = share;
                self.progress.counters.restart();
            }
            if wait.until(self.grid.begin(index), generation) {
                index = self.one_period(index, wait)?;
            }
        }
    }

    /// Ends the period under way, which owes nothing for the rest of it: a new share holds from now on, or from the `next` period
    /// where new shares come faster than periods end. Returns the index of the period that is to begin.
    fn begin_anew(&mut self, next: i64) -> i64 {
        let now = time::now();
        let left = self.grid.begin(next) - now;
        let Some(grid) = self.grid.anew(now).filter(|_| left > 0) else { return next };
        self.ledger.cut(left, self.share);
        self.grid = grid;
        0
    }

    fn one_period(&mut self, index: i64, wait: &Wait<f64>) -> Result<i64> {
        let period = self.grid.period();
        let woken = Moment::now();
        let late = (self.grid.index(woken.at) - index).max(0);
        if self.first.is_none() && self.stopper.is_stopped_by_others() {
            // Tasks that do not run owe no stopped time.
            return Ok(index + late + 1);
        }
        let stride = self.stride();
        let length = period * stride;
        self.progress.cycle.store(length, Ordering::Relaxed);
        // What the tasks ran in late periods is owed, as far as the ledger carries it.
        let owing = if is_off(Correction::LateStart) { 0 } else { late };
        self.ledger.charge((owing * period + length) as f64, length as f64, self.share);
        let next = index + late + stride;
        let run = self.share * length as f64;
        let latest = self.grid.begin(next) - (run * RUN_MIN) as Nanos;
        if self.first.is_none() {
            self.sampler.before_stop(&mut self.stopper, run);
        }
        // At full speed the tasks are not stopped, whatever is owed: emu itself may be about to be stopped.
        if (self.share < 1.0 && self.ledger.owed() >= STOP_MIN) || self.first.is_some() {
            let kept = Some(self.share).filter(|_| index > 0);
            self.stop_once(woken, latest, run, (wait, kept))?;
        }
        let counters = &self.progress.counters;
        counters.add_elapsed(late * period + length);
        counters.add_periods(stride as u64, late as u64);
        let cpu = time::thread_cpu() + self.idle_pusher.as_ref().map_or(0, IdlePusher::cpu);
        self.cpu_costs.rotate_left(1);
        if let Some(last) = self.cpu_costs.last_mut() {
            *last = cpu - self.last_cpu;
        }
        self.last_cpu = cpu;
        counters.set_cpu(cpu);
        Ok(next)
    }

    /// Stops the tasks for as long as is owed, but not beyond `latest`. They then run for about `run` nanoseconds.
    fn stop_once(
        &mut self,
        woken: Moment,
        latest: Nanos,
        run: f64,
        (wait, kept): (&Wait<f64>, Option<f64>),
    ) -> Result<()> {
        // Without it, `cpu-freeze` at 25 % of 20 ms was 3.7 % slower beside 60 sleepers in a quiet guest.
        let way_out = if is_off(Correction::WayOut) { 0.0 } else { self.sampler.cost() / self.cpus as f64 };
        let mut loss = self.cost.of_stop(run) + (way_out * (1.0 - self.early.part)) as Nanos;
        let owed = self.ledger.owed() - loss as f64;
        if let Some(own_time) = &mut self.own_time {
            own_time.before_stop();
        }
        let stopped = match self.first.take() {
            Some(stopped) => stopped,
            None => self.stopper.stop(time::now() + (owed * CONFIRM) as Nanos)?,
        };
        if let Some(own_time) = &mut self.own_time {
            own_time.stopped(stopped.from);
        }
        if let Some(cpus) = self.shared_cpus {
            // Since this thread woke up, tasks on one of the CPUs have waited for as long as it ran.
            loss += woken.until(stopped.from) / cpus;
        }
        let until = (stopped.from + self.ledger.owed() as Nanos - loss).min(latest);
        let expected = self.early.part;
        self.resume_sleepers(until, way_out, (wait, kept));
        loss += (way_out * (expected - self.early.part)) as Nanos;
        let busy_tasks = self.sampler.busy_tasks();
        self.stopper.set_busy(&busy_tasks);
        if let Some(pins) = &mut self.pin_apart
            && self.sampler.knows_all()
        {
            pins.bind(&busy_tasks);
        }
        let busy = self.sampler.busy();
        IdlePusher::sleep_until(self.idle_pusher.as_ref(), until, busy, |moment| {
            sleep_until(moment, wait, kept);
        });
        if let Some(own_time) = &mut self.own_time {
            own_time.before_resume();
        }
        let before = Moment::now();
        let resumed = self.stopper.resume()?;
        if let Some(pins) = &mut self.pin_apart {
            pins.unbind();
        }
        if let Some(pusher) = &self.idle_pusher {
            pusher.sleep_and_search(self.search_time(run, way_out * (1.0 - self.early.part)));
        }
        if let Some(cpus) = self.shared_cpus {
            loss += Moment { at: resumed, ..before }.until(time::now()) / cpus;
        }
        if let Some(own_time) = &mut self.own_time {
            loss += own_time.resumed(resumed);
        }
        let taken = (resumed - stopped.from - self.stopper.overrun() / self.cpus).max(0);
        self.ledger.settle((taken + loss) as f64);
        self.progress.counters.add_stop(taken, loss);
        self.progress.stops.fetch_add(1, Ordering::Relaxed);
        self.progress.unconfirmed.fetch_add(i64::from(!stopped.is_confirmed), Ordering::Relaxed);
        Ok(())
    }

    /// Resumes the sleeping tasks so long before `until` that they sleep again by then, which takes them `way_out` nanoseconds.
    fn resume_sleepers(&mut self, until: Nanos, way_out: f64, (wait, kept): (&Wait<f64>, Option<f64>)) {
        self.early.part = 0.0;
        let lead = self.early.took + (WAY_OUT * way_out) as Nanos;
        // A short stop would be over before the sleepers are resumed.
        if self.sampler.tasks() < MANY_TASKS
            || until - time::now() < 2 * lead
            || is_off(Correction::EarlySleepers)
        {
            // At the end of the stop, reading the CPU times would make it longer.
            let settled = time::now() + SETTLE;
            if settled + SETTLE < until && !is_off(Correction::Settle) {
                sleep_until(settled, wait, kept);
            }
            self.sampler.while_stopped();
            return;
        }
        sleep_until(until - lead, wait, kept);
        let begin = time::now();
        self.sampler.while_stopped();
        self.early.part = self.stopper.resume_sleepers();
        self.early.took = time::now() - begin;
    }

    /// How long idle CPUs search for waiting tasks after a stop. The tasks run for `run`, of which sleepers need `way_out` to
    /// sleep again.
    fn search_time(&self, run: f64, way_out: f64) -> Nanos {
        // Where there is a CPU for each task, two tasks rarely meet on one.
        if self.sampler.tasks() as i64 <= self.cpus || is_off(Correction::SearchAfterStop) {
            return 0;
        }
        (way_out + (run * SEARCH_PART).min(SEARCH_FOR as f64)) as Nanos
    }

    /// How many periods to merge into one.
    fn stride(&self) -> i64 {
        if self.sampler.tasks() < MANY_TASKS {
            return 1;
        }
        let mut costs = self.cpu_costs;
        costs.sort_unstable();
        let cost = costs.get(COSTS / 2).copied().unwrap_or(0);
        let period = self.grid.period() as f64;
        let longest = (time::nanos(PERIOD_MAX) as f64 / period).max(1.0);
        let stride = (cost as f64 / (OWN_CPU_AIM * period)).ceil().clamp(1.0, longest);
        if stride > 1.0 {
            self.notes.add(format!(
                "there are so many tasks that stops are made fewer and longer, to keep emu's own CPU time at {:.0} %",
                OWN_CPU_MAX * 100.0
            ));
        }
        stride as i64
    }
}

/// Sleeps until a moment within a stop, the end of the emulation, or until another share than `kept` is asked for: `None` waits
/// for the end of the stop with any.
fn sleep_until(moment: Nanos, wait: &Wait<f64>, kept: Option<f64>) {
    loop {
        let (command, generation) = wait.command();
        let ends = match command {
            Command::Stop => true,
            Command::Run(share) => kept.is_some_and(|kept| kept.to_bits() != share.to_bits()),
        };
        if ends || wait.until(moment, generation) {
            return;
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
