//! Where emu itself runs while a cell is measured, and how its CPUs are left to the next one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use emu_core::{CpuId, CpuList, Host};
use nix::sched::sched_getcpu;

use crate::workload::confine;

/// The longest time between two tries of the scheduler to balance CPUs whose tasks are bound (`MAX_PINNED_INTERVAL` of
/// kernel/sched/fair.c: 512 ms), and a little.
const BALANCED: Duration = Duration::from_millis(600);

/// Keeps this process off the measured CPUs, where there are others. Dropped, it may use all again.
pub(super) struct Harness {
    allowed: CpuList,
    measured: CpuList,
}

impl Harness {
    pub(super) fn new(host: &Host) -> Self {
        Self { allowed: host.allowed.clone(), measured: host.allowed.clone() }
    }

    pub(super) fn leave(&mut self, host: &Host, measured: &CpuList) {
        let spare: CpuList = host.allowed.iter().filter(|&cpu| !measured.contains(cpu)).collect();
        // It may fail: the gate sees what disturbs.
        let _ = confine(if spare.is_empty() { &self.allowed } else { &spare });
        if measured.len() > self.measured.len() {
            balance(measured);
        }
        self.measured = measured.clone();
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let _ = confine(&self.allowed);
    }
}

/// Spreads threads over these CPUs, so that the scheduler balances them often from then on. While all work is bound to one CPU,
/// each try to move a task fails, and the next one comes up to half a second later: two threads of the next cell could share a
/// CPU for so long, natively as well.
fn balance(cpus: &CpuList) {
    let Some(first) = cpus.first() else { return };
    let (all_made, gone) = (AtomicBool::new(false), AtomicUsize::new(0));
    let one: CpuList = [first].into_iter().collect();
    thread::scope(|scope| {
        for _ in cpus.iter() {
            let _ = Builder::new().spawn_scoped(scope, || {
                let _ = confine(&one);
                while !all_made.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                let _ = confine(cpus);
                let begin = Instant::now();
                while gone.load(Ordering::Relaxed) + 1 < cpus.len() && begin.elapsed() < BALANCED {
                    if sched_getcpu().is_ok_and(|cpu| cpu as CpuId != first) {
                        gone.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
        all_made.store(true, Ordering::Relaxed);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::Roots;

    #[test]
    fn balancing_ends_and_leaves_the_caller_where_it_may_be() {
        let allowed = || Host::detect(&Roots::system()).unwrap().allowed;
        let before = allowed();
        let begin = Instant::now();
        balance(&before);
        balance(&[before.first().unwrap()].into_iter().collect());
        assert!(begin.elapsed() < BALANCED + Duration::from_secs(5));
        assert_eq!(allowed(), before);
    }
}
