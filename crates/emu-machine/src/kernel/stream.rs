//! STREAM by its rules: in one iteration each of the four kernels passes over whole arrays that do not fit any cache.

use std::sync::Barrier;

pub use emu_bench::stream::Kernel;
use emu_bench::stream::{Arrays, Values};
use emu_core::{CpuList, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Span, on_threads};

/// How long every pass of a run took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Passes {
    /// Elements of each array.
    pub elements: usize,
    /// Seconds of each pass, by iteration, for each kernel in the order of [`Kernel::ALL`].
    pub seconds: [Vec<f64>; 4],
}

impl Passes {
    /// Bytes a second of every pass of a kernel but the first, which STREAM does not count.
    pub fn rates(&self, kernel: Kernel) -> Vec<f64> {
        let bytes = kernel.bytes(self.elements) as f64;
        let of_kernel = Kernel::ALL.iter().zip(&self.seconds).find(|(it, _)| **it == kernel);
        of_kernel
            .map(|(_, seconds)| seconds.iter().skip(1).map(|time| bytes / time).collect())
            .unwrap_or_default()
    }

    /// With those of another run over the same arrays, less its first, which does not count.
    pub(crate) fn extend(&mut self, other: &Self) {
        for (all, more) in self.seconds.iter_mut().zip(&other.seconds) {
            all.extend(more.iter().skip(1));
        }
    }

    /// The best of the [`rates`](Self::rates), which is what STREAM reports; `None` for a single iteration.
    pub fn best(&self, kernel: Kernel) -> Option<f64> {
        self.rates(kernel).into_iter().reduce(f64::max)
    }
}

/// Runs STREAM: `iterations` of the four kernels over arrays of `elements`, which are divided among as many threads
/// as there are lists of CPUs, each bound to its own. Every element is verified afterwards.
pub fn run(elements: usize, threads: &[CpuList], iterations: usize) -> Result<Passes> {
    let (passes, right) = run_and_verify(elements, threads, iterations)?;
    right.map(|()| passes)
}

/// As [`run`], but the passes are returned also where a result is wrong.
pub(crate) fn run_and_verify(
    elements: usize,
    threads: &[CpuList],
    iterations: usize,
) -> Result<(Passes, Result<()>)> {
    let count = threads.len();
    let barrier = Barrier::new(count);
    let part = |number: usize| elements * (number + 1) / count - elements * number / count;
    let all = on_threads("STREAM", threads, |number| {
        let mut arrays = Arrays::new(part(number));
        let all = 0..arrays.len();
        arrays.set(all.clone(), Values::START);
        let mut spans: [Vec<Span>; 4] = Default::default();
        for iteration in 0..iterations as u64 {
            for (number, spans) in (0..).zip(&mut spans) {
                let (span, ()) = Span::of(&barrier, || arrays.pass(4 * iteration + number, all.clone()));
                spans.push(span);
            }
        }
        // What follows would disturb those who still make the last pass.
        barrier.wait();
        Ok((spans, arrays.verify(all, 1, Values::after(4 * iterations as u64))))
    })?;
    let (all, verified): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let pass = |kernel: usize, iteration: usize| {
        Span::seconds(all.iter().filter_map(|spans| spans.get(kernel)?.get(iteration).copied()))
    };
    let seconds = std::array::from_fn(|kernel| (0..iterations).map(|number| pass(kernel, number)).collect());
    Ok((Passes { elements, seconds }, verified.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{Host, Roots};

    #[test]
    fn the_first_iteration_is_not_counted() {
        let passes = Passes { elements: 1000, seconds: [(); 4].map(|()| vec![9.0, 2e-6, 1e-6]) };
        assert_eq!(passes.rates(Kernel::Triad).len(), 2, "the first is not counted");
        assert!((passes.best(Kernel::Triad).unwrap() / 24e9 - 1.0).abs() < 1e-12);
        let mut both = passes.clone();
        both.extend(&passes);
        assert_eq!(both.rates(Kernel::Triad).len(), 4, "nor the first of another run");
        assert!((passes.rates(Kernel::Copy)[0] / 8e9 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_run_divides_the_arrays_and_verifies_all_of_them() {
        let cpus = Host::detect(&Roots::system()).unwrap().allowed;
        for threads in [1, 3] {
            let passes = run(10_001, &vec![cpus.clone(); threads], 3).unwrap();
            assert!(
                passes.seconds.iter().all(|times| times.len() == 3 && times.iter().all(|time| *time > 0.0))
            );
        }
        assert!(run(10, &[], 1).is_err());
        assert!(run(10, &["1000".parse().unwrap()], 1).is_err());
    }
}
