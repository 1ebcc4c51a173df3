//! The kernels of the HPC Challenge on this machine, each verified by its rule: LINPACK, DGEMM, STREAM, `RandomAccess`,
//! FFT and PTRANS.
//!
//! Every round runs each of them once with every number of threads, in random order: what is compared is never far
//! apart in time.

mod plan;
mod reference;
mod words;

pub use plan::{HpccPlan, ORDERS, Problem, Sizes};
pub use reference::{Share, without_counterpart};

use std::time::Instant;

use emu_bench::memory::StreamSize;
use emu_bench::stats::{Interval, Level, Sample};
use emu_core::{CpuList, Error, Host, Result};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Event, Watch, notes_of_build, places, tell};
use crate::kernel::stream::Passes;
use crate::kernel::{Outcome, dgemm, fft, linpack, ptrans, random_access, stream};
use crate::witness::{Others, Witness, counting};

/// Iterations of STREAM in a round, of which the first does not count.
const ITERATIONS: usize = 2;

/// A kernel, as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// LU factorisation and solution.
    Linpack,
    /// Product of matrices.
    Dgemm,
    /// Bandwidth of memory.
    Stream(stream::Kernel),
    /// Updates of a table.
    RandomAccess,
    /// Complex transforms, one for each thread.
    Fft,
    /// Transposition of a matrix.
    Ptrans,
}

impl Kernel {
    /// Those that are run one by one; the kernels of STREAM are run together.
    const SINGLE: [Self; 5] = [Self::Linpack, Self::Dgemm, Self::RandomAccess, Self::Fft, Self::Ptrans];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linpack => "linpack",
            Self::Dgemm => "dgemm",
            Self::Stream(stream::Kernel::Copy) => "stream copy",
            Self::Stream(stream::Kernel::Scale) => "stream scale",
            Self::Stream(stream::Kernel::Add) => "stream add",
            Self::Stream(stream::Kernel::Triad) => "stream triad",
            Self::RandomAccess => "random-access",
            Self::Fft => "fft",
            Self::Ptrans => "ptrans",
        }
    }

    /// The unit of billions of its work per second.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Linpack | Self::Dgemm | Self::Fft => "GFLOPS",
            Self::Stream(_) | Self::Ptrans => "GB/s",
            Self::RandomAccess => "GUPS",
        }
    }

    /// Bytes that so many threads go over while they are timed, where a cache that holds them makes the rate; `None`
    /// for kernels that work by blocks, and for STREAM, which has a rule of its own.
    fn spread_bytes(self, problem: &Problem, threads: usize) -> Option<u64> {
        let size = problem.size(self, threads);
        match self {
            Self::RandomAccess => Some(random_access::bytes(size)),
            Self::Fft => Some(fft::timed_bytes(size) * threads as u64),
            Self::Ptrans => Some(ptrans::timed_bytes(size)),
            Self::Linpack | Self::Dgemm | Self::Stream(_) => None,
        }
    }

    fn run(self, problem: &Problem, seed: u64, threads: &[CpuList]) -> Result<Outcome> {
        let size = problem.size(self, threads.len());
        match self {
            Self::Linpack => linpack::run(size, seed, threads),
            Self::Dgemm => dgemm::run(size, seed, threads),
            Self::RandomAccess => random_access::run(size, threads),
            Self::Fft => fft::run(size, seed, threads),
            Self::Ptrans => ptrans::run(size, seed, threads),
            Self::Stream(_) => Err(Error::usage("the kernels of STREAM are run together")),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Single(Kernel),
    Stream,
}

impl Part {
    fn all() -> impl Iterator<Item = Self> {
        Kernel::SINGLE.into_iter().map(Self::Single).chain([Self::Stream])
    }

    fn name(self) -> &'static str {
        match self {
            Self::Single(kernel) => kernel.name(),
            Self::Stream => "stream",
        }
    }

    fn kernels(self) -> Vec<Kernel> {
        match self {
            Self::Single(kernel) => vec![kernel],
            Self::Stream => stream::Kernel::ALL.map(Kernel::Stream).into(),
        }
    }
}

/// One run of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Wall time of the computation.
    pub seconds: f64,
    /// Floating-point operations, updates or bytes per second.
    pub rate: f64,
    /// How wrong the result is, in the unit of the kernel's rule; `None` where it is not a number, or where the rule
    /// is for each element.
    pub error: Option<f64>,
    /// Whether the result is right by the kernel's rule.
    pub passed: bool,
    /// Whether others had a part of the CPUs meanwhile.
    #[serde(default)]
    pub disturbed: bool,
}

impl From<Outcome> for Run {
    fn from(outcome: Outcome) -> Self {
        let error = Some(outcome.error).filter(|error| error.is_finite());
        let (seconds, rate, passed) = (outcome.seconds, outcome.rate(), outcome.passes());
        Self { seconds, rate, error, passed, disturbed: false }
    }
}

impl Run {
    /// Those of each kernel in a run of STREAM, whose verification tells of all of them.
    fn of_stream(stream: &Passes, passed: bool, disturbed: bool) -> Vec<(Kernel, Self)> {
        let runs_of = |kernel: stream::Kernel| {
            let bytes = kernel.bytes(stream.elements) as f64;
            let run = move |rate: f64| Self { seconds: bytes / rate, rate, error: None, passed, disturbed };
            stream.rates(kernel).into_iter().map(move |rate| (Kernel::Stream(kernel), run(rate)))
        };
        stream::Kernel::ALL.into_iter().flat_map(runs_of).collect()
    }
}

/// A run of STREAM.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ToldOfStream<'a> {
    #[serde(flatten)]
    passes: &'a Passes,
    /// Whether the result was right.
    passed: bool,
    /// Whether others used the CPUs meanwhile.
    disturbed: bool,
}

/// A kernel with a number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Which.
    pub kernel: Kernel,
    /// Threads at once.
    pub threads: usize,
    /// Equations of LINPACK by which the size was chosen, in a series of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<usize>,
    /// Equations, rows, words, or numbers of each thread or array.
    pub size: usize,
    /// Every run that counts.
    pub runs: Vec<Run>,
    /// The best rate of the runs that [count](Self::rates), in work per second: what HPCC reports of STREAM. Of PTRANS it
    /// reports the [`least`](Self::least) of five runs.
    pub best: f64,
    /// Their median rate.
    pub median: f64,
    /// Whether all results are right.
    pub passed: bool,
}

impl Row {
    fn new(kernel: Kernel, threads: usize, problem: &Problem, runs: Vec<Run>) -> Result<Self> {
        let rates = Sample::new(counting_rates(&runs))?;
        let passed = runs.iter().all(|run| run.passed);
        let (order, size) = (problem.order, problem.size(kernel, threads));
        Ok(Self { kernel, threads, order, size, best: rates.max(), median: rates.median(), passed, runs })
    }

    /// The rates of the runs that count, in work per second: of those that nobody has disturbed, or of all where there is
    /// none.
    pub fn rates(&self) -> Vec<f64> {
        counting_rates(&self.runs)
    }

    /// Whether every run was disturbed.
    pub fn is_disturbed(&self) -> bool {
        self.runs.iter().all(|run| run.disturbed)
    }

    /// Its name with what it was run with: `fft 500 (2 threads)`.
    pub fn name(&self) -> String {
        let of = self.order.map_or_else(String::new, |order| format!(" {order}"));
        format!("{}{of} ({} threads)", self.kernel.name(), self.threads)
    }

    /// The standard deviation of the rates that count, in work per second; 0 for one run.
    pub fn sd(&self) -> f64 {
        Sample::new(self.rates()).ok().and_then(|rates| rates.sd()).unwrap_or(0.0)
    }

    /// The least rate that counts, in work per second.
    pub fn least(&self) -> f64 {
        self.rates().into_iter().fold(f64::INFINITY, f64::min)
    }

    /// Its rate in that of another row, by the mean of the runs that count, with the interval of both; `None` where one has
    /// a single run.
    pub fn ratio(&self, other: &Self) -> Option<Interval> {
        let [own, other] = [self, other].map(|row| Sample::new(row.rates()));
        Interval::of_ratio(&own.ok()?, &other.ok()?, Level::P95).ok()
    }

    /// The largest error; `None` where the rule is for each element, or a result is not a number.
    pub fn worst(&self) -> Option<f64> {
        self.runs.iter().map(|run| run.error).try_fold(0.0, |worst, error| Some(f64::max(worst, error?)))
    }
}

fn counting_rates(runs: &[Run]) -> Vec<f64> {
    counting(runs, |run| run.disturbed).map(|run| run.rate).collect()
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Each kernel with each number of threads.
    pub rows: Vec<Row>,
    /// Whether STREAM's arrays are four times the last-level caches, as its rule demands.
    pub stream_obeys_rule: bool,
    /// What is to be known of the figures, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What it means, in words.
    pub conclusion: String,
}

impl Measured {
    /// Whether every result is right.
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.passed)
    }
}

/// Runs every kernel of the plan, each thread on a CPU of its own where there are enough. Each run makes its data anew.
pub fn measure(plan: &HpccPlan, host: &Host, watch: Watch<'_>) -> Result<Measured> {
    plan.check()?;
    let problems = || plan.problems.iter();
    let mut parts: Vec<_> = plan
        .threads
        .iter()
        .flat_map(|&threads| problems().map(move |problem| (threads, problem)))
        .flat_map(|(threads, problem)| Part::all().map(move |part| (part, threads, problem, Vec::new())))
        .collect();
    let steps = (parts.len() * plan.repeats) as u32;
    let mut random = Pcg64::seed_from_u64(plan.seed);
    let mut notes = words::notes(plan, host);
    let mut witness = Witness::new(host, parts.len() * plan.repeats, Others::Count);
    let (begin, mut done) = (Instant::now(), 0);
    for _ in 0..plan.repeats {
        let mut round: Vec<_> = parts.iter_mut().collect();
        round.shuffle(&mut random);
        for (part, threads, problem, runs) in round {
            let of = problem.order.map_or_else(String::new, |order| format!(" {order}"));
            let what = format!("{}{of}, threads {threads}", part.name());
            // Not known before the first one is through.
            let each = begin.elapsed().checked_div(done).unwrap_or_default();
            watch(Event::Next { what: &what, left: each * (steps - done) })?;
            let (row, places) = (format!("{}{of} {threads}", part.name()), places(host, *threads));
            match *part {
                Part::Single(kernel) => {
                    let run = || kernel.run(problem, plan.seed, &places);
                    let (outcome, disturbed) = witness.measure(&what, &places, run)?;
                    let run = Run { disturbed, ..outcome.into() };
                    tell(watch, &row, &run)?;
                    runs.push((kernel, run));
                }
                Part::Stream => {
                    let elements = problem.stream_bytes as usize / size_of::<f64>();
                    let run = || stream::run_and_verify(elements, &places, ITERATIONS);
                    let ((rates, verified), disturbed) = witness.measure(&what, &places, run)?;
                    let passed = verified.is_ok();
                    tell(watch, &row, &ToldOfStream { passes: &rates, passed, disturbed })?;
                    runs.extend(Run::of_stream(&rates, passed, disturbed));
                    let wrong = |error: Error| format!("STREAM ({threads} threads): {}.", error.in_words());
                    notes.extend(verified.err().map(wrong));
                }
            }
            done += 1;
        }
    }
    let mut rows = Vec::new();
    for (part, threads, problem, runs) in parts {
        for kernel in part.kernels() {
            let of_kernel = runs.iter().filter(|(of, _)| *of == kernel).map(|(_, run)| *run);
            rows.push(Row::new(kernel, threads, problem, of_kernel.collect())?);
        }
    }
    let obeys_rule =
        |problem: &Problem| StreamSize { array_bytes: problem.stream_bytes, ..plan.stream }.obeys_rule();
    let stream_obeys_rule = problems().all(obeys_rule);
    let conclusion = words::conclusion(&rows, stream_obeys_rule);
    notes.extend(witness.notes());
    notes.extend(notes_of_build());
    Ok(Measured { rows, stream_obeys_rule, notes, conclusion })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::words::conclusion;
    use super::*;
    use crate::kernel::random_access::THREADS_MAX;
    use emu_core::{ErrorKind, Roots};

    #[test]
    fn every_kernel_is_verified_with_every_number_of_threads() {
        let host = Host::detect(&Roots::system()).unwrap();
        let mut plan = HpccPlan::new(&host, true, 7, &[2, 1, 2]).unwrap();
        assert_eq!(plan.threads, [1, 2]);
        // Threads that race may get some fifty words wrong, which is more than 1 % of a thousand.
        let sizes = Sizes { words: 1 << 16, ..Sizes::LEAST };
        plan.problems = vec![Problem { order: None, sizes, stream_bytes: 1 << 20 }];
        plan.repeats = 2;
        let (mut samples, mut parts) = (0, Vec::new());
        let mut watch = |event: Event<'_>| {
            match event {
                Event::Next { what, .. } => parts.push(what.to_owned()),
                Event::Sample { .. } => samples += 1,
            }
            Ok(())
        };
        let measured = measure(&plan, &host, &mut watch).unwrap();
        assert_eq!((measured.rows.len(), samples, parts.len()), (18, 24, 24));
        let rounds: Vec<BTreeSet<_>> = parts.chunks(12).map(|round| round.iter().collect()).collect();
        assert_eq!((rounds[0].len(), &rounds[0]), (12, &rounds[1]), "each comes once in every round");
        let row = |at: usize| (measured.rows[at].kernel.name(), measured.rows[at].threads);
        assert_eq!((row(0), row(8), row(9)), (("linpack", 1), ("stream triad", 1), ("linpack", 2)));
        for row in &measured.rows {
            assert!(row.best >= row.median && row.median >= row.least() && row.runs.len() == 2, "{row:?}");
            assert!(row.passed, "{row:?}");
        }
        assert!(measured.passed());
        let text = serde_json::to_string(&measured).unwrap();
        assert_eq!(serde_json::from_str::<Measured>(&text).unwrap(), measured);
        let end = |_: Event<'_>| Err(Error::unavailable("enough"));
        assert!(measure(&plan, &host, &mut { end }).is_err());
        plan.threads.push(THREADS_MAX + 1);
        let mut begun = false;
        let error = measure(&plan, &host, &mut |_| {
            begun = true;
            Ok(())
        });
        assert_eq!((error.unwrap_err().kind(), begun), (ErrorKind::Usage, false));
    }

    #[test]
    fn disturbed_runs_count_only_where_there_are_no_others() {
        let run = |(rate, disturbed)| Run { seconds: 1.0, rate, error: None, passed: true, disturbed };
        let problem = Problem { order: Some(500), sizes: Sizes::LEAST, stream_bytes: 8000 };
        let row = |runs: [(f64, bool); 3]| Row::new(Kernel::Fft, 2, &problem, runs.map(run).into()).unwrap();
        let some = row([(10.0, false), (3.0, true), (11.0, false)]);
        assert_eq!((some.best, some.median, some.least(), some.is_disturbed()), (11.0, 10.5, 10.0, false));
        let all = row([(10.0, true), (3.0, true), (11.0, true)]);
        assert_eq!((all.best, all.median, all.least(), all.is_disturbed()), (11.0, 10.0, 3.0, true));
        assert_eq!(all.name(), "fft 500 (2 threads)");
    }

    #[test]
    fn a_wrong_result_of_stream_is_one_of_all_its_kernels() {
        let passes = Passes { elements: 1000, seconds: [(); 4].map(|()| vec![9.0, 1e-6]) };
        let runs = Run::of_stream(&passes, false, false);
        let kernels: Vec<_> = runs.iter().map(|(kernel, _)| *kernel).collect();
        assert_eq!(kernels, Part::Stream.kernels());
        let (kernel, run) = runs[3];
        assert!((run.rate / 24e9 - 1.0).abs() < 1e-12 && (run.seconds / 1e-6 - 1.0).abs() < 1e-12);
        let problem = Problem { order: None, sizes: Sizes::LEAST, stream_bytes: 8000 };
        let row = Row::new(kernel, 2, &problem, vec![run]).unwrap();
        assert!(!row.passed && conclusion(&[row], true).contains("WRONG RESULTS: stream triad (2 threads)."));
        assert!(Run::of_stream(&passes, true, false).iter().all(|(_, run)| run.passed));
    }
}
