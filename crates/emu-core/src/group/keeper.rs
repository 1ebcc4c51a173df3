//! Keeps the quotas of a zone: corrects them, spreads threads, and knows how it goes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::balancer::Balancer;
use super::per_cpu::count_real_time;
use super::quota::{Governed, at_period_start};
use crate::duty::{Command, Controller, Wait};
use crate::sys::time::{self, Nanos};
use crate::{Error, Result};

/// How long demand is watched for one judgement of it, at least, and in how many periods.
const WINDOW: Nanos = 2_000_000_000;
const WINDOW_PERIODS: Nanos = 10;

/// Where real-time threads are looked for, when there is no balancer that sees every thread anyway.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    /// The file that lists the threads.
    pub(crate) file: PathBuf,
    /// procfs.
    pub(crate) procfs: PathBuf,
}

/// What the thread works on, and what can be told of it.
#[derive(Debug)]
struct Work {
    governed: Vec<Governed>,
    balancer: Option<Balancer>,
    threads: Option<Threads>,
    window: Nanos,
    window_end: Nanos,
    first_periods: u64,
    real_time: usize,
    /// The last failure, until a round goes well.
    problem: Option<Error>,
}

/// Groups held at their quotas by a thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    work: Arc<Mutex<Work>>,
    thread: Controller<()>,
    own_cpu: Arc<AtomicI64>,
}

/// What is delivered per CPU of one group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Delivered {
    /// What tasks got while demand was full, else what the quota gives.
    pub(crate) effective: f64,
    /// What the quota gives.
    pub(crate) duty: f64,
}

/// How it goes.
#[derive(Debug)]
pub(crate) struct Report {
    /// Each group.
    pub(crate) groups: Vec<Delivered>,
    /// The period in force.
    pub(crate) period: Duration,
    /// Periods in which there was something to run.
    pub(crate) periods: u64,
    /// The longest time that a busy thread is held.
    pub(crate) longest_stall: Duration,
    /// CPU time of the thread.
    pub(crate) own_cpu: Duration,
    /// What is not as it should be.
    pub(crate) notes: Vec<String>,
}

impl Keeper {
    /// Gives each group `shares` (in CPUs, in the order of `governed`) of each period, fills the groups of
    /// `balancer`, and keeps both up from then on.
    ///
    /// # Errors
    /// The kernel refuses a quota, or a thread cannot be moved.
    pub(crate) fn start(
        mut governed: Vec<Governed>,
        balancer: Option<Balancer>,
        threads: Option<Threads>,
        shares: &[f64],
        period_us: u64,
    ) -> Result<Self> {
        for (group, &share) in governed.iter_mut().zip(shares) {
            group.ask(share, period_us)?;
        }
        let mut work = Work {
            governed,
            balancer,
            threads,
            window: 0,
            window_end: 0,
            first_periods: 0,
            real_time: 0,
            problem: None,
        };
        work.first_periods = work.periods();
        if let Some(balancer) = &mut work.balancer {
            balancer.begin(&work.governed)?;
        }
        work.begin_windows(period_us);
        let (work, own_cpu) = (Arc::new(Mutex::new(work)), Arc::new(AtomicI64::new(0)));
        let (theirs, cpu) = (Arc::clone(&work), Arc::clone(&own_cpu));
        let thread = Controller::spawn(
            "emu-fracas",
            (),
            || Ok(()),
            move |(), wait| {
                run(&theirs, &cpu, wait);
                Ok(())
            },
        )?;
        Ok(Self { work, thread, own_cpu })
    }

    /// Changes the shares and the period, within one period and a little.
    ///
    /// # Errors
    /// The kernel refuses one of them; then all are set back.
    pub(crate) fn retarget(&self, shares: &[f64], period_us: u64) -> Result<()> {
        let mut work = lock(&self.work);
        let before: Vec<_> = work.governed.iter().map(Governed::asked).collect();
        let mut groups: Vec<_> = work.governed.iter_mut().zip(shares.iter().copied()).collect();
        let changed = at_period_start(&mut groups, |group, share| group.ask(*share, period_us));
        if let Err(error) = changed {
            for (group, (share, period_us)) in work.governed.iter_mut().zip(before) {
                // What the kernel had accepted before it accepts again.
                let _ = group.ask(share, period_us);
            }
            return Err(error);
        }
        work.begin_windows(period_us);
        let Work { governed, balancer, .. } = &mut *work;
        let result = balancer.as_mut().map_or(Ok(()), |balancer| balancer.begin(governed));
        drop(work);
        self.thread.set(());
        result
    }

    /// How it goes.
    pub(crate) fn report(&self) -> Report {
        let work = lock(&self.work);
        let tick = time::tick();
        let period_us = work.governed.first().map_or(0, |group| group.asked().1);
        let mut notes = Vec::new();
        if let Some(problem) = &work.problem {
            notes.push(format!("the quotas could not be looked after: {}", problem.in_words()));
        }
        if self.thread.is_finished() {
            notes.push(
                "the thread that looks after the quotas has ended: they hold, but threads are not spread"
                    .into(),
            );
        }
        let missing = work.balancer.as_ref().map(Balancer::missing).filter(|missing| !missing.is_empty());
        notes.extend(missing.map(|missing| {
            format!(
                "CPUs {missing} are online, but the cgroup above does not have them: tasks share the others"
            )
        }));
        let stuck = work.balancer.as_ref().map_or(0, Balancer::stuck);
        if stuck > 0 {
            notes.push(format!("{stuck} threads could not be moved to the group of a CPU"));
        }
        if work.real_time > 0 {
            notes.push(format!("{} threads are real-time: no quota limits them", work.real_time));
        }
        Report {
            groups: work
                .governed
                .iter()
                .map(|group| Delivered { effective: group.effective(), duty: group.duty() })
                .collect(),
            period: Duration::from_micros(period_us),
            periods: work.periods().saturating_sub(work.first_periods),
            longest_stall: work
                .governed
                .iter()
                .map(|group| group.longest_stall(tick))
                .max()
                .unwrap_or_default(),
            own_cpu: time::span(self.own_cpu.load(Ordering::Relaxed)),
            notes,
        }
    }

    /// Ends the thread. The quotas stay until their groups go.
    ///
    /// # Errors
    /// The thread had failed.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.thread.stop()
    }
}

/// Its contents are valid after any step, so a thread that panicked with it does not take it along.
fn lock(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread.
fn run(work: &Mutex<Work>, own_cpu: &AtomicI64, wait: &Wait<()>) {
    loop {
        let (Command::Run(()), generation) = wait.command() else { return };
        let next = lock(work).next();
        if wait.until(next, generation) {
            lock(work).round();
            own_cpu.store(time::thread_cpu(), Ordering::Relaxed);
        }
    }
}

impl Work {
    fn begin_windows(&mut self, period_us: u64) {
        let period = period_us as Nanos * 1_000;
        // Whole periods, so that every window begins and ends at the same point of a turn.
        self.window = (WINDOW / period.max(1) + 1).max(WINDOW_PERIODS) * period;
        self.window_end = time::now();
    }

    fn next(&self) -> Nanos {
        self.balancer.as_ref().map_or(self.window_end, |balancer| balancer.next().min(self.window_end))
    }

    fn periods(&self) -> u64 {
        let periods = self.governed.iter().filter_map(|group| Some(group.read().ok()?.throttling.periods));
        periods.max().unwrap_or(0)
    }

    /// Does what is due. A failure is kept to be reported, and tried again at the next round: a CPU may be on
    /// its way offline, a thread on its way out.
    fn round(&mut self) {
        let balanced = self.balance();
        let corrected = self.correct();
        self.problem = balanced.and(corrected).err();
    }

    fn balance(&mut self) -> Result<()> {
        match &mut self.balancer {
            Some(balancer) if time::now() >= balancer.next() => {
                let result = balancer.look(&self.governed);
                self.real_time = balancer.real_time();
                result
            }
            _ => Ok(()),
        }
    }

    fn correct(&mut self) -> Result<()> {
        let now = time::now();
        if now < self.window_end {
            return Ok(());
        }
        let behind = (now - self.window_end) / self.window.max(1);
        self.window_end += (behind + 1) * self.window;
        let mut changed = Vec::new();
        for group in &mut self.governed {
            if group.end_window()? {
                changed.push((group, ()));
            }
        }
        at_period_start(&mut changed, |group, ()| group.renew())?;
        if let Some(threads) = &self.threads {
            self.real_time = count_real_time(threads)?;
        }
        Ok(())
    }
}
