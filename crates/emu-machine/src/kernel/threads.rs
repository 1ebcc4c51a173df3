//! Threads that work at the same time, and how long all of them took.

use std::io;
use std::slice;
use std::sync::{Barrier, OnceLock, PoisonError, RwLock};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use emu_bench::workload::confine;
use emu_core::{CpuId, CpuList, Error, ErrorKind, Result};

/// Runs `work` with the number of the thread on a thread bound to each list of CPUs; `what` names the work. All of them work
/// even where one could not be bound: they may wait for each other.
pub(crate) fn on_threads<T: Send>(
    what: &str,
    threads: &[CpuList],
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if threads.is_empty() {
        return Err(Error::usage(format!("{what} needs a thread")));
    }
    each_on(what, threads.iter().enumerate(), work)
}

/// As [`on_threads`], for work of which a [`Span`] is timed that all threads begin together: also the seconds of all spans.
pub(super) fn timed<T: Send>(
    what: &str,
    threads: &[CpuList],
    work: impl Fn(usize, &Barrier) -> Result<(Span, T)> + Sync,
) -> Result<(f64, Vec<T>)> {
    let all = Barrier::new(threads.len());
    let done = on_threads(what, threads, |number| work(number, &all))?;
    let (spans, done): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    Ok((Span::seconds(spans), done))
}

pub(crate) fn on_one<T: Send>(what: &str, cpus: &CpuList, work: impl Fn() -> Result<T> + Sync) -> Result<T> {
    let mut done = on_threads(what, slice::from_ref(cpus), |_| work())?;
    done.pop().ok_or_else(|| panicked(what))
}

pub(crate) fn on_each_cpu<T: Send>(
    what: &str,
    cpus: &CpuList,
    work: impl Fn(CpuId) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let places: Vec<CpuList> = cpus.iter().map(|cpu| [cpu].into_iter().collect()).collect();
    each_on(what, cpus.iter().zip(&places), work)
}

/// Runs `work` for each worker on a thread bound to the CPUs beside it; nothing is done without a worker.
pub(crate) fn each_on<'a, W: Send, T: Send>(
    what: &str,
    workers: impl IntoIterator<Item = (W, &'a CpuList)>,
    work: impl Fn(W) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    all_at_once(what, workers, |(worker, cpus)| {
        let bound = confine(cpus);
        let done = work(worker);
        bound.and(done)
    })
}

/// No thread begins unless all could be made: they may wait for each other.
pub(crate) fn all_at_once<W: Send, T: Send>(
    what: &str,
    workers: impl IntoIterator<Item = W>,
    work: impl Fn(W) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    made_by(|_| Builder::new(), what, workers, work)
}

fn made_by<W: Send, T: Send>(
    builder: impl Fn(usize) -> Builder,
    what: &str,
    workers: impl IntoIterator<Item = W>,
    work: impl Fn(W) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let complete = RwLock::new(false);
    let (complete, work) = (&complete, &work);
    thread::scope(|scope| {
        // Held until it is known whether all threads are there.
        let mut gate = complete.write().unwrap_or_else(PoisonError::into_inner);
        let threads: io::Result<Vec<_>> = workers
            .into_iter()
            .enumerate()
            .map(|(number, worker)| {
                builder(number).spawn_scoped(scope, move || {
                    let begins = *complete.read().unwrap_or_else(PoisonError::into_inner);
                    begins.then(|| work(worker))
                })
            })
            .collect();
        *gate = threads.is_ok();
        drop(gate);
        let threads = threads.map_err(|cause| {
            Error::io(format!("cannot make all threads of {what}"), cause)
                .hint("take fewer threads, or raise the limit of tasks (ulimit -u, pids.max of the cgroup)")
        })?;
        // All are joined before a failure is told: a panic that nobody has asked for would be the scope's.
        let done: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().ok().flatten().unwrap_or_else(|| Err(panicked(what))))
            .collect();
        done.into_iter().collect()
    })
}

fn panicked(what: &str) -> Error {
    Error::new(ErrorKind::Failed, format!("a thread of {what} has panicked"))
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    begin: Instant,
    end: Instant,
}

impl Span {
    pub(super) fn of<T>(all: &Barrier, work: impl FnOnce() -> T) -> (Self, T) {
        all.wait();
        let begin = Instant::now();
        let done = work();
        (Self { begin, end: Instant::now() }, done)
    }

    /// Not a number without a thread. The clock of one thread does not tell it: it may wake from the barrier when others are
    /// at work already.
    pub(super) fn seconds(spans: impl IntoIterator<Item = Self>) -> f64 {
        let all = spans
            .into_iter()
            .reduce(|all, one| Self { begin: all.begin.min(one.begin), end: all.end.max(one.end) });
        all.map_or(f64::NAN, |all| (all.end - all.begin).as_secs_f64())
    }
}

/// One window of time in which all threads work. Threads that share a CPU take turns: a window for each would count a
/// thread's turn in the time of another.
#[derive(Debug)]
pub(crate) struct Window {
    all: Barrier,
    length: Duration,
    begin: OnceLock<Instant>,
}

/// `None` where the thread got no turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share(Option<(Span, u64)>);

impl Share {
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl Window {
    pub(crate) fn new(threads: usize, length: Duration) -> Self {
        Self { all: Barrier::new(threads), length, begin: OnceLock::new() }
    }

    /// `work` returns how much it did. Returns when all threads are through: what a thread does next takes nothing from the
    /// last turns of others.
    pub(crate) fn repeat(&self, mut work: impl FnMut() -> u64) -> Share {
        self.all.wait();
        let begin = Instant::now();
        let over = *self.begin.get_or_init(|| begin) + self.length;
        let (mut done, mut end) = (0, begin);
        while end < over {
            done += work();
            end = Instant::now();
        }
        self.all.wait();
        Share((done > 0).then_some((Span { begin, end }, done)))
    }

    pub(crate) fn rate(shares: impl IntoIterator<Item = Share>) -> f64 {
        let worked: Vec<_> = shares.into_iter().filter_map(|share| share.0).collect();
        let done: u64 = worked.iter().map(|(_, done)| done).sum();
        if done == 0 { 0.0 } else { done as f64 / Span::seconds(worked.into_iter().map(|(span, _)| span)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::threads;

    #[test]
    fn each_thread_has_a_number_and_one_failure_fails_all() {
        assert_eq!(on_threads("a test", &threads(3), Ok).unwrap(), [0, 1, 2]);
        assert!(on_threads("a test", &[], Ok).is_err());
        assert!(on_threads("a test", &["1000".parse().unwrap()], Ok).is_err());
        let one = |number| if number == 1 { Err(Error::usage("no")) } else { Ok(()) };
        assert!(on_threads("a test", &threads(2), one).is_err());
    }

    #[test]
    fn workers_that_are_there_already_are_bound_as_well() {
        let (mut counts, places) = ([1, 2], threads(2));
        let done = each_on("a test", counts.iter_mut().zip(&places), |count| {
            *count += 1;
            Ok(*count)
        });
        assert_eq!((done.unwrap(), counts), (vec![2, 3], [2, 3]));
        let nowhere: CpuList = "1000".parse().unwrap();
        assert!(each_on("a test", [((), &nowhere)], Ok).is_err());
    }

    #[test]
    fn where_one_thread_cannot_be_made_the_others_do_not_wait() {
        let barrier = Barrier::new(3);
        // No address space has room for such a stack.
        let builder = |number| Builder::new().stack_size(if number == 2 { 1 << 60 } else { 1 << 20 });
        let error = made_by(builder, "a test", 0..3, |_| {
            barrier.wait();
            Ok(())
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "cannot make all threads of a test");
        assert!(error.hint_text().is_some());
    }

    #[test]
    fn a_panic_beside_a_failure_is_an_error_all_the_same() {
        let error = all_at_once("a test", 0..2, |number| -> Result<()> {
            if number == 0 { Err(Error::usage("no")) } else { panic!("on purpose") }
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "no");
    }

    #[test]
    fn the_time_is_from_the_first_begin_to_the_last_end() {
        let now = Instant::now();
        let ms = |ms| now + Duration::from_millis(ms);
        let late = Span { begin: ms(30), end: ms(50) };
        let others = [Span { begin: ms(0), end: ms(40) }, Span { begin: ms(10), end: ms(60) }];
        assert!((Span::seconds([late].into_iter().chain(others)) - 0.06).abs() < 1e-9);
        assert!(Span::seconds([]).is_nan());
    }

    #[test]
    fn the_slowest_thread_makes_the_time() {
        let barrier = Barrier::new(2);
        let spans = on_threads("a test", &threads(2), |number| {
            Ok(Span::of(&barrier, || thread::sleep(Duration::from_millis(20 * number as u64))).0)
        })
        .unwrap();
        assert!(Span::seconds(spans) >= 0.02);
    }

    #[test]
    fn threads_that_take_turns_share_one_window() {
        let now = Instant::now();
        let ms = |ms| now + Duration::from_millis(ms);
        let turn = |begin, end, done| Share(Some((Span { begin: ms(begin), end: ms(end) }, done)));
        // Each has the CPU for half of its time.
        let shares = [turn(0, 90, 50), turn(10, 100, 50), Share(None)];
        assert!((Window::rate(shares) / 1000.0 - 1.0).abs() < 1e-9);
        assert!(Window::rate([Share(None)]).abs() < 1e-9);
    }

    #[test]
    fn all_threads_work_in_one_window() {
        let window = Window::new(3, Duration::from_millis(60));
        let shares = on_threads("a test", &threads(3), |_| {
            Ok(window.repeat(|| {
                thread::sleep(Duration::from_millis(5));
                1
            }))
        })
        .unwrap();
        let spans: Vec<_> = shares.iter().filter_map(|share| share.0).collect();
        let done: u64 = spans.iter().map(|(_, done)| done).sum();
        let seconds = Span::seconds(spans.into_iter().map(|(span, _)| span));
        assert!(seconds >= 0.06 && (1..=3 * 12).contains(&done), "{done} in {seconds} s");
        assert!((Window::rate(shares) * seconds / done as f64 - 1.0).abs() < 1e-9);
    }
}
