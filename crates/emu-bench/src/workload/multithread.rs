//! Threads of one process that compute without a break.

use std::thread;

use emu_core::{Error, ErrorKind, Result};

use super::bound::Bound;
use super::part::{self, Chain};
use super::{Done, Job, Order, Running, Setting, Workload};

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
        if job.pinned {
            let bound = Bound::start(job, || {
                let mut chain = Chain::new();
                move |order: &Order| chain.through(order)
            })?;
            return Ok(Box::new(bound));
        }
        Ok(Box::new(Threads { job: job.clone(), chains: (0..job.active).map(|_| Chain::new()).collect() }))
    }
}

struct Threads {
    job: Job,
    chains: Vec<Chain>,
}

impl Running for Threads {
    fn through(&mut self, order: &Order) -> Result<Done> {
        let job = &self.job;
        thread::scope(|scope| {
            // New threads for each window: an emulation must also catch those that begin while it is at work.
            let threads: Vec<_> = self
                .chains
                .iter_mut()
                .enumerate()
                .map(|(number, chain)| {
                    thread::Builder::new()
                        .spawn_scoped(scope, move || {
                            part::confine(&job.cpus_of(number))?;
                            chain.through(order)
                        })
                        .map_err(|cause| Error::io("cannot start a thread of the workload", cause))
                })
                .collect::<Result<_>>()?;
            let parts = threads.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Error::new(ErrorKind::Failed, "a thread of the workload failed")))
            });
            parts.reduce(|all, one| Ok(all?.join(one?))).unwrap_or_else(|| Ok(Done::default()))
        })
    }
}

#[cfg(test)]
mod tests {
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
