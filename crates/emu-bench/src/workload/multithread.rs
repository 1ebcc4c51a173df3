//! Threads of one process that compute without a break.

use emu_core::Result;

use super::part::Chain;
use super::threads;
use super::{Job, Running, Setting, Workload};

pub(super) struct Multithread;

impl Workload for Multithread {
    fn name(&self) -> &'static str {
        "multithread"
    }

    fn about(&self) -> &'static str {
        "one process with as many computing threads as the zone has CPUs, at least two"
    }

    fn job(&self, setting: &Setting) -> Job {
        Job { active: setting.cpus.len().max(2), ..Job::new(self.name(), &setting.cpus) }
    }

    fn start(&self, job: &Job) -> Result<Box<dyn Running>> {
        threads::start(job, Chain::new)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Order;
    use super::super::clocks::now_ns;
    use super::*;

    #[test]
    fn every_thread_reports_its_own_work() {
        for pinned in [false, true] {
            let job = Job { active: 3, pinned, ..Job::new("multithread", &cpus_of_this_thread()) };
            let mut running = Multithread.start(&job).unwrap();
            let begin_ns = now_ns() + 20_000_000;
            let order = Order { begin_ns, length_ns: 20_000_000, first: 0, stamps: false };
            let done = running.through(&order).unwrap();
            assert_eq!(done.parts.len(), 3);
            assert!(done.work() > 0.0);
        }
    }

    fn cpus_of_this_thread() -> emu_core::CpuList {
        emu_core::Host::detect(&emu_core::Roots::system()).unwrap().allowed
    }
}
