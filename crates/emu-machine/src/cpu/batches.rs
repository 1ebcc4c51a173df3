//! Batches of operations by several threads, for a while.

use std::time::{Duration, Instant};

use emu_core::{CpuList, Error, Result};

use crate::kernel::arithmetic::Work;
use crate::kernel::{Window, on_one, on_threads};

const WHAT: &str = "the calculation";

/// Operations each second of all threads. `one` is what a chain of the work comes to; every batch must agree with it.
pub(crate) fn rate(work: Work, one: u64, places: &[CpuList], length: Duration) -> Result<f64> {
    let window = Window::new(places.len(), length);
    let shares = on_threads(WHAT, places, |_| {
        // The first one wakes the vector units.
        let first = work.many();
        let mut right = first.digest == first.must(one);
        let share = window.repeat(|| {
            let batch = work.many();
            right &= batch.digest == batch.must(one);
            batch.operations
        });
        if right { Ok(share) } else { Err(wrong(work)) }
    })?;
    Ok(Window::rate(shares))
}

/// Nanoseconds of one operation that waits for the one before it, on a CPU of its own.
pub(super) fn wait_ns(work: Work, one: u64, place: &CpuList, length: Duration) -> Result<f64> {
    on_one(WHAT, place, || {
        let (mut batches, mut right) = (0, true);
        let begin = Instant::now();
        loop {
            right &= work.one() == one;
            batches += 1;
            let passed = begin.elapsed();
            if passed >= length {
                let steps = batches * work.steps();
                return if right { Ok(passed.as_secs_f64() * 1e9 / steps as f64) } else { Err(wrong(work)) };
            }
        }
    })
}

fn wrong(work: Work) -> Error {
    emu_bench::wrong(format_args!("result of {}", work.name()))
        .hint("the CPU has erred, or something changes its registers: try another CPU")
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::ErrorKind;
    use emu_core::{Host, Roots};

    #[test]
    fn batches_are_counted_and_verified() {
        let cpus = Host::detect(&Roots::system()).unwrap().allowed;
        let length = Duration::from_micros(200);
        for work in [Work::PEAK, Work::ALL[0]] {
            let one = work.one();
            assert!(rate(work, one, &[cpus.clone(), cpus.clone()], length).unwrap() > 0.0);
            assert!(wait_ns(work, one, &cpus, length).unwrap() > 0.0);
            let error = rate(work, one ^ 1, std::slice::from_ref(&cpus), length).unwrap_err();
            assert!(error.to_string().contains("wrong result"), "{error}");
            assert_eq!(error.kind(), ErrorKind::WrongResult);
            let error = wait_ns(work, one ^ 1, &cpus, length).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongResult);
        }
        assert!(rate(Work::PEAK, Work::PEAK.one(), &["1000".parse().unwrap()], length).is_err());
    }
}
