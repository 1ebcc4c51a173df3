//! One kind of transfer for a long time.

use std::path::PathBuf;
use std::time::Duration;

use emu_core::{Error, Host, Result};

use super::plan::check_sizes;
use super::scratch::{self, Scratch};
use super::target::{Target, fits_memory};
use super::{Column, Operation, Order, Transfer};
use crate::series::{self, Series};
use crate::witness::{Others, Witness};
use crate::{Event, Watch};

/// What a long series makes: one kind of transfer, always the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steady {
    /// The file is made in this folder; it never has a name there.
    pub folder: PathBuf,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// What is transferred, and how.
    pub transfer: Transfer,
    /// Start of the random numbers.
    pub seed: u64,
}

impl Steady {
    /// Direct reads of 1 MiB in random order by one thread, from a file of 256 MiB.
    pub fn usual(folder: PathBuf, seed: u64) -> Self {
        let transfer = Transfer {
            block_bytes: 1 << 20,
            operation: Operation::Read,
            order: Order::Random,
            threads: 1,
            column: Column::Direct,
        };
        Self { folder, file_bytes: 256 << 20, transfer, seed }
    }

    /// Whether it can be carried out, as far as can be told without writing.
    pub fn check(&self) -> Result<()> {
        let Transfer { block_bytes, threads, column, .. } = self.transfer;
        let endless = || (!column.ends_operations()).then_some("what is written has to be synced at an end");
        if let Some(why) = self.transfer.senseless().or_else(endless) {
            return Err(Error::usage(format!("no series of {}: {why}", self.transfer.name()))
                .hint("take --operation write with --column durable, or --column direct"));
        }
        check_sizes(&[block_bytes], &[threads], self.file_bytes)?;
        scratch::check_room(&self.folder, self.file_bytes)
    }

    /// Makes the file, transfers all the time, and verifies at the end what was transferred. What is written is read back
    /// then, too: between samples that would be work of the disk that no sample counts.
    pub fn run(&self, host: &Host, plan: series::SeriesPlan, watch: Watch<'_>) -> Result<Series> {
        self.check()?;
        let fits_memory = fits_memory(host, self.file_bytes);
        let scratch = {
            let mut watch = || watch(Event::Next { what: "making the file", left: Duration::ZERO });
            Scratch::make(&self.folder, self.file_bytes, self.seed, &mut watch)?
        };
        let mut target = Target::new(scratch, self.file_bytes, fits_memory);
        let transfer = &self.transfer;
        if let Some(why) = target.refusal(transfer) {
            return Err(Error::unavailable(format!("no series of {}: {why}", transfer.name()))
                .hint("take another --column, --blocks or --size, or another disk with --dir"));
        }
        target.prepare(transfer)?;
        let mut workers = target.workers(transfer)?;
        let rate = |length| {
            let sample = target.full(transfer, &mut workers, length);
            sample.map(|(sample, _)| sample.bytes_per_s)
        };
        let witness = Witness::new(host, 1, Others::Work);
        let mut series = series::run_beside(witness, plan, (&transfer.name(), "B"), rate, watch)?;
        target.verify(transfer, &workers)?;
        series.notes.extend_from_slice(target.doubts());
        Ok(series)
    }
}
