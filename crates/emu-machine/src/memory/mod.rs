//! How fast memory is: copies of blocks, STREAM, and the time of single loads.

mod copy;
mod latency;
mod plan;

pub use copy::{Copy, Steady};
pub use latency::Latency;
pub use plan::MemoryPlan;

use std::time::{Duration, Instant};

use emu_bench::memory::{Cache, StreamSize, caches};
use emu_bench::stats::Sample;
use emu_core::{CpuList, Error, Hertz, Host, Result, clock};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Event, Left, Watch, notes_of_build, places, tell};
use crate::kernel::stream::{self, Kernel, Passes};
use crate::witness::{Others, Witness, are_disturbed, parted};

/// What memory does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Length of the arrays, and why.
    pub size: StreamSize,
    /// The caches of the first CPU.
    pub caches: Vec<Cache>,
    /// The core clock of the first CPU; `None` where it could not be measured.
    pub clock: Option<Hertz>,
    /// Copies of blocks.
    pub copies: Vec<Copy>,
    /// STREAM, by number of threads.
    pub stream: Vec<Stream>,
    /// Times of loads, by working set.
    pub latencies: Vec<Latency>,
    /// What is to be known of the figures, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A run of STREAM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stream {
    /// Threads.
    pub threads: usize,
    /// The best rate of each kernel, in bytes each second, as STREAM counts them; in the order of [`Kernel::ALL`].
    pub best_bytes_per_s: [f64; 4],
    /// Every pass of the rounds that count.
    pub passes: Passes,
    /// The passes of rounds in which others had a part of the CPUs; they do not count.
    #[serde(default)]
    pub left_out: Vec<Passes>,
    /// Whether others had a part of the CPUs in every round; all count then.
    #[serde(default)]
    pub disturbed: bool,
}

impl Stream {
    /// From runs, each with whether others disturbed it.
    fn of(threads: usize, runs: &[(Passes, bool)]) -> Result<Self> {
        let (kept, left_out, disturbed) = parted(runs);
        let (first, others) = kept.split_first().ok_or_else(|| Error::usage("nothing is to be measured"))?;
        let mut passes = first.clone();
        for other in others {
            passes.extend(other);
        }
        // There are two iterations at least, by the plan's check.
        let best_bytes_per_s = Kernel::ALL.map(|kernel| passes.best(kernel).unwrap_or(0.0));
        Ok(Self { threads, best_bytes_per_s, passes, left_out, disturbed })
    }
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Copy { block: u64, random: bool, threads: usize },
    Stream { threads: usize },
    Latency { bytes: u64 },
}

impl Part {
    fn name(self) -> String {
        match self {
            Self::Copy { block, random, threads } => {
                let order = if random { "random" } else { "sequential" };
                format!("{order} copy of {block} B blocks, {threads} threads")
            }
            Self::Stream { threads } => format!("STREAM, {threads} threads"),
            Self::Latency { bytes } => format!("loads from {bytes} B"),
        }
    }
}

/// A part, and what was taken of it in each round, with whether others disturbed it.
struct Row {
    part: Part,
    /// Rates of copies, or nanoseconds of a load.
    figures: Vec<(f64, bool)>,
    passes: Vec<(Passes, bool)>,
}

/// Measures memory as planned. Every round has each part once, in random order: what is compared is never far apart in time,
/// and each sample has memory of its own.
pub fn run(plan: &MemoryPlan, host: &Host, watch: Watch<'_>) -> Result<Memory> {
    plan.check()?;
    let cpu = host.allowed.first().ok_or_else(|| Error::unavailable("no CPU may be used"))?;
    let caches = caches(&host.roots, cpu);
    let length = Duration::from_nanos(plan.sample_ns);
    let row = |part| Row { part, figures: Vec::new(), passes: Vec::new() };
    let mut rows: Vec<_> = parts(plan).into_iter().map(row).collect();
    let mut random = Pcg64::seed_from_u64(plan.seed);
    let mut witness = Witness::new(host, rows.len() * plan.rounds, Others::Count);
    let mut left = Left::new(rows.len() * plan.rounds, length);
    let mut clocks = Vec::new();
    for _ in 0..plan.rounds {
        // A guest may be refused a good reading for a while; loads are timed all the same.
        clocks.extend(clock::measure(cpu, clock::BUDGET).ok().map(|reading| reading.clock.as_f64()));
        let mut round: Vec<_> = rows.iter_mut().collect();
        round.shuffle(&mut random);
        for Row { part, figures, passes } in round {
            let what = part.name();
            watch(Event::Next { what: &what, left: left.time() })?;
            let begin = Instant::now();
            match *part {
                Part::Copy { block, random, threads } => {
                    let places = places(host, threads);
                    let take = || {
                        let bytes = plan.size.array_bytes;
                        Steady::of(bytes, block, random, places.clone(), plan.seed)?.rate(length)
                    };
                    let rate = witness.measure(&what, &places, take)?;
                    tell(watch, "copy", &Copy::of(block, random, threads, &[rate])?)?;
                    figures.push(rate);
                }
                Part::Stream { threads } => {
                    let places = places(host, threads);
                    let take = || run_stream(plan, &places);
                    let run = [witness.measure(&what, &places, take)?];
                    tell(watch, "stream", &Stream::of(threads, &run)?)?;
                    passes.extend(run);
                }
                Part::Latency { bytes } => {
                    let take = || latency::load_ns(bytes, cpu, length, plan.seed);
                    let load_ns = witness.measure(&what, &[[cpu].into_iter().collect()], take)?;
                    tell(watch, "latency", &Latency::of(bytes, &[load_ns], None)?)?;
                    figures.push(load_ns);
                }
            }
            left.through(begin.elapsed());
        }
    }
    let clock = Sample::new(clocks).ok().map(|clocks| Hertz(clocks.median() as u64));
    let disturbed = rows.iter().filter(|row| are_disturbed(&row.figures) && are_disturbed(&row.passes));
    let disturbed: Vec<_> = disturbed.map(|row| row.part.name()).collect();
    let (mut copies, mut stream, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
    for Row { part, figures, passes } in rows {
        match part {
            Part::Copy { block, random, threads } => {
                copies.push(Copy::of(block, random, threads, &figures)?);
            }
            Part::Stream { threads } => stream.push(Stream::of(threads, &passes)?),
            Part::Latency { bytes } => latencies.push(Latency::of(bytes, &figures, clock)?),
        }
    }
    let notes = witness.notes_but_left_out(|what| disturbed.iter().any(|name| name == what));
    let notes = notes.into_iter().chain(notes_of_build()).collect();
    Ok(Memory { size: plan.size, caches, clock, copies, stream, latencies, notes })
}

fn parts(plan: &MemoryPlan) -> Vec<Part> {
    let mut parts = Vec::new();
    for &block in &plan.blocks {
        for random in [false, true] {
            parts.extend(plan.threads.iter().map(|&threads| Part::Copy { block, random, threads }));
        }
    }
    parts.extend(plan.threads.iter().map(|&threads| Part::Stream { threads }));
    parts.extend(plan.working_sets.iter().map(|&bytes| Part::Latency { bytes }));
    parts
}

/// As many passes as count in each of the rounds, and the one before them that does not.
fn run_stream(plan: &MemoryPlan, places: &[CpuList]) -> Result<Passes> {
    let elements = plan.size.array_bytes as usize / size_of::<f64>();
    stream::run(elements, places, 1 + (plan.iterations - 1).div_ceil(plan.rounds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{ErrorKind, Roots};

    fn plan(host: &Host) -> MemoryPlan {
        let size = StreamSize { array_bytes: 1 << 20, cache_bytes: None, available_bytes: None };
        MemoryPlan { sample_ns: 300_000, rounds: 2, ..MemoryPlan::new(host, true, size, &[1, 2], 3) }
    }

    #[test]
    fn all_parts_are_measured_and_told_in_the_order_of_the_plan() {
        let host = Host::detect(&Roots::system()).unwrap();
        let plan = plan(&host);
        let plan = MemoryPlan { blocks: vec![1, 4096], ..plan };
        let mut told = 0;
        let memory = run(&plan, &host, &mut |event| {
            told += usize::from(matches!(event, Event::Sample { .. }));
            Ok(())
        })
        .unwrap();
        let rows: Vec<_> =
            memory.copies.iter().map(|copy| (copy.block_bytes, copy.random, copy.threads)).collect();
        let must = [1, 4096]
            .into_iter()
            .flat_map(|block| [(block, false, 1), (block, false, 2), (block, true, 1), (block, true, 2)]);
        assert_eq!(rows, must.collect::<Vec<_>>());
        assert_eq!(memory.stream.iter().map(|run| run.threads).collect::<Vec<_>>(), [1, 2]);
        assert!(memory.stream.iter().all(|run| run.best_bytes_per_s.iter().all(|rate| *rate > 0.0)));
        let sets: Vec<_> = memory.latencies.iter().map(|latency| latency.working_set_bytes).collect();
        assert_eq!(sets, plan.working_sets);
        assert_eq!(told, plan.rounds * (8 + 2 + sets.len()));
        let taken = |samples: &[f64], left_out: &[f64]| samples.len() + left_out.len();
        assert!(memory.copies.iter().all(|copy| taken(&copy.samples, &copy.left_out) == plan.rounds));
        assert!(memory.latencies.iter().all(|load| taken(&load.samples, &load.left_out) == plan.rounds));
        let text = serde_json::to_string(&memory).unwrap();
        assert_eq!(serde_json::from_str::<Memory>(&text).unwrap(), memory);
    }

    #[test]
    fn a_measurement_can_be_ended() {
        let host = Host::detect(&Roots::system()).unwrap();
        let error = run(&plan(&host), &host, &mut |_| Err(Error::new(ErrorKind::Failed, "ended")));
        assert_eq!(error.unwrap_err().to_string(), "ended");
    }
}
