//! Copies of blocks by several threads.

use std::time::{Duration, Instant};

use emu_bench::memory::StreamSize;
use emu_bench::stats::Sample;
use emu_core::{CpuList, Host, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::check_blocks;
use crate::kernel::blocks::Blocks;
use crate::kernel::{Share, Window, each_on, on_threads};
use crate::places;
use crate::witness::parted;

const WHAT: &str = "the copy";

/// Bytes of a block of a long series, where a thread has as many.
const STEADY_BLOCK: u64 = 1 << 20;

/// Between two looks at the clock.
const BATCH: Duration = Duration::from_micros(100);

/// What was measured of copies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Copy {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks come in random order, not in theirs.
    pub random: bool,
    /// Threads, each with a part of the arrays of its own.
    pub threads: usize,
    /// Median of the samples: bytes copied each second by all threads. STREAM would count twice as many, as it
    /// counts reads and writes.
    pub bytes_per_s: f64,
    /// How long one thread takes for a block, in nanoseconds; the place of the next block is worked out in that time,
    /// too.
    pub block_ns: f64,
    /// Bytes each second, one in each round.
    pub samples: Vec<f64>,
    /// Those of rounds in which others had a part of the CPUs; they do not count.
    #[serde(default)]
    pub left_out: Vec<f64>,
    /// Whether others had a part of the CPUs in every round; all count then.
    #[serde(default)]
    pub disturbed: bool,
}

impl Copy {
    /// From rates, each with whether others disturbed it.
    pub(super) fn of(block_bytes: u64, random: bool, threads: usize, rates: &[(f64, bool)]) -> Result<Self> {
        let (samples, left_out, disturbed) = parted(rates);
        let bytes_per_s = Sample::new(samples.clone())?.median();
        let block_ns = block_bytes as f64 * threads as f64 / bytes_per_s * 1e9;
        Ok(Self { block_bytes, random, threads, bytes_per_s, block_ns, samples, left_out, disturbed })
    }
}

#[derive(Debug)]
struct Copier {
    blocks: Blocks,
    batch: u64,
}

impl Copier {
    fn new(bytes: u64, block_bytes: u64, random: bool, seed: u64) -> Self {
        let mut blocks = Blocks::new(bytes as usize, block_bytes as usize, random, seed);
        let batch = batch(&mut blocks);
        Self { blocks, batch }
    }

    /// Copies in this window. Returns the bytes copied, and whether the copies were right, which is looked at after it.
    fn sample(&mut self, window: &Window) -> (Share, Result<()>) {
        let Self { blocks, batch } = self;
        let spoiled = blocks.spoil(*batch);
        let share = window.repeat(|| {
            blocks.copy(*batch);
            *batch * blocks.block() as u64
        });
        let right = if share.is_none() { Ok(()) } else { blocks.verify(spoiled) };
        (share, right)
    }
}

/// Copies that are always the same: what a long series makes.
#[derive(Debug)]
pub struct Steady {
    copiers: Vec<Copier>,
    places: Vec<CpuList>,
}

impl Steady {
    /// Copies of blocks in their order by so many threads, each with a part of two arrays of its own; memory is taken once
    /// for all samples.
    pub fn new(host: &Host, size: StreamSize, block_bytes: u64, threads: usize, seed: u64) -> Result<Self> {
        check_blocks(size, &[block_bytes], threads)?;
        Self::of(size.array_bytes, block_bytes, false, places(host, threads), seed)
    }

    pub(super) fn of(
        bytes: u64,
        block_bytes: u64,
        random: bool,
        places: Vec<CpuList>,
        seed: u64,
    ) -> Result<Self> {
        let copiers = on_threads(WHAT, &places, |number| {
            let part = bytes / places.len() as u64;
            Ok(Copier::new(part, block_bytes, random, seed ^ number as u64))
        })?;
        Ok(Self { copiers, places })
    }

    /// Bytes of a block where none are asked for: 1 MiB, or all that each of so many threads has.
    pub fn usual_block(size: StreamSize, threads: usize) -> u64 {
        STEADY_BLOCK.min(size.array_bytes / threads.max(1) as u64)
    }

    /// Bytes copied each second by all threads over this time.
    pub fn rate(&mut self, length: Duration) -> Result<f64> {
        let window = Window::new(self.copiers.len(), length);
        let workers = self.copiers.iter_mut().zip(&self.places);
        let shares = each_on(WHAT, workers, |copier| {
            let (share, right) = copier.sample(&window);
            right.map(|()| share)
        })?;
        Ok(Window::rate(shares))
    }
}

/// Copies that take about [`BATCH`]; as a side effect the memory has been touched and the CPU is awake.
fn batch(blocks: &mut Blocks) -> u64 {
    let mut count = 1;
    loop {
        let begin = Instant::now();
        blocks.copy(count);
        if begin.elapsed() >= BATCH {
            return count;
        }
        count *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{ErrorKind, Roots};

    const SIZE: StreamSize = StreamSize { array_bytes: 1 << 20, cache_bytes: None, available_bytes: None };

    #[test]
    fn a_steady_copy_has_a_rate_as_often_as_it_is_asked_for() {
        let host = Host::detect(&Roots::system()).unwrap();
        for threads in [1, 2] {
            let mut work = Steady::new(&host, SIZE, 4096, threads, 5).unwrap();
            let rates = [(); 3].map(|()| work.rate(Duration::from_micros(300)).unwrap());
            assert!(rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
        }
    }

    #[test]
    fn a_steady_block_fits_what_each_thread_has() {
        let host = Host::detect(&Roots::system()).unwrap();
        let usual = |threads| Steady::usual_block(SIZE, threads);
        assert_eq!((usual(1), usual(4)), (1 << 20, 1 << 18));
        for (block, threads) in [(1 << 20, 2), (2 << 20, 1), (0, 1), (1, 0)] {
            let error = Steady::new(&host, SIZE, block, threads, 5).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{block} {threads}");
        }
    }

    #[test]
    fn copies_are_measured_in_every_order_and_by_several_threads() {
        let cpus = Host::detect(&Roots::system()).unwrap().allowed;
        for (block, random, threads) in [(1, false, 1), (1, true, 2), (4096, true, 1), (1 << 19, false, 2)] {
            let mut work = Steady::of(1 << 20, block, random, vec![cpus.clone(); threads], 5).unwrap();
            let rate = work.rate(Duration::from_micros(300)).unwrap();
            let copy = Copy::of(block, random, threads, &[(rate, false)]).unwrap();
            assert!(rate > 0.0 && copy.samples == [rate]);
            assert!((copy.block_ns * rate / threads as f64 / 1e9 / block as f64 - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn disturbed_rounds_count_only_where_there_is_nothing_else() {
        let rounds = [(3.0, false), (1.0, true), (5.0, false)];
        let copy = Copy::of(8, false, 1, &rounds).unwrap();
        assert_eq!((copy.samples, copy.left_out, copy.disturbed), (vec![3.0, 5.0], vec![1.0], false));
        let copy = Copy::of(8, false, 1, &rounds.map(|(rate, _)| (rate, true))).unwrap();
        assert_eq!((copy.samples.len(), copy.left_out.len(), copy.disturbed), (3, 0, true));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let nowhere = ["1000".parse().unwrap()];
        assert!(Steady::of(1 << 20, 64, false, nowhere.into(), 5).is_err());
    }
}
