//! Emulations whose true speed is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use emu_bench::verify::{Emulated, LifetimeRule};
use emu_core::{Error, Pid, Result};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};

/// A thread that stops and resumes a process until it is to end.
pub(super) struct AtWork {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl AtWork {
    fn end(self) {
        self.ending.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

/// Stops and continues a process, and keeps account of how long it really ran.
pub(super) struct Stopper {
    /// For how long of each period the process is stopped.
    stop: Duration,
    period: Duration,
    /// Whether children are stopped, too.
    is_thorough: bool,
    at_work: Option<AtWork>,
    /// Nanoseconds for which the process was stopped at least, and at most, and nanoseconds in all.
    account: Arc<[AtomicU64; 3]>,
}

impl Stopper {
    pub(super) fn new(share: f64) -> Self {
        let period = Duration::from_millis(20);
        let account = Arc::new([0; 3].map(AtomicU64::new));
        Self { stop: period.mul_f64(1.0 - share), period, is_thorough: false, at_work: None, account }
    }

    pub(super) fn thorough(share: f64) -> Self {
        Self { is_thorough: true, ..Self::new(share) }
    }

    /// The share that was delivered at least, and at most: a process that is resumed may run before the thread that
    /// resumes it has looked at the clock.
    pub(super) fn delivered(&self) -> [f64; 2] {
        let [least, most, all] = self.account.each_ref().map(|sum| sum.load(Ordering::SeqCst) as f64);
        [1.0 - most / all, 1.0 - least / all]
    }
}

impl Emulated for Stopper {
    fn name(&self) -> String {
        "stopper".into()
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let ending = Arc::new(AtomicBool::new(false));
        let (stop, period, account) = (self.stop, self.period, Arc::clone(&self.account));
        let theirs = Arc::clone(&ending);
        let pids = if self.is_thorough { descendants(worker) } else { vec![worker] };
        let thread = thread::spawn(move || {
            while !theirs.load(Ordering::SeqCst) {
                let begin = Instant::now();
                signal(&pids, Signal::SIGSTOP);
                until_stopped(&pids);
                let is_stopped = Instant::now();
                thread::sleep(stop);
                let least = is_stopped.elapsed();
                signal(&pids, Signal::SIGCONT);
                let most = begin.elapsed();
                thread::sleep(period.saturating_sub(most));
                let spans = [least, most, begin.elapsed()];
                for (sum, span) in account.iter().zip(spans) {
                    sum.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
                }
            }
        });
        self.at_work = Some(AtWork { ending, thread });
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        if let Some(at_work) = self.at_work.take() {
            at_work.end();
        }
        Ok(())
    }
}

/// A worker and its children.
fn descendants(worker: Pid) -> Vec<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{worker}/task/{worker}/children")).unwrap();
    std::iter::once(worker).chain(children.split_whitespace().map(|pid| pid.parse().unwrap())).collect()
}

fn signal(pids: &[Pid], signal: Signal) {
    for &pid in pids {
        kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }
}

/// Waits until every thread of these processes has stopped. One that sleeps has to be scheduled first, and it may be the one
/// that stops the others: they compute until then.
fn until_stopped(pids: &[Pid]) {
    let is_stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z', 'X']))
    };
    let tasks = |pid: &Pid| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let begin = Instant::now();
    while !pids.iter().flat_map(tasks).all(is_stopped) && begin.elapsed() < Duration::from_millis(50) {
        thread::sleep(Duration::from_micros(50));
    }
}

/// Stops the worker and its children once in each window, and else does nothing.
pub(super) struct Stall {
    length: Duration,
    at_work: Option<JoinHandle<[Duration; 2]>>,
    /// For how long they were stopped at least, and at most, in the longest stop.
    longest: [Duration; 2],
}

impl Stall {
    pub(super) fn new(length: Duration) -> Self {
        Self { length, at_work: None, longest: [Duration::ZERO; 2] }
    }

    pub(super) fn longest(&self) -> [Duration; 2] {
        self.longest
    }
}

impl Emulated for Stall {
    fn name(&self) -> String {
        "stall".into()
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let (length, pids) = (self.length, descendants(worker));
        // Soon after the window has begun.
        let begin = self.settle() + Duration::from_millis(5);
        self.at_work = Some(thread::spawn(move || {
            thread::sleep(begin);
            let begin = Instant::now();
            signal(&pids, Signal::SIGSTOP);
            until_stopped(&pids);
            let is_stopped = Instant::now();
            thread::sleep(length);
            let least = is_stopped.elapsed();
            signal(&pids, Signal::SIGCONT);
            [least, begin.elapsed()]
        }));
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        if let Some(thread) = self.at_work.take() {
            let [least, most] = thread.join().unwrap();
            self.longest = [self.longest[0].max(least), self.longest[1].max(most)];
        }
        Ok(())
    }
}

/// CPU-Lim as published: stops each process while its CPU time is at least a share of its lifetime.
pub(super) struct Lim {
    pub(super) share: f64,
    pub(super) at_work: Option<AtWork>,
}

impl Emulated for Lim {
    fn name(&self) -> String {
        "lim".into()
    }

    fn period(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn lifetime_rule(&self) -> Option<LifetimeRule> {
        Some(LifetimeRule { share: self.share, period: self.period(), cpus: 1 })
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let ending = Arc::new(AtomicBool::new(false));
        let (share, period, theirs) = (self.share, self.period(), Arc::clone(&ending));
        let born = born(worker);
        let thread = thread::spawn(move || {
            while !theirs.load(Ordering::SeqCst) {
                let lived = since_boot().saturating_sub(born);
                let is_reached = used(worker) >= lived.mul_f64(share);
                signal(&[worker], if is_reached { Signal::SIGSTOP } else { Signal::SIGCONT });
                thread::sleep(period);
            }
            signal(&[worker], Signal::SIGCONT);
        });
        self.at_work = Some(AtWork { ending, thread });
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        if let Some(at_work) = self.at_work.take() {
            at_work.end();
        }
        Ok(())
    }
}

/// CPU time of a process.
fn used(pid: Pid) -> Duration {
    let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(pid)).unwrap();
    clock_gettime(clock).unwrap().into()
}

/// When a process was started, after boot; in `/proc` in hundredths of a second.
fn born(pid: Pid) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ticks = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap();
    Duration::from_millis(10 * ticks.parse::<u64>().unwrap())
}

fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap().into()
}

/// Promises much and does nothing, or fails.
pub(super) struct Idle {
    pub(super) fails: bool,
    pub(super) seen: Vec<Pid>,
}

impl Emulated for Idle {
    fn name(&self) -> String {
        "idle".into()
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        self.seen.push(worker);
        if self.fails { Err(Error::unavailable("it cannot")) } else { Ok(()) }
    }

    fn release(&mut self) -> Result<()> {
        Ok(())
    }
}
