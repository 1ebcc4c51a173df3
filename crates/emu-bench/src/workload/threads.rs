//! Threads that are bound before anything slows them, and work through all windows.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use emu_core::{CpuList, Error, ErrorKind, Result};

use super::part;
use super::{Done, Job, Order, Running};

/// The threads of a pinned job, in the order of its parts. They end when this is dropped. An emulation may keep the threads of
/// each CPU in a group that has no other CPU: one that is born there could not bind itself elsewhere.
#[derive(Debug)]
pub(super) struct Bound(Vec<Ends>);

#[derive(Debug)]
struct Ends {
    orders: Sender<Order>,
    /// The first says that the thread is bound and its work is prepared.
    reports: Receiver<Result<Done>>,
}

impl Bound {
    /// Returns when all threads are ready. Each makes its work itself, so that the memory of it lies where that thread is.
    pub(super) fn start<W>(job: &Job, prepare: impl Fn() -> W + Copy + Send + 'static) -> Result<Self>
    where
        W: FnMut(&Order) -> Result<Done> + 'static,
    {
        let threads = (0..job.active).map(|number| Ends::start(job.cpus_of(number), prepare));
        let bound = Self(threads.collect::<Result<_>>()?);
        bound.0.iter().try_for_each(|thread| thread.report().map(drop))?;
        Ok(bound)
    }
}

impl Running for Bound {
    fn through(&mut self, order: &Order) -> Result<Done> {
        for thread in &self.0 {
            // One that has ended gives no report, which tells.
            let _ = thread.orders.send(*order);
        }
        let parts = self.0.iter().map(Ends::report);
        parts.reduce(|all, one| Ok(all?.join(one?))).unwrap_or_else(|| Ok(Done::default()))
    }
}

impl Ends {
    fn start<W>(cpus: CpuList, prepare: impl FnOnce() -> W + Send + 'static) -> Result<Self>
    where
        W: FnMut(&Order) -> Result<Done> + 'static,
    {
        let (orders, to_do) = mpsc::channel();
        let (done, reports) = mpsc::channel();
        thread::Builder::new()
            .spawn(move || serve(&cpus, prepare, &to_do, &done))
            .map(drop)
            .map_err(|cause| Error::io("cannot start a thread of the workload", cause))?;
        Ok(Self { orders, reports })
    }

    fn report(&self) -> Result<Done> {
        let failed = |_| Err(Error::new(ErrorKind::Failed, "a thread of the workload failed"));
        self.reports.recv().unwrap_or_else(failed)
    }
}

/// Who no longer takes reports gives no more orders either.
fn serve<W: FnMut(&Order) -> Result<Done>>(
    cpus: &CpuList,
    prepare: impl FnOnce() -> W,
    orders: &Receiver<Order>,
    reports: &Sender<Result<Done>>,
) {
    match part::confine(cpus).map(|()| prepare()) {
        Err(error) => drop(reports.send(Err(error))),
        Ok(mut work) => {
            let _ = reports.send(Ok(Done::default()));
            for order in orders {
                // Once more: before Linux 6.2 a cpuset that a thread is put into undoes its binding.
                let _ = reports.send(part::confine(cpus).and_then(|()| work(&order)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clocks::now_ns;
    use super::*;

    fn job(cpus: &CpuList) -> Job {
        Job { active: 3, pinned: true, ..Job::new("multithread", cpus) }
    }

    fn allowed() -> CpuList {
        emu_core::Host::detect(&emu_core::Roots::system()).unwrap().allowed
    }

    fn order() -> Order {
        Order { begin_ns: now_ns(), length_ns: 1_000_000, first: 0, stamps: false }
    }

    #[test]
    fn threads_are_bound_from_the_start_and_report_in_order() {
        let job = job(&allowed());
        let mut bound = Bound::start(&job, || {
            let cpus = part::own_cpus().unwrap();
            let mut windows = 0;
            move |_: &Order| {
                assert_eq!(part::own_cpus().unwrap(), cpus);
                windows += 1;
                let parts = cpus.iter().map(|cpu| cpu as f64).collect();
                Ok(Done { parts, longest_stall_ns: windows, spent_ns: 1, ..Done::default() })
            }
        })
        .unwrap();
        let expected: Vec<_> = (0..3).map(|number| job.cpus_of(number).first().unwrap() as f64).collect();
        for window in 1..=2 {
            let done = bound.through(&order()).unwrap();
            assert_eq!((done.parts, done.longest_stall_ns, done.spent_ns), (expected.clone(), window, 3));
        }
    }

    #[test]
    fn a_thread_that_cannot_be_bound_is_an_error_of_the_start() {
        let nowhere = job(&"1000".parse().unwrap());
        let error = Bound::start(&nowhere, || |_: &Order| Ok(Done::default())).unwrap_err();
        assert!(error.to_string().contains("1000"), "{error}");
    }

    #[test]
    fn a_thread_that_panics_is_an_error_of_every_window() {
        let mut bound = Bound::start(&job(&allowed()), || {
            |order: &Order| {
                assert!(!order.stamps, "the test wants a panic");
                Ok(Done::default())
            }
        })
        .unwrap();
        bound.through(&order()).unwrap();
        for stamps in [true, false] {
            let error = bound.through(&Order { stamps, ..order() }).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Failed);
        }
    }
}
