//! The threads of a kernel.

use std::thread;

use emu_core::{CpuList, Error, ErrorKind, Result};

use crate::workload::confine;

/// Runs `work` on a thread for each list of CPUs, bound to it, with the number of the thread, and returns what
/// each has made of it.
///
/// All of them work even where one could not be bound: they may wait for each other.
///
/// # Errors
/// Usage, without a thread. A thread cannot be bound, has failed or has panicked; `what` names the work.
pub(crate) fn on_threads<T: Send>(
    what: &str,
    threads: &[CpuList],
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if threads.is_empty() {
        return Err(Error::usage(format!("{what} needs a thread")));
    }
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = threads
            .iter()
            .enumerate()
            .map(|(number, cpus)| {
                scope.spawn(move || {
                    let bound = confine(cpus);
                    let done = work(number);
                    bound.and(done)
                })
            })
            .collect();
        let failed = || Error::new(ErrorKind::Failed, format!("a thread of {what} has panicked"));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(failed())))
            .collect::<Result<_>>()
    })
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
}
