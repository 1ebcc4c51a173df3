//! The control thread of a method. It can be retargeted and stopped at any moment and publishes counters.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::notes::Notes;
use crate::sys::time::{self, Nanos};
use crate::sys::{affinity, lock, sched};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command<T> {
    Run(T),
    /// Resume all tasks and end.
    Stop,
}

/// Any thread may read these. Times are in nanoseconds; `stopped`, `cost` and `elapsed` count since the last change of
/// settings.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) periods: AtomicU64,
    /// Periods skipped for being late.
    pub(crate) missed: AtomicU64,
    /// The longest stop, with its cost.
    pub(crate) longest_stop: AtomicI64,
    pub(crate) stopped: AtomicI64,
    /// What the stops cost the tasks beyond their length.
    pub(crate) cost: AtomicI64,
    pub(crate) elapsed: AtomicI64,
    pub(crate) cpu: AtomicI64,
    pub(crate) burned: AtomicI64,
}

impl Counters {
    /// Share of time not stopped; 1 before the first period.
    pub(crate) fn duty(&self) -> f64 {
        self.share_left(self.stopped.load(Ordering::Relaxed))
    }

    /// Share of time that tasks could use: costs are subtracted.
    pub(crate) fn effective(&self) -> f64 {
        self.share_left(self.stopped.load(Ordering::Relaxed) + self.cost.load(Ordering::Relaxed))
    }

    fn share_left(&self, taken: Nanos) -> f64 {
        let elapsed = self.elapsed.load(Ordering::Relaxed);
        if elapsed <= 0 { 1.0 } else { (1.0 - taken as f64 / elapsed as f64).max(0.0) }
    }

    pub(crate) fn add_stop(&self, stopped: Nanos, cost: Nanos) {
        self.stopped.fetch_add(stopped, Ordering::Relaxed);
        self.cost.fetch_add(cost, Ordering::Relaxed);
        self.longest_stop.fetch_max(stopped + cost, Ordering::Relaxed);
    }

    /// Called after the stops within that time, so that shares are always right.
    pub(crate) fn add_elapsed(&self, elapsed: Nanos) {
        self.elapsed.fetch_add(elapsed, Ordering::Relaxed);
    }

    pub(crate) fn add_periods(&self, done: u64, missed: u64) {
        self.periods.fetch_add(done, Ordering::Relaxed);
        self.missed.fetch_add(missed, Ordering::Relaxed);
    }

    pub(crate) fn set_cpu(&self, cpu: Nanos) {
        self.cpu.store(cpu, Ordering::Relaxed);
    }

    pub(crate) fn restart(&self) {
        for sum in [&self.stopped, &self.cost, &self.elapsed] {
            sum.store(0, Ordering::Relaxed);
        }
    }
}

struct Shared<T> {
    /// Changes with each command; the thread waits on it.
    generation: AtomicU32,
    command: Mutex<Command<T>>,
    /// Why the thread has ended; `None` while it runs and after a panic.
    end: Mutex<Option<String>>,
}

/// The thread's side: commands and interruptible waits.
pub(crate) struct Wait<T>(Arc<Shared<T>>);

impl<T: Copy> Wait<T> {
    /// The command in force and its generation, to be handed to [`until`](Self::until).
    pub(crate) fn command(&self) -> (Command<T>, u32) {
        let generation = self.generation();
        (*lock(&self.0.command), generation)
    }

    /// Cheaper than reading the command.
    pub(crate) fn generation(&self) -> u32 {
        self.0.generation.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(*lock(&self.0.command), Command::Stop)
    }

    /// Sleeps until `deadline`; false when a command newer than `generation` came first.
    pub(crate) fn until(&self, deadline: Nanos, generation: u32) -> bool {
        loop {
            if self.generation() != generation {
                return false;
            }
            if time::now() >= deadline {
                return true;
            }
            time::wait_until(&self.0.generation, generation, deadline);
        }
    }
}

/// A running control thread; dropping it stops the thread.
pub(crate) struct DutyThread<T> {
    shared: Arc<Shared<T>>,
    thread: Option<JoinHandle<Result<()>>>,
    name: String,
}

impl<T> fmt::Debug for DutyThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DutyThread").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Copy + Send + 'static> DutyThread<T> {
    /// Starts `body` on a thread called `name`, of which the kernel shows 15 bytes. `setup` runs on it first; this returns once
    /// that has succeeded.
    pub(crate) fn spawn<S: 'static>(
        name: &str,
        first: T,
        setup: impl FnOnce() -> Result<S> + Send + 'static,
        body: impl FnOnce(S, &Wait<T>) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            generation: AtomicU32::new(0),
            command: Mutex::new(Command::Run(first)),
            end: Mutex::new(None),
        });
        let (ready, is_ready) = std::sync::mpsc::sync_channel::<Result<()>>(1);
        let theirs = Wait(Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                time::no_timer_slack();
                match setup() {
                    Ok(state) => {
                        let _ = ready.send(Ok(()));
                        let result = body(state, &theirs);
                        let why = result.as_ref().map_or_else(Error::in_words, |()| "it was done".into());
                        *lock(&theirs.0.end) = Some(why);
                        result
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        Ok(())
                    }
                }
            })
            .map_err(|e| Error::io(format!("cannot start the thread `{name}`"), e))?;
        let controller = Self { shared, thread: Some(thread), name: name.to_owned() };
        match is_ready.recv() {
            Ok(Ok(())) => Ok(controller),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(controller.died()),
        }
    }

    /// The thread takes the settings up at its next step.
    pub(crate) fn set(&self, settings: T) {
        self.command(Command::Run(settings));
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Why the thread has ended; `None` while it runs.
    pub(crate) fn ended(&self) -> Option<String> {
        let why = lock(&self.shared.end).clone();
        self.is_finished().then(|| why.unwrap_or_else(|| "it has panicked".into()))
    }

    /// Waits for the thread, and returns the error that ended it.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.command(Command::Stop);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(self.died()),
        }
    }

    fn died(&self) -> Error {
        Error::new(crate::error::ErrorKind::Failed, format!("the thread `{}` has panicked", self.name))
    }
}

impl<T> DutyThread<T> {
    fn command(&self, command: Command<T>) {
        *lock(&self.shared.command) = command;
        self.shared.generation.fetch_add(1, Ordering::Release);
        time::wake(&self.shared.generation);
    }
}

impl<T> Drop for DutyThread<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.command(Command::Stop);
            let _ = thread.join();
        }
    }
}

/// Above normal tasks, so that a busy zone does not delay its own control thread; below burners and kernel threads.
const PRIORITY: i32 = 5;

/// Puts the calling thread where it disturbs the zone least: on CPUs outside the zone, if this process may use any, and ahead
/// of normal tasks, if allowed. Returns whether it is outside the zone.
pub(crate) fn settle_duty_thread(host: &Host, cpus: &CpuList, notes: &Notes) -> bool {
    let others = host.allowed.difference(cpus);
    let is_away = !others.is_empty() && affinity::set(0, &others).is_ok();
    if sched::set_fifo(PRIORITY).is_err() && !is_away {
        notes.add(
            "emu's control thread has no real-time priority and shares the zone's CPUs: it may run late when they are busy"
                .into(),
        );
    }
    is_away
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts periods of a millisecond until it is stopped.
    fn counting(counter: Arc<AtomicU64>) -> Result<DutyThread<u64>> {
        DutyThread::spawn(
            "counting",
            1,
            || Ok(()),
            move |(), wait| {
                loop {
                    let (Command::Run(step), generation) = wait.command() else { return Ok(()) };
                    counter.fetch_add(step, Ordering::Relaxed);
                    wait.until(time::now() + 1_000_000, generation);
                }
            },
        )
    }

    #[test]
    fn a_thread_runs_takes_new_settings_and_stops() {
        let counter = Arc::new(AtomicU64::new(0));
        let mut controller = counting(Arc::clone(&counter)).unwrap();
        controller.set(1_000_000);
        while counter.load(Ordering::Relaxed) < 1_000_000 {
            thread::yield_now();
        }
        controller.stop().unwrap();
        let end = counter.load(Ordering::Relaxed);
        thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(counter.load(Ordering::Relaxed), end);
    }

    #[test]
    fn a_failing_setup_is_the_error_of_spawn() {
        let failed = DutyThread::spawn("failing", (), || Err::<(), _>(Error::usage("no")), |(), _| Ok(()));
        assert_eq!(failed.unwrap_err().to_string(), "no");
    }

    #[test]
    fn the_reason_for_an_end_is_told_after_it() {
        let end_with = |result: fn() -> Result<()>| {
            let controller = DutyThread::spawn("ending", (), || Ok(()), move |(), _| result()).unwrap();
            while !controller.is_finished() {
                thread::yield_now();
            }
            controller.ended().unwrap()
        };
        assert_eq!(end_with(|| Err(Error::usage("no"))), "no");
        assert_eq!(end_with(|| Ok(())), "it was done");
        assert!(end_with(|| std::panic::resume_unwind(Box::new("quiet"))).contains("panicked"));
        assert_eq!(counting(Arc::default()).unwrap().ended(), None);
    }

    #[test]
    fn stopping_does_not_wait_for_a_long_sleep() {
        let mut controller = DutyThread::spawn(
            "sleeping",
            (),
            || Ok(()),
            |(), wait| {
                // The stop may come before the thread gets here.
                if let (Command::Run(()), generation) = wait.command() {
                    wait.until(time::now() + 3_600_000_000_000, generation);
                }
                Ok(())
            },
        )
        .unwrap();
        controller.stop().unwrap();
        assert!(controller.is_finished());
    }
}
