//! One thread at work: how it computes through a window, and what is known of it afterwards.

use std::fs;
use std::path::Path;

use emu_core::{CpuList, Error, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::kernel::{self, QUANTUM};
use super::stamps::{Stamps, fill};
use super::{Done, Order, Running};
use crate::wrong;

/// Binds the calling thread to `cpus`, of numbers up to 1023.
pub fn confine(cpus: &CpuList) -> Result<()> {
    let failed =
        |cause: nix::Error| Error::io(format!("cannot run the workload on CPUs {cpus}"), cause.into());
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        set.set(cpu).map_err(failed)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(failed)
}

/// The CPUs of the calling thread, as procfs tells them: nix asks for no more than 1024, which a kernel with more refuses.
pub(super) fn own_cpus() -> Result<CpuList> {
    let status = Path::new("/proc/thread-self/status");
    let text = fs::read_to_string(status).map_err(|cause| Error::file("read", status, cause))?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or_else(|| Ok(CpuList::default()), |list| list.trim().parse())
}

/// The chain of one thread, with a stamp after every quantum.
#[derive(Debug)]
pub(super) struct Chain {
    state: u64,
    steps: u64,
    pub(super) stamps: Stamps,
}

impl Chain {
    pub(super) fn new() -> Self {
        Self { state: kernel::START, steps: 0, stamps: Stamps::default() }
    }

    pub(super) fn restart(&mut self, window_ns: u64) {
        self.state = kernel::START;
        self.steps = 0;
        self.stamps.restart(window_ns);
    }

    pub(super) fn stamp(&mut self) -> u64 {
        self.stamps.note(self.steps)
    }

    pub(super) fn quantum(&mut self) -> u64 {
        self.state = kernel::advance(self.state, QUANTUM);
        self.steps += QUANTUM;
        self.stamp()
    }

    /// Whether it is right: else the CPU has computed wrongly, or the work was not done.
    pub(super) fn verify(&self) -> Result<()> {
        if self.state == kernel::expected(kernel::START, self.steps) {
            return Ok(());
        }
        Err(wrong(format_args!("result of {} steps: {:#018x}", self.steps, self.state)))
    }
}

/// Computes without a break until the window has passed; see [`fill`].
impl Running for Chain {
    fn through(&mut self, order: &Order) -> Result<Done> {
        self.restart(order.length_ns);
        let Self { state, steps, stamps } = self;
        let done = fill(order, stamps, || {
            *state = kernel::advance(*state, QUANTUM);
            *steps += QUANTUM;
            Ok(*steps)
        })?;
        self.verify()?;
        Ok(Done { quantum_ns: self.stamps.step_ns(), ..done })
    }
}

#[cfg(test)]
mod tests {
    use super::super::clocks::now_ns;
    use super::*;
    use emu_core::ErrorKind;

    #[test]
    fn a_window_of_a_free_cpu_is_filled_with_verified_work() {
        let mut chain = Chain::new();
        // Beside other tests the thread may have to wait for its turn before it begins.
        let order = Order { begin_ns: now_ns() + 200_000_000, length_ns: 20_000_000, first: 0, stamps: true };
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
        assert_eq!(chain.verify().unwrap_err().kind(), ErrorKind::WrongResult);
    }

    #[test]
    fn a_worker_that_comes_too_late_says_so() {
        let mut chain = Chain::new();
        let order = Order { begin_ns: now_ns() - 1_000_000, length_ns: 3_000_000, first: 0, stamps: false };
        assert!(chain.through(&order).unwrap().late_ns >= 1_000_000);
    }
}
