//! What is measured of the memory.

use emu_bench::memory::StreamSize;
use emu_core::{Error, Host, Result};
use serde::Serialize;

use crate::kernel::chase;
use crate::{THREADS_MAX, check_threads, or_usual};

const CHASE_MIN: u64 = 4 << 10;

/// What is measured of the memory, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// Length of the arrays: three for STREAM, two for copies; the longest chase goes through one.
    pub size: StreamSize,
    /// Bytes of the blocks that are copied.
    pub blocks: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Bytes that pointers are chased through.
    pub working_sets: Vec<u64>,
    /// How long a sample is.
    pub sample_ns: u64,
    /// Samples of each, one in each round.
    pub rounds: usize,
    /// Iterations of STREAM over all rounds at least, of which the first of each round is not counted.
    pub iterations: usize,
    /// Start of the random numbers.
    pub seed: u64,
}

impl MemoryPlan {
    /// Seven sizes of blocks, as far as they fit, every second size of working sets, and STREAM as its rules are; for a
    /// first look three, every fourth, and fewer passes. With these numbers of threads, else with the usual ones.
    pub fn new(host: &Host, quick: bool, size: StreamSize, threads: &[usize], seed: u64) -> Self {
        let threads = or_usual(threads, host, quick);
        let (blocks, factor, sample_ns, rounds, iterations): (&[u64], _, _, _, _) = if quick {
            (&[1, 1 << 10, 1 << 20], 4, 50_000_000, 3, 4)
        } else {
            (&[1, 8, 64, 1 << 10, 16 << 10, 1 << 20, 16 << 20], 2, 300_000_000, 5, 10)
        };
        let blocks = fitting(blocks, &threads, size);
        let working_sets = working_sets(size.array_bytes, factor);
        Self { size, blocks, threads, working_sets, sample_ns, rounds, iterations, seed }
    }

    /// Whether it can be carried out.
    pub fn check(&self) -> Result<()> {
        check_threads(&self.threads, THREADS_MAX)?;
        if self.rounds == 0 || self.sample_ns == 0 || self.iterations < 2 {
            return Err(Error::usage("nothing is to be measured"));
        }
        check_blocks(self.size, &self.blocks, most(&self.threads))?;
        let limits = 2 * chase::LINE as u64..=self.size.array_bytes;
        match self.working_sets.iter().find(|bytes| !limits.contains(*bytes)) {
            Some(bytes) => Err(Error::usage(format!("cannot chase pointers through {bytes} bytes"))
                .hint(format!("{} to {} bytes are possible", limits.start(), limits.end()))),
            None => Ok(()),
        }
    }
}

pub(super) fn check_blocks(size: StreamSize, blocks: &[u64], threads: usize) -> Result<()> {
    let part = size.array_bytes / threads.max(1) as u64;
    match blocks.iter().find(|block| !(1..=part).contains(*block)) {
        Some(block) => {
            Err(Error::usage(format!("cannot copy blocks of {block} bytes: each thread has {part} bytes"))
                .hint("a block has 1 byte at least; --size makes the arrays longer"))
        }
        None => Ok(()),
    }
}

fn most(threads: &[usize]) -> usize {
    threads.iter().max().copied().unwrap_or(1)
}

fn fitting(blocks: &[u64], threads: &[usize], size: StreamSize) -> Vec<u64> {
    let part = size.array_bytes / most(threads).max(1) as u64;
    blocks.iter().copied().filter(|block| *block <= part).collect()
}

/// Sizes from 4 KiB on, each `factor` times the one before, and the largest, which is twice the one before at least.
fn working_sets(largest: u64, factor: u64) -> Vec<u64> {
    let powers = std::iter::successors(Some(CHASE_MIN), |bytes| bytes.checked_mul(factor));
    powers.take_while(|bytes| *bytes <= largest / 2).chain([largest]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{ErrorKind, Roots};

    #[test]
    fn working_sets_reach_from_the_smallest_to_the_largest() {
        assert_eq!(working_sets(200 << 10, 4), [4 << 10, 16 << 10, 64 << 10, 200 << 10]);
        assert_eq!(working_sets(16 << 10, 4), [4 << 10, 16 << 10]);
        assert_eq!(working_sets(1040 << 20, 4).last_chunk(), Some(&[256 << 20, 1040 << 20]));
    }

    #[test]
    fn usual_blocks_fit_the_threads_that_are_asked_for() {
        let host = Host::detect(&Roots::system()).unwrap();
        let size = StreamSize { array_bytes: 1 << 20, cache_bytes: None, available_bytes: None };
        let blocks = |threads: &[usize]| {
            let plan = MemoryPlan::new(&host, false, size, threads, 1);
            plan.check().unwrap();
            plan.blocks
        };
        assert_eq!(blocks(&[1]), [1, 8, 64, 1 << 10, 16 << 10, 1 << 20]);
        assert_eq!(blocks(&[THREADS_MAX, 1]), [1, 8, 64, 1 << 10]);
        assert!(MemoryPlan::new(&host, false, size, &[0], 1).check().is_err());
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        let host = Host::detect(&Roots::system()).unwrap();
        let size = StreamSize { array_bytes: 1 << 20, cache_bytes: None, available_bytes: None };
        let plan = MemoryPlan::new(&host, true, size, &[1], 1);
        assert!(plan.check().is_ok(), "usual blocks that do not fit are left out");
        for bad in [
            MemoryPlan { blocks: vec![0], ..plan.clone() },
            MemoryPlan { blocks: vec![2 << 20], ..plan.clone() },
            MemoryPlan { threads: vec![], ..plan.clone() },
            MemoryPlan { threads: vec![2], blocks: vec![1 << 20], ..plan.clone() },
            MemoryPlan { working_sets: vec![64], ..plan.clone() },
            MemoryPlan { working_sets: vec![2 << 20], ..plan.clone() },
            MemoryPlan { iterations: 1, ..plan.clone() },
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::Usage, "{bad:?}");
        }
    }
}
