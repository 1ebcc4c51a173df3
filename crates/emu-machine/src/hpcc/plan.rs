//! What is run, and how large.

use std::ops::RangeInclusive;

use emu_bench::memory::{StreamSize, available, may_take};
use emu_core::{Error, Host, Result};
use serde::{Deserialize, Serialize};

use super::super::{check_threads, one_and_all};
use super::Kernel;
use crate::kernel::random_access::THREADS_MAX;
use crate::kernel::{dgemm, fft, linpack, ptrans, random_access};

/// Runs of each kernel, of which the best counts, as of STREAM.
const REPEATS: usize = 5;
const REPEATS_QUICK: usize = 3;

/// The most equations, rows or numbers, where memory allows them: for a run of some seconds at most.
const LARGEST: Sizes = Sizes { linpack: 6000, dgemm: 3000, words: 1 << 27, fft: 1 << 24, ptrans: 6000 };
pub(super) const LARGEST_QUICK: Sizes =
    Sizes { linpack: 2000, dgemm: 1000, words: 1 << 23, fft: 1 << 20, ptrans: 2000 };

/// How large the problems are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Equations of LINPACK.
    pub linpack: usize,
    /// Rows of DGEMM's matrices.
    pub dgemm: usize,
    /// Words of the table of `RandomAccess`.
    pub words: usize,
    /// Numbers that each thread transforms; in a series of problems, all threads together.
    pub fft: usize,
    /// Rows of the matrix of PTRANS.
    pub ptrans: usize,
}

/// Orders of a series: smaller ones are through before a clock can tell, larger ones overflow.
pub const ORDERS: RangeInclusive<usize> = 200..=1_000_000;

/// The sizes of all kernels at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Equations of LINPACK by which all were chosen, in a series of these; `None` for the usual sizes.
    pub order: Option<usize>,
    /// How large the problems are.
    pub sizes: Sizes,
    /// Bytes of each array of STREAM.
    pub stream_bytes: u64,
}

impl Problem {
    /// As HPC Challenge derives all sizes from the memory of LINPACK's matrix: the others take about as much.
    fn of_order(order: usize) -> Self {
        let bytes = linpack::bytes(order);
        let words = (bytes / 8) as usize;
        let sizes = Sizes {
            linpack: order,
            // Three matrices.
            dgemm: (words / 3).isqrt(),
            words: power(words),
            // Four arrays of complex numbers.
            fft: power(words / 8),
            ptrans: (words / 3).isqrt(),
        };
        Self { order: Some(order), sizes, stream_bytes: bytes / 3 }
    }

    fn bytes(&self, threads: usize) -> u64 {
        let Sizes { linpack, dgemm, words, ptrans, .. } = self.sizes;
        let fft = self.size(Kernel::Fft, threads);
        [
            linpack::bytes(linpack),
            dgemm::bytes(dgemm),
            random_access::bytes(words),
            fft::bytes(fft).saturating_mul(threads as u64),
            ptrans::bytes(ptrans),
            self.stream_bytes.saturating_mul(3),
        ]
        .into_iter()
        .fold(0, u64::max)
    }

    /// How large a kernel is in it with so many threads: equations, rows, words, or numbers of each thread or array.
    pub(super) fn size(&self, kernel: Kernel, threads: usize) -> usize {
        match self.sizes.of(kernel) {
            Some(numbers) if kernel == Kernel::Fft && self.order.is_some() => power(numbers / threads.max(1)),
            Some(size) => size,
            None => self.stream_bytes as usize / size_of::<f64>(),
        }
    }
}

/// The largest power of two up to `most`, or the least that makes sense.
fn power(most: usize) -> usize {
    1 << most.max(1 << 10).ilog2()
}

/// What will be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HpccPlan {
    /// Start of the random numbers, also of those by which the rounds are ordered.
    pub seed: u64,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Rounds: runs of each kernel and number of threads.
    pub repeats: usize,
    /// How large the problems are: one of the usual sizes, or a series.
    pub problems: Vec<Problem>,
    /// How large the usual ones are where memory suffices.
    pub usual: Sizes,
    /// How long the arrays of STREAM usually are, and why.
    pub stream: StreamSize,
}

impl HpccPlan {
    /// All kernels with these numbers of threads, else with one and with all, as far as `RandomAccess` takes so many.
    pub fn new(host: &Host, quick: bool, seed: u64, threads: &[usize]) -> Result<Self> {
        let all = || one_and_all(host).into_iter().map(|count| count.min(THREADS_MAX)).collect::<Vec<_>>();
        let mut threads = if threads.is_empty() { all() } else { threads.to_vec() };
        check_threads(&threads, THREADS_MAX)?;
        threads.sort_unstable();
        threads.dedup();
        let most = threads.last().copied().unwrap_or(1);
        let limit = may_take(available(host));
        let usual = if quick { LARGEST_QUICK } else { LARGEST };
        let sizes = usual.within(limit, most).ok_or_else(|| {
            Error::unavailable(format!("the kernels do not fit {} MiB of memory", limit >> 20))
                .hint("free memory, or raise the limit: ulimit -v, ulimit -d, or that of the cgroup")
        })?;
        let repeats = if quick { REPEATS_QUICK } else { REPEATS };
        let stream = StreamSize::of(host, &host.allowed)?.quick(quick);
        let problem = Problem { order: None, sizes, stream_bytes: stream.array_bytes };
        Ok(Self { seed, threads, repeats, problems: vec![problem], usual, stream })
    }

    /// The same for a series of problems, by LINPACK's equations.
    pub fn of_series(self, host: &Host, orders: &[usize]) -> Result<Self> {
        let mut orders = orders.to_vec();
        orders.sort_unstable();
        orders.dedup();
        if let Some(bad) = orders.iter().find(|order| !ORDERS.contains(order)) {
            return Err(Error::usage(format!("cannot run the kernels by systems of {bad} equations"))
                .hint(format!("take sizes from {} to {}", ORDERS.start(), ORDERS.end())));
        }
        let problem = |order: &usize| Problem::of_order(*order);
        let bytes = |order: &usize| {
            self.threads.iter().map(|threads| problem(order).bytes(*threads)).fold(0, u64::max)
        };
        let available = available(host);
        let limit = may_take(available);
        let fits = |order: &&usize| bytes(order) <= limit;
        if let Some(large) = orders.iter().find(|order| !fits(order)) {
            let fitting: Vec<_> = orders.iter().filter(fits).map(ToString::to_string).collect();
            let hint = if fitting.is_empty() {
                format!("systems of up to {} equations fit", (limit / 8).isqrt())
            } else {
                format!("of yours --sizes {} fit", fitting.join(","))
            };
            return Err(Error::unavailable(format!(
                "problems of {large} equations take {} MiB, and of the {} MiB that are available emu takes half",
                bytes(large) >> 20,
                available.unwrap_or(0) >> 20
            ))
            .hint(hint));
        }
        Ok(Self { problems: orders.iter().map(problem).collect(), ..self })
    }

    /// Whether it can be carried out.
    pub fn check(&self) -> Result<()> {
        check_threads(&self.threads, THREADS_MAX)?;
        if self.repeats == 0 || self.problems.is_empty() {
            return Err(Error::usage("nothing is to be measured"));
        }
        Ok(())
    }
}

impl Sizes {
    pub(super) const LEAST: Self =
        Self { linpack: 100, dgemm: 100, words: 1 << 10, fft: 1 << 10, ptrans: 100 };

    /// As large as these, or as fits so many bytes with so many threads; `None` where even the smallest do not.
    fn within(self, limit: u64, threads: usize) -> Option<Self> {
        let shrink = |largest: usize, least: usize, bytes: &dyn Fn(usize) -> u64| {
            std::iter::successors(Some(largest), |size| Some(size / 2))
                .take_while(|size| *size >= least)
                .find(|size| bytes(*size) <= limit)
        };
        let least = Self::LEAST;
        Some(Self {
            linpack: shrink(self.linpack, least.linpack, &linpack::bytes)?,
            dgemm: shrink(self.dgemm, least.dgemm, &dgemm::bytes)?,
            words: shrink(self.words, least.words, &random_access::bytes)?,
            fft: shrink(self.fft, least.fft, &|size| fft::bytes(size) * threads as u64)?,
            ptrans: shrink(self.ptrans, least.ptrans, &ptrans::bytes)?,
        })
    }

    /// That of a kernel; `None` for STREAM, whose arrays follow from the caches.
    pub(super) fn of(self, kernel: Kernel) -> Option<usize> {
        match kernel {
            Kernel::Linpack => Some(self.linpack),
            Kernel::Dgemm => Some(self.dgemm),
            Kernel::Stream(_) => None,
            Kernel::RandomAccess => Some(self.words),
            Kernel::Fft => Some(self.fft),
            Kernel::Ptrans => Some(self.ptrans),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host_of;
    use emu_core::ErrorKind;

    #[test]
    fn sizes_shrink_until_they_fit() {
        let sizes = LARGEST.within(u64::MAX, 2).unwrap();
        assert_eq!(sizes, LARGEST);
        let sizes = LARGEST.within(64 << 20, 2).unwrap();
        assert_eq!((sizes.linpack, sizes.dgemm, sizes.words, sizes.fft), (1500, 1500, 1 << 23, 1 << 19));
        assert_eq!(LARGEST.within(1000, 1), None);
    }

    #[test]
    fn a_series_has_problems_of_about_as_much_memory() {
        let host = host_of(&[], "0-1");
        let plan =
            HpccPlan::new(&host, true, 7, &[1, 2]).unwrap().of_series(&host, &[1000, 500, 1000]).unwrap();
        let orders: Vec<_> = plan.problems.iter().map(|problem| problem.order).collect();
        assert_eq!(orders, [Some(500), Some(1000)]);
        let Problem { sizes, stream_bytes, .. } = plan.problems[1];
        let fft = |threads| plan.problems[1].size(Kernel::Fft, threads);
        assert_eq!((fft(1), fft(2), fft(3)), (1 << 16, 1 << 15, 1 << 14));
        let alone = HpccPlan::new(&host, true, 7, &[1]).unwrap().of_series(&host, &[1000]).unwrap();
        assert_eq!(alone.problems[0], plan.problems[1], "whatever the numbers of threads");
        assert_eq!((sizes.linpack, sizes.dgemm, sizes.ptrans), (1000, 577, 577));
        assert_eq!((sizes.words, sizes.fft, stream_bytes), (1 << 19, 1 << 16, 8_000_000 / 3));
        for problem in &plan.problems {
            let bytes = problem.bytes(2) as f64 / linpack::bytes(problem.sizes.linpack) as f64;
            assert!((1.0..=2.0).contains(&bytes), "{problem:?}: {bytes}");
        }
    }

    #[test]
    fn a_series_that_does_not_fit_is_refused_with_what_does() {
        let host = host_of(&[], "0");
        let plan = || HpccPlan::new(&host, true, 7, &[1]).unwrap();
        let error = plan().of_series(&host, &[500, 1_000_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.hint_text().unwrap().contains("--sizes 500 fit"), "{error:?}");
        for bad in [0, 199, 1_000_001, usize::MAX] {
            assert_eq!(plan().of_series(&host, &[500, bad]).unwrap_err().kind(), ErrorKind::Usage, "{bad}");
        }
    }

    #[test]
    fn no_more_threads_are_planned_than_every_kernel_takes() {
        let host = host_of(&[], "0-199");
        assert_eq!(HpccPlan::new(&host, true, 7, &[]).unwrap().threads, [1, THREADS_MAX]);
        assert_eq!(HpccPlan::new(&host_of(&[], "0"), true, 7, &[]).unwrap().threads, [1]);
        for bad in [0, THREADS_MAX + 1] {
            assert_eq!(
                HpccPlan::new(&host, true, 7, &[1, bad]).unwrap_err().kind(),
                ErrorKind::Usage,
                "{bad}"
            );
        }
    }
}
