//! How fast memory is: copies of blocks, STREAM, and the time of single loads.

mod copy;
mod latency;
mod plan;

pub use copy::{Copy, Steady};
pub use latency::Latency;
pub use plan::MemoryPlan;

use std::time::{Duration, Instant};

use emu_bench::memory::{Cache, StreamSize, caches};
use emu_core::{Error, Hertz, Host, Result, clock};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Event, Left, Watch, in_order, notes_of_build, places, tell};
use crate::kernel::stream::{self, Kernel, Passes};
use crate::witness::{Others, Witness};

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
    /// Every pass.
    pub passes: Passes,
    /// Whether others had a part of the CPUs meanwhile.
    #[serde(default)]
    pub disturbed: bool,
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

/// Measures memory as planned, the parts in random order.
pub fn run(plan: &MemoryPlan, host: &Host, watch: Watch<'_>) -> Result<Memory> {
    plan.check()?;
    let cpu = host.allowed.first().ok_or_else(|| Error::unavailable("no CPU may be used"))?;
    // A guest may be refused a good reading for a while; loads are timed all the same.
    let clock = clock::measure(cpu, clock::BUDGET).ok().map(|reading| reading.clock);
    let caches = caches(&host.roots, cpu);
    let (mut copies, mut stream, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
    let mut parts: Vec<_> = parts(plan).into_iter().enumerate().collect();
    parts.shuffle(&mut Pcg64::seed_from_u64(plan.seed));
    let samples = (Duration::from_nanos(plan.sample_ns), plan.rounds);
    let mut witness = Witness::new(host, parts.len(), Others::Count);
    let mut left = Left::new(parts.len(), samples.0 * plan.rounds as u32);
    for (number, part) in parts {
        let what = part.name();
        watch(Event::Next { what: &what, left: left.time() })?;
        let begin = Instant::now();
        match part {
            Part::Copy { block, random, threads } => {
                let bytes = plan.size.array_bytes;
                let places = places(host, threads);
                let take = || copy::measure(bytes, block, random, &places, samples, plan.seed);
                let (copy, disturbed) = witness.measure(&what, &places, take)?;
                let copy = Copy { disturbed, ..copy };
                tell(watch, "copy", &copy)?;
                copies.push((number, copy));
            }
            Part::Stream { threads } => {
                let take = || run_stream(plan, host, threads);
                let (run, disturbed) = witness.measure(&what, &places(host, threads), take)?;
                let run = Stream { disturbed, ..run };
                tell(watch, "stream", &run)?;
                stream.push((number, run));
            }
            Part::Latency { bytes } => {
                let take = || latency::measure(bytes, (cpu, clock), samples, plan.seed);
                let (latency, disturbed) = witness.measure(&what, &[[cpu].into_iter().collect()], take)?;
                let latency = Latency { disturbed, ..latency };
                tell(watch, "latency", &latency)?;
                latencies.push((number, latency));
            }
        }
        left.through(begin.elapsed());
    }
    let notes = witness.notes().into_iter().chain(notes_of_build()).collect();
    let (copies, stream, latencies) = (in_order(copies), in_order(stream), in_order(latencies));
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

fn run_stream(plan: &MemoryPlan, host: &Host, threads: usize) -> Result<Stream> {
    let elements = plan.size.array_bytes as usize / size_of::<f64>();
    let passes = stream::run(elements, &places(host, threads), plan.iterations)?;
    // There are two iterations at least, by the plan's check.
    let best_bytes_per_s = Kernel::ALL.map(|kernel| passes.best(kernel).unwrap_or(0.0));
    Ok(Stream { threads, best_bytes_per_s, passes, disturbed: false })
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
        assert_eq!(told, 8 + 2 + sets.len());
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
