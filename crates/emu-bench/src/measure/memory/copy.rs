//! Copies of blocks by several threads.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use emu_core::{CpuList, Result};
use serde::{Deserialize, Serialize};

use crate::kernel::blocks::Blocks;
use crate::kernel::on_threads;
use crate::stats::Sample;

/// Between two looks at the clock.
const BATCH: Duration = Duration::from_micros(100);

/// What was measured of copies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Bytes each second, in the order they were taken.
    pub samples: Vec<f64>,
}

/// Copies blocks of `bytes` in all, by a thread on each of these places, and verifies the copies.
///
/// # Errors
/// A thread cannot be made or bound, or a copy is wrong ([`ErrorKind::WrongResult`](emu_core::ErrorKind)).
pub(super) fn measure(
    bytes: u64,
    block_bytes: u64,
    random: bool,
    places: &[CpuList],
    (length, rounds): (Duration, usize),
    seed: u64,
) -> Result<Copy> {
    let threads = places.len();
    let barrier = Barrier::new(threads);
    let rates = on_threads("the copy", places, |number| {
        let part = (bytes / threads as u64) as usize;
        let mut blocks = Blocks::new(part, block_bytes as usize, random, seed ^ number as u64);
        let batch = batch(&mut blocks);
        let mut rates = Vec::with_capacity(rounds);
        let mut verified = Ok(());
        for _ in 0..rounds {
            let spoiled = blocks.spoil(batch);
            barrier.wait();
            let (begin, mut count) = (Instant::now(), 0);
            let seconds = loop {
                blocks.copy(batch);
                count += batch;
                let passed = begin.elapsed();
                if passed >= length {
                    break passed.as_secs_f64();
                }
            };
            barrier.wait();
            rates.push(count as f64 * block_bytes as f64 / seconds);
            verified = verified.and_then(|()| blocks.verify(spoiled));
        }
        verified.map(|()| rates)
    })?;
    let sum_of = |round: usize| rates.iter().filter_map(|rates| rates.get(round)).sum::<f64>();
    let samples: Vec<f64> = (0..rounds).map(sum_of).collect();
    let bytes_per_s = Sample::new(samples.clone())?.median();
    let block_ns = block_bytes as f64 * threads as f64 / bytes_per_s * 1e9;
    Ok(Copy { block_bytes, random, threads, bytes_per_s, block_ns, samples })
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
    use emu_core::{Host, Roots};

    #[test]
    fn copies_are_measured_in_every_order_and_by_several_threads() {
        let cpus = Host::detect(&Roots::system()).unwrap().allowed;
        for (block, random, threads) in [(1, false, 1), (1, true, 2), (4096, true, 1), (1 << 19, false, 2)] {
            let samples = (Duration::from_micros(300), 3);
            let copy = measure(1 << 20, block, random, &vec![cpus.clone(); threads], samples, 5).unwrap();
            assert_eq!((copy.samples.len(), copy.threads), (3, threads));
            assert!(copy.samples.iter().all(|rate| *rate > 0.0));
            let of_one = copy.bytes_per_s / threads as f64;
            assert!((copy.block_ns * of_one / 1e9 / block as f64 - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let nowhere = ["1000".parse().unwrap()];
        assert!(measure(1 << 20, 64, false, &nowhere, (Duration::from_micros(10), 1), 5).is_err());
    }
}
