//! A file that is transferred to and from, and how that is done.

use std::time::{Duration, Instant};

use emu_bench::memory;
use emu_core::{Error, Host, Result};

use super::latency::Times;
use super::scratch::{Direct, Scratch};
use super::worker::{Job, Pace, Worker, phase};
use super::{Column, Operation, Order, Sample, Transfer};
use crate::kernel::scatter::Scatter;

/// Whether the page cache has room for files of so many bytes.
pub(super) fn fits_memory(host: &Host, bytes: u64) -> bool {
    bytes <= memory::may_take(memory::available(host))
}

#[derive(Debug)]
pub(super) struct Target {
    scratch: Scratch,
    file_bytes: u64,
    /// Whether it has room in the page cache, with those that it is measured with.
    fits_memory: bool,
    /// How often it was [prepared](Self::prepare); what is written tells of it.
    pub(super) generation: u64,
}

impl Target {
    pub(super) fn new(scratch: Scratch, file_bytes: u64, fits_memory: bool) -> Self {
        Self { scratch, file_bytes, fits_memory, generation: 0 }
    }

    pub(super) fn direct_block_bytes(&self) -> Option<u64> {
        self.scratch.direct.as_ref().ok().map(|direct| direct.alignment)
    }

    pub(super) fn doubts(&self) -> &[String] {
        &self.scratch.doubts
    }

    pub(super) fn refusal(&self, transfer: &Transfer) -> Option<String> {
        if let Some(why) = transfer.senseless() {
            return Some(why.into());
        }
        match transfer.column {
            Column::WriteBack | Column::Durable => self.scratch.volatile.clone(),
            Column::Cached if !self.fits_memory => Some("the files do not fit into memory".into()),
            Column::Cached => None,
            Column::Direct => match &self.scratch.direct {
                Err(why) => Some(why.clone()),
                Ok(Direct { alignment, .. }) if transfer.block_bytes < *alignment => {
                    Some(format!("the smallest direct transfer is of {alignment} bytes"))
                }
                Ok(Direct { read_only, .. }) if transfer.operation == Operation::Write => read_only.clone(),
                Ok(_) => None,
            },
        }
    }

    /// Brings the page cache into the state that a transfer is to find.
    pub(super) fn prepare(&mut self, transfer: &Transfer) -> Result<()> {
        self.generation += 1;
        self.scratch.sync()?;
        if transfer.column == Column::Direct {
            self.scratch.forget()
        } else {
            self.scratch.read_all(self.file_bytes)
        }
    }

    pub(super) fn workers(&self, transfer: &Transfer) -> Result<Vec<Worker<'_>>> {
        let scratch = &self.scratch;
        let file = match (transfer.column, &scratch.direct) {
            (Column::Direct, Ok(direct)) => &direct.file,
            (Column::Direct, Err(why)) => return Err(Error::unavailable(why.clone())),
            _ => &scratch.buffered,
        };
        let blocks = self.file_bytes / transfer.threads as u64 / transfer.block_bytes;
        let job = |thread: u64| Job {
            file,
            start: thread * blocks * transfer.block_bytes,
            blocks,
            length: transfer.block_bytes as usize,
            write: transfer.operation == Operation::Write,
            durable: transfer.column == Column::Durable,
            once: transfer.column == Column::WriteBack,
            order: (transfer.order == Order::Random)
                .then(|| Scatter::new(blocks, scratch.seed ^ self.generation ^ thread << 32)),
            seed: scratch.seed,
            generation: self.generation,
        };
        Ok((0..transfer.threads as u64).map(|thread| Worker::new(job(thread))).collect())
    }

    /// Makes a transfer at full rate for this time; with write-back the sync is part of the time.
    pub(super) fn full(
        &self,
        transfer: &Transfer,
        workers: &mut [Worker<'_>],
        length: Duration,
    ) -> Result<(Sample, Times)> {
        let all = phase(workers, length, Pace::AtOnce)?;
        let syncing = Instant::now();
        if transfer.column == Column::WriteBack {
            self.scratch.sync()?;
        }
        let sync_s = syncing.elapsed().as_secs_f64();
        let mut times = Times::new()?;
        if transfer.column.ends_operations() {
            for done in &all {
                times.add(&done.times);
            }
        }
        let operations: u64 = all.iter().map(|done| done.operations).sum();
        let slowest = all.iter().map(|done| done.seconds).fold(0.0, f64::max);
        let (seconds, per_s) = if transfer.column == Column::WriteBack {
            (slowest + sync_s, operations as f64 / (slowest + sync_s))
        } else {
            // Threads end when their last operation does, each at its own moment.
            (slowest, all.iter().map(|done| done.operations as f64 / done.seconds).sum())
        };
        let bytes_per_s = per_s * transfer.block_bytes as f64;
        Ok((Sample { operations, seconds, bytes_per_s, disturbed: false }, times))
    }

    /// Looks whether what was transferred is right; what was written is read back from the disk.
    pub(super) fn verify(&self, transfer: &Transfer, workers: &[Worker<'_>]) -> Result<()> {
        if transfer.operation == Operation::Write {
            self.scratch.sync()?;
            self.scratch.forget()?;
        }
        workers.iter().try_for_each(|worker| worker.verify(&self.scratch.buffered))
    }
}
