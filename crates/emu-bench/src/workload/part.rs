//! One thread at work: how it computes through a window, and what is known of it afterwards.

use emu_core::{CpuList, Error, ErrorKind, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::kernel::{self, QUANTUM};
use super::{Done, Order};
use crate::stats::Stamp;

/// Stamps for which room is made ahead of a window: one for every 10 µs, as many as fit 64 MB.
const STAMP_EVERY_NS: u64 = 10_000;
const STAMPS_MAX: u64 = 4_000_000;

/// Now on `CLOCK_MONOTONIC`, which worker and harness share, in nanoseconds.
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CPU time of this process, in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread, in nanoseconds.
pub(super) fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: ClockId) -> u64 {
    // These clocks exist on every Linux that Rust supports; the call has no other way to fail.
    clock_gettime(clock).map_or(0, |time| (time.tv_sec() * 1_000_000_000 + time.tv_nsec()) as u64)
}

/// Binds the calling thread to `cpus`.
///
/// # Errors
/// None of the CPUs can be used, or one has a number above 1023, which these workloads do not support.
pub(super) fn confine(cpus: &CpuList) -> Result<()> {
    let failed =
        |cause: nix::Error| Error::io(format!("cannot run the workload on CPUs {cpus}"), cause.into());
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        set.set(cpu).map_err(failed)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(failed)
}

/// The chain of one thread, with a stamp after every quantum.
#[derive(Debug)]
pub(super) struct Chain {
    state: u64,
    steps: u64,
    pub(super) stamps: Vec<Stamp>,
}

impl Chain {
    pub(super) fn new() -> Self {
        Self { state: kernel::START, steps: 0, stamps: Vec::new() }
    }

    /// Begins anew, with room for the stamps of a window of this length.
    pub(super) fn restart(&mut self, window_ns: u64) {
        self.state = kernel::START;
        self.steps = 0;
        self.stamps.clear();
        self.stamps.reserve((window_ns / STAMP_EVERY_NS).min(STAMPS_MAX) as usize);
    }

    /// Notes the time without having worked.
    pub(super) fn stamp(&mut self) -> u64 {
        let time_ns = now_ns();
        self.stamps.push(Stamp { time_ns, work: self.steps });
        time_ns
    }

    /// Does one quantum and notes the time.
    pub(super) fn quantum(&mut self) -> u64 {
        self.state = kernel::advance(self.state, QUANTUM);
        self.steps += QUANTUM;
        self.stamp()
    }

    /// Whether the result is what this many steps must give.
    ///
    /// # Errors
    /// It is not: the CPU has computed wrongly, or the work was not done.
    pub(super) fn verify(&self) -> Result<()> {
        if self.state == kernel::expected(kernel::START, self.steps) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Failed,
            format!("wrong result of {} steps: {:#018x}; the sample is void", self.steps, self.state),
        ))
    }

    /// Computes without a break until the window has passed.
    ///
    /// Work begins at once, so that it is under way when the window opens. The borders of the window are
    /// moments of the clock and not of the work: on/off emulation holds the thread at any of them, and a window
    /// that waited for the thread would be too long by half a hold on average.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub(super) fn through(&mut self, order: &Order) -> Result<Done> {
        self.restart(order.length_ns);
        let mut now = self.stamp();
        while now < order.begin_ns {
            // Of the stamps before the window only the last one matters.
            self.stamps.clear();
            self.stamp();
            now = self.quantum();
        }
        let cpu_ns = thread_cpu_ns();
        while now < order.end_ns() {
            now = self.quantum();
        }
        let cpu_ns = thread_cpu_ns() - cpu_ns;
        self.verify()?;
        let first = self.stamps.first().map_or(0, |stamp| stamp.time_ns);
        let (begin, end) = (order.begin_ns, order.end_ns());
        Ok(Done {
            begun_ns: begin,
            ended_ns: end,
            parts: vec![work_at(&self.stamps, end) - work_at(&self.stamps, begin)],
            cpu_ns,
            spent_ns: 0,
            slept_ns: 0,
            quantum_ns: self.quantum_ns(),
            longest_stall_ns: self.longest_stall_ns(),
            late_ns: first.saturating_sub(begin),
            stamps: if order.stamps { pairs(&self.stamps) } else { Vec::new() },
        })
    }

    /// How long an undisturbed quantum takes: the lower quartile. It follows the core clock, whatever keeps
    /// the thread from its CPU in between.
    pub(super) fn quantum_ns(&self) -> f64 {
        let mut spans: Vec<u64> = self.spans().collect();
        spans.sort_unstable();
        spans.get(spans.len() / 4).map_or(0.0, |span| *span as f64)
    }

    /// The longest time between two stamps with work between them.
    pub(super) fn longest_stall_ns(&self) -> u64 {
        self.spans().max().unwrap_or(0)
    }

    fn spans(&self) -> impl Iterator<Item = u64> + '_ {
        self.stamps.windows(2).filter_map(|pair| match pair {
            [a, b] if b.work > a.work => Some(b.time_ns - a.time_ns),
            _ => None,
        })
    }
}

fn pairs(stamps: &[Stamp]) -> Vec<(u64, u64)> {
    stamps.iter().map(|stamp| (stamp.time_ns, stamp.work)).collect()
}

/// The work done at a moment, in steps: between two stamps in proportion, which is wrong by less than a
/// quantum. Before the first stamp nothing was done.
fn work_at(stamps: &[Stamp], time_ns: u64) -> f64 {
    let after = stamps.partition_point(|stamp| stamp.time_ns <= time_ns);
    let last = after.checked_sub(1).and_then(|before| stamps.get(before));
    match (last, stamps.get(after)) {
        (Some(a), Some(b)) => {
            let share = (time_ns - a.time_ns) as f64 / (b.time_ns - a.time_ns) as f64;
            a.work as f64 + share * (b.work - a.work) as f64
        }
        (Some(stamp), None) | (None, Some(stamp)) => stamp.work as f64,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(points: &[(u64, u64)]) -> Vec<Stamp> {
        points.iter().map(|&(time_ns, work)| Stamp { time_ns, work }).collect()
    }

    #[test]
    fn work_is_found_between_stamps_and_is_nothing_before_the_first() {
        let stamps = stamps(&[(100, 0), (200, 50), (400, 60)]);
        for (time, work) in
            [(0, 0.0), (100, 0.0), (150, 25.0), (200, 50.0), (300, 55.0), (400, 60.0), (900, 60.0)]
        {
            assert!((work_at(&stamps, time) - work).abs() < 1e-9, "{time}");
        }
        assert!(work_at(&[], 5).abs() < 1e-9);
    }

    #[test]
    fn a_window_of_a_free_cpu_is_filled_with_verified_work() {
        let mut chain = Chain::new();
        let order = Order { begin_ns: now_ns() + 10_000_000, length_ns: 20_000_000, first: 0, stamps: true };
        let done = chain.through(&order).unwrap();
        assert_eq!((done.begun_ns, done.ended_ns), (order.begin_ns, order.end_ns()));
        assert_eq!(done.late_ns, 0);
        assert!(done.work() > 0.0 && done.rate() > 1e6);
        // From the last stamp before the window to the first one after it; only work between the borders counts.
        assert!(done.stamps[0].0 <= order.begin_ns && done.stamps.last().unwrap().0 >= order.end_ns());
        assert!(done.work() < chain.steps as f64);
        assert!(done.quantum_ns > 0.0 && done.longest_stall_ns as f64 >= done.quantum_ns);
    }

    #[test]
    fn a_chain_that_was_not_run_is_found_out() {
        let mut chain = Chain::new();
        chain.quantum();
        chain.steps += 1;
        assert_eq!(chain.verify().unwrap_err().kind(), ErrorKind::Failed);
    }

    #[test]
    fn a_worker_that_comes_too_late_says_so() {
        let mut chain = Chain::new();
        let order = Order { begin_ns: now_ns() - 1_000_000, length_ns: 3_000_000, first: 0, stamps: false };
        assert!(chain.through(&order).unwrap().late_ns >= 1_000_000);
    }
}
