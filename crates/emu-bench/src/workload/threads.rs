//! The threads of a job, each with a part of its work: bound before anything slows them, or new ones for each window.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use emu_core::{CpuList, Error, ErrorKind, Result};

use super::part;
use super::{Done, Job, Order, Running};

/// Returns when the part of every thread is prepared. Each makes its part itself, so that the memory of it lies where that
/// thread is.
pub(super) fn start<P: Running + Send + 'static>(
    job: &Job,
    prepare: impl Fn() -> P + Copy + Send + Sync + 'static,
) -> Result<Box<dyn Running>> {
    if job.pinned {
        return Ok(Box::new(Bound::start(job, prepare)?));
    }
    let parts = each_on_its_thread(job, 0..job.active, |_| Ok(prepare()))?;
    Ok(Box::new(Free { job: job.clone(), parts: parts.into_iter().collect::<Result<_>>()? }))
}

/// Threads that may move. There are new ones for each window: an emulation must also catch those that begin while it is at
/// work.
struct Free<P> {
    job: Job,
    parts: Vec<P>,
}

impl<P: Running + Send> Running for Free<P> {
    fn through(&mut self, order: &Order) -> Result<Done> {
        let done = each_on_its_thread(&self.job, self.parts.iter_mut(), |part| part.through(order))?;
        Done::of_all(done.into_iter())
    }
}

fn each_on_its_thread<P: Send, T: Send>(
    job: &Job,
    parts: impl Iterator<Item = P>,
    work: impl Fn(P) -> Result<T> + Sync,
) -> Result<Vec<Result<T>>> {
    thread::scope(|scope| {
        let work = &work;
        let begun = |(number, part)| {
            let confined = move || part::confine(&job.cpus_of(number)).and_then(|()| work(part));
            thread::Builder::new().spawn_scoped(scope, confined).map_err(not_started)
        };
        let threads: Vec<_> = parts.enumerate().map(begun).collect::<Result<_>>()?;
        Ok(threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(failed()))).collect())
    })
}

fn not_started(cause: std::io::Error) -> Error {
    Error::io("cannot start a thread of the workload", cause)
}

fn failed() -> Error {
    Error::new(ErrorKind::Failed, "a thread of the workload failed")
}

/// The threads of a pinned job, in the order of its parts. They end when this is dropped. An emulation may keep the threads of
/// each CPU in a group that has no other CPU: one that is born there could not bind itself elsewhere.
#[derive(Debug)]
struct Bound(Vec<Ends>);

#[derive(Debug)]
struct Ends {
    orders: Sender<Order>,
    /// The first says that the thread is bound and its part is prepared.
    reports: Receiver<Result<Done>>,
}

impl Bound {
    fn start<P: Running + 'static>(
        job: &Job,
        prepare: impl Fn() -> P + Copy + Send + 'static,
    ) -> Result<Self> {
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
        Done::of_all(self.0.iter().map(Ends::report))
    }
}

impl Ends {
    fn start<P: Running + 'static>(
        cpus: CpuList,
        prepare: impl FnOnce() -> P + Send + 'static,
    ) -> Result<Self> {
        let (orders, to_do) = mpsc::channel();
        let (done, reports) = mpsc::channel();
        let serving = move || serve(&cpus, prepare, &to_do, &done);
        thread::Builder::new().spawn(serving).map_err(not_started)?;
        Ok(Self { orders, reports })
    }

    fn report(&self) -> Result<Done> {
        self.reports.recv().unwrap_or_else(|_| Err(failed()))
    }
}

/// Who no longer takes reports gives no more orders either.
fn serve<P: Running>(
    cpus: &CpuList,
    prepare: impl FnOnce() -> P,
    orders: &Receiver<Order>,
    reports: &Sender<Result<Done>>,
) {
    match part::confine(cpus).map(|()| prepare()) {
        Err(error) => drop(reports.send(Err(error))),
        Ok(mut part) => {
            let _ = reports.send(Ok(Done::default()));
            for order in orders {
                // Once more: before Linux 6.2 a cpuset that a thread is put into undoes its binding.
                let _ = reports.send(part::confine(cpus).and_then(|()| part.through(&order)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clocks::now_ns;
    use super::*;

    struct By<F>(F);

    impl<F: FnMut(&Order) -> Result<Done>> Running for By<F> {
        fn through(&mut self, order: &Order) -> Result<Done> {
            self.0(order)
        }
    }

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
            By(move |_: &Order| {
                assert_eq!(part::own_cpus().unwrap(), cpus);
                windows += 1;
                let parts = cpus.iter().map(|cpu| cpu as f64).collect();
                Ok(Done { parts, longest_stall_ns: windows, spent_ns: 1, ..Done::default() })
            })
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
        let error = Bound::start(&nowhere, || By(|_: &Order| Ok(Done::default()))).unwrap_err();
        assert!(error.to_string().contains("1000"), "{error}");
    }

    #[test]
    fn a_thread_that_panics_is_an_error_of_every_window() {
        let mut bound = Bound::start(&job(&allowed()), || {
            By(|order: &Order| {
                assert!(!order.stamps, "the test wants a panic");
                Ok(Done::default())
            })
        })
        .unwrap();
        bound.through(&order()).unwrap();
        for stamps in [true, false] {
            let error = bound.through(&Order { stamps, ..order() }).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Failed);
        }
    }
}
