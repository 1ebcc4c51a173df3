//! What is measured of a disk.

use std::path::PathBuf;
use std::time::Duration;

use emu_core::{Error, Host, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scratch;
use crate::{THREADS_MAX, check_threads, or_usual};

const BLOCK_MAX: u64 = 64 << 20;

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// `pread(2)`
    Read,
    /// `pwrite(2)`
    Write,
}

impl Operation {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Which block comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The next one of the file.
    Sequential,
    /// Any other, and none twice before all have come.
    Random,
}

impl Order {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
        }
    }
}

/// How far a transfer goes before it counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    /// To or from the page cache, where the whole file is.
    Cached,
    /// To the page cache, and in the end everything to the disk, as part of the time.
    WriteBack,
    /// Every write to the disk by `fdatasync(2)`, as part of the operation.
    Durable,
    /// Past the page cache (`O_DIRECT`).
    Direct,
}

impl Column {
    /// All, in the order of their cost to a program.
    pub const ALL: [Self; 4] = [Self::Cached, Self::WriteBack, Self::Durable, Self::Direct];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::WriteBack => "write-back",
            Self::Durable => "durable",
            Self::Direct => "direct",
        }
    }

    /// Whether a single operation is done when it ends. What is written back is on the disk only at the end of all.
    pub fn ends_operations(self) -> bool {
        self != Self::WriteBack
    }
}

/// One kind of transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    /// Bytes of each.
    pub block_bytes: u64,
    /// Reading or writing.
    pub operation: Operation,
    /// Which block comes next.
    pub order: Order,
    /// Threads, each with a part of the file of its own.
    pub threads: usize,
    /// How far it goes.
    pub column: Column,
}

impl Transfer {
    /// `4096 B random write, 2 threads, direct`
    pub fn name(&self) -> String {
        let Self { block_bytes, operation, order, threads, column } = self;
        let (order, operation, column) = (order.name(), operation.name(), column.name());
        format!("{block_bytes} B {order} {operation}, {threads} threads, {column}")
    }

    pub(super) fn senseless(&self) -> Option<&'static str> {
        match (self.column, self.operation) {
            (Column::WriteBack, Operation::Read) => Some("reading writes nothing back"),
            (Column::Durable, Operation::Read) => Some("reading makes nothing durable"),
            _ => None,
        }
    }
}

/// What is measured of a disk, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskPlan {
    /// The files are made in this folder; they never have a name there. No record tells of it.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Bytes of the file that is read, and of the one that is written.
    pub file_bytes: u64,
    /// Bytes of the blocks, powers of two.
    pub blocks: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// How long each transfer is made at full speed, and again at half of that.
    pub phase_ns: u64,
    /// How often each transfer is measured.
    pub rounds: usize,
    /// Start of the random numbers.
    pub seed: u64,
}

impl DiskPlan {
    /// Five sizes of blocks, each three times; for a first look three, each once: half a minute on a quick disk. With
    /// these numbers of threads, else with the usual ones.
    pub fn new(folder: PathBuf, host: &Host, quick: bool, threads: &[usize], seed: u64) -> Self {
        let (blocks, file_bytes, phase_ns, rounds) = if quick {
            (vec![1, 4 << 10, 1 << 20], 64 << 20, 100_000_000, 1)
        } else {
            (vec![1, 1 << 10, 4 << 10, 64 << 10, 1 << 20], 256 << 20, 500_000_000, 3)
        };
        Self { folder, file_bytes, blocks, threads: or_usual(threads, host, quick), phase_ns, rounds, seed }
    }

    /// Whether it can be carried out, as far as can be told without writing.
    pub fn check(&self) -> Result<()> {
        if self.blocks.is_empty() || self.rounds == 0 || self.phase_ns == 0 {
            return Err(Error::usage("nothing is to be measured"));
        }
        check_sizes(&self.blocks, &self.threads, self.file_bytes)?;
        scratch::check_room(&self.folder, self.file_bytes.saturating_mul(2))
    }

    pub(super) fn phase(&self) -> Duration {
        Duration::from_nanos(self.phase_ns)
    }

    /// Every transfer once.
    pub fn transfers(&self) -> Vec<Transfer> {
        let mut all = Vec::new();
        for &block_bytes in &self.blocks {
            for operation in [Operation::Read, Operation::Write] {
                for order in [Order::Sequential, Order::Random] {
                    for &threads in &self.threads {
                        let to = |column| Transfer { block_bytes, operation, order, threads, column };
                        all.extend(Column::ALL.map(to));
                    }
                }
            }
        }
        all
    }
}

pub(super) fn check_sizes(blocks: &[u64], threads: &[usize], file_bytes: u64) -> Result<()> {
    if let Some(block) = blocks.iter().find(|block| !block.is_power_of_two() || **block > BLOCK_MAX) {
        return Err(Error::usage(format!("cannot transfer blocks of {block} bytes"))
            .hint("a block is a power of two, 1 byte to 64 MiB, such as --blocks 4KiB"));
    }
    check_threads(threads, THREADS_MAX)?;
    let most = threads.iter().max().copied().unwrap_or(1);
    let largest = blocks.iter().max().copied().unwrap_or(1);
    let least = largest.saturating_mul(most as u64).saturating_mul(2);
    if file_bytes < least {
        return Err(Error::usage(format!(
            "a file of {file_bytes} bytes is too small for {most} threads with blocks of {largest} bytes"
        ))
        .hint(format!("each thread needs two blocks at least: --size {least}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{ErrorKind, Roots};

    fn plan() -> DiskPlan {
        let host = Host::detect(&Roots::system()).unwrap();
        DiskPlan::new(std::env::temp_dir(), &host, true, &[], 1)
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        assert!(plan().check().is_ok());
        for bad in [
            DiskPlan { blocks: vec![], ..plan() },
            DiskPlan { blocks: vec![0], ..plan() },
            DiskPlan { blocks: vec![4096, 1000], ..plan() },
            DiskPlan { blocks: vec![128 << 20], ..plan() },
            DiskPlan { threads: vec![0, 1], ..plan() },
            DiskPlan { threads: vec![257], ..plan() },
            DiskPlan { file_bytes: 0, ..plan() },
            DiskPlan { file_bytes: 1 << 20, ..plan() },
            DiskPlan { folder: "/dev/null".into(), ..plan() },
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::Usage, "{bad:?}");
        }
    }

    #[test]
    fn more_than_the_disk_has_is_refused_before_anything_is_written() {
        let error = DiskPlan { file_bytes: 1 << 60, ..plan() }.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("no room"), "{error}");
        assert!(DiskPlan { file_bytes: u64::MAX, ..plan() }.check().is_err());
    }

    #[test]
    fn every_transfer_comes_once() {
        let plan = DiskPlan { blocks: vec![1, 2], threads: vec![1, 2, 4], ..plan() };
        let all = plan.transfers();
        assert_eq!(all.len(), 2 * 2 * 2 * 3 * 4);
        assert!(all.iter().enumerate().all(|(place, one)| !all[..place].contains(one)));
    }
}
