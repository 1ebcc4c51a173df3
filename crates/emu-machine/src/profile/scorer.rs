//! A process that measures how fast it is: native, or in a zone that it is put into.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use emu_bench::memory::available;
use emu_bench::worker::{Kind, Task, Worker};
use emu_bench::workload::confine;
use emu_core::{CpuId, CpuList, Error, ErrorKind, Host, Pid, Result, clock};
use serde::{Deserialize, Serialize};

use super::Metric;
use crate::cpu::batches;
use crate::kernel::arithmetic::{Number, Operation, Work};
use crate::kernel::chase::Chase;
use crate::kernel::linpack::System;
use crate::kernel::stream;
use emu_bench::stream::Kernel;

/// What a scorer does, for the program's `main`.
pub const TASK: Kind = Kind::of::<Scoring>();

/// No score takes longer: a command may.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Equations of LINPACK, and of how many systems there is a copy at most: 128 MB.
const ORDER: usize = 1000;
const SYSTEMS_MAX: usize = 16;

/// Elements of each array of STREAM: 96 MB in all.
const ELEMENTS: usize = 4 << 20;

const SPREAD: u64 = 64 << 20;

/// Memory that a scorer takes at most, in bytes: what loads are spread over is kept while systems are solved, or arrays
/// are gone through.
fn needed_bytes() -> u64 {
    let systems = SYSTEMS_MAX as u64 * crate::kernel::linpack::bytes(ORDER);
    let arrays = 3 * (ELEMENTS * size_of::<f64>()) as u64;
    SPREAD + systems.max(arrays)
}

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    metric: Metric,
    length_ns: u64,
    cpu: CpuId,
}

/// A scorer, as the measurement holds it. Dropping it ends it.
#[derive(Debug)]
pub struct Scorer {
    worker: Worker<Scoring>,
    cpu: CpuId,
}

impl Scorer {
    /// Starts one that runs on this CPU.
    ///
    /// # Errors
    /// Unavailable, where memory does not suffice for every metric. The process cannot be started.
    pub fn start(host: &Host, cpu: CpuId) -> Result<Self> {
        let (needed, available) = (needed_bytes(), available(host).unwrap_or(u64::MAX));
        if available < needed {
            return Err(Error::unavailable(format!(
                "measuring how fast a machine is takes {} MiB of memory, and {} MiB are available",
                needed >> 20,
                available >> 20
            ))
            .hint("free memory, or raise the limit: ulimit -v, ulimit -d, or that of the cgroup"));
        }
        Ok(Self { worker: Worker::start()?, cpu })
    }

    /// The process, to be put into a zone.
    pub fn pid(&self) -> Pid {
        self.worker.pid()
    }

    /// How fast it is now, each second.
    pub fn score(
        &mut self,
        metric: &Metric,
        length: Duration,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<f64> {
        let length_ns = emu_bench::nanos(length);
        let mut one = |metric: &Metric| {
            let request = Request { metric: metric.clone(), length_ns, cpu: self.cpu };
            self.worker.ask(&request, PATIENCE, Some(look))
        };
        if *metric == Metric::Geomean { Metric::geomean(one) } else { one(metric) }
    }
}

#[derive(Debug, Default)]
pub(super) struct Scoring {
    chase: Option<Chase>,
}

impl Task for Scoring {
    const NAME: &'static str = "scorer";
    type Request = Request;
    type Answer = f64;

    fn answer(&mut self, request: Request) -> Result<f64> {
        let only: CpuList = [request.cpu].into_iter().collect();
        confine(&only)?;
        let length = Duration::from_nanos(request.length_ns);
        match &request.metric {
            Metric::Loop => Ok(clock::delivered(length).clock.as_f64()),
            Metric::Int => arithmetic(Number::Integer, &only, length),
            Metric::Fp => arithmetic(Number::Double, &only, length),
            Metric::Linpack => linpack(&only, length),
            Metric::Memory => memory(&only, length),
            Metric::Latency => self.latency(length),
            Metric::Command(command) => self::command(command, length),
            Metric::Geomean => Err(Error::usage("it is worked out from others")),
        }
    }
}

fn arithmetic(number: Number, only: &CpuList, length: Duration) -> Result<f64> {
    let work = Work { number, operation: Operation::Mixed };
    batches::rate(work, work.one(), std::slice::from_ref(only), length)
}

/// Systems are made before the time begins, and solved in a row: what an emulation leaves out falls anywhere.
fn linpack(only: &CpuList, length: Duration) -> Result<f64> {
    let threads = std::slice::from_ref(only);
    let first = System::new(ORDER, 1);
    let begin = Instant::now();
    let solution = first.clone().solve(threads)?;
    let each = begin.elapsed();
    if !solution.check().passes() {
        return Err(
            emu_bench::wrong("result of LINPACK").hint("the CPU or the memory has erred: try another CPU")
        );
    }
    let count = (length.as_secs_f64() / each.as_secs_f64()).ceil().clamp(1.0, SYSTEMS_MAX as f64) as usize;
    let systems = vec![first; count];
    let begin = Instant::now();
    for system in systems {
        system.solve(threads)?;
    }
    let operations = crate::kernel::linpack::operations(ORDER) * count as f64;
    Ok(operations / begin.elapsed().as_secs_f64())
}

fn memory(only: &CpuList, length: Duration) -> Result<f64> {
    let bytes = Kernel::Triad.bytes(ELEMENTS) as f64;
    // A pass takes some 10 ms, and there are four kernels.
    let iterations = (length.as_secs_f64() / 0.04).ceil().clamp(2.0, 50.0) as usize;
    let passes = stream::run(ELEMENTS, std::slice::from_ref(only), iterations + 1)?;
    // The mean, not the best: in a zone the best pass has no pause in it.
    let rates = passes.rates(Kernel::Triad);
    let seconds: f64 = rates.iter().map(|rate| bytes / rate).sum();
    Ok(bytes * rates.len() as f64 / seconds)
}

impl Scoring {
    fn latency(&mut self, length: Duration) -> Result<f64> {
        const STEPS: u64 = 10_000;
        let chase = self.chase.take().map_or_else(|| Chase::new(SPREAD, 1), Ok)?;
        let chase = self.chase.insert(chase);
        let (mut steps, begin) = (0, Instant::now());
        while begin.elapsed() < length {
            chase.walk(STEPS);
            steps += STEPS;
        }
        let seconds = begin.elapsed().as_secs_f64();
        chase.verify()?;
        Ok(steps as f64 / seconds)
    }
}

fn command(command: &str, length: Duration) -> Result<f64> {
    let failed = |e| Error::io("cannot run the command", e);
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (begin, mut runs) = (Instant::now(), 0.0);
    let status = loop {
        let status = shell.status().map_err(failed)?;
        runs += 1.0;
        if !status.success() {
            break status;
        }
        let passed = begin.elapsed();
        if passed >= length {
            return Ok(runs / passed.as_secs_f64());
        }
    };
    Err(Error::new(ErrorKind::Failed, format!("the command `{command}` has failed: {status}"))
        .hint("try it in a shell, in this folder"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{Host, Roots};

    #[test]
    fn a_machine_without_the_memory_is_refused_before_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = Host::detect(&Roots::system()).unwrap();
        host.roots.proc = dir.path().to_owned();
        std::fs::write(dir.path().join("meminfo"), "MemAvailable: 102400 kB\n").unwrap();
        let error = Scorer::start(&host, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("100 MiB are available"), "{error}");
    }

    #[test]
    fn every_metric_has_a_score() {
        let cpu = Host::detect(&Roots::system()).unwrap().allowed.first().unwrap();
        let commands = [Metric::Command("true".into())];
        let mut scoring = Scoring::default();
        for metric in Metric::MEASURED.into_iter().chain(commands) {
            let request = Request { metric: metric.clone(), length_ns: 1_000_000, cpu };
            let score = scoring.answer(request).unwrap();
            assert!(score > 1.0 && score.is_finite(), "{metric}: {score}");
        }
        let request = Request { metric: Metric::Command("exit 3".into()), length_ns: 0, cpu };
        assert!(scoring.answer(request).unwrap_err().to_string().contains("exit status: 3"));
    }
}
