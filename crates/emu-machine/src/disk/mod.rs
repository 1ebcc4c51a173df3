//! How fast a disk transfers blocks: by their size, order, number of threads, and by how far a transfer goes.
//!
//! Every transfer is made twice: at full speed, which gives its rate, and at half that rate, which gives the times of
//! single operations. Those count from when an operation was meant to begin: what is held up by a slow one counts as
//! slow as well, and is not left out ("coordinated omission", G. Tene 2013, *How not to measure latency*). What is
//! written back has no such times, as no operation tells when it is on the disk.

mod content;
mod latency;
mod plan;
mod scratch;
mod steady;
mod target;
mod worker;

pub use latency::Latency;
pub use plan::{Column, DiskPlan, Operation, Order, Transfer};
pub use steady::Steady;

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use emu_bench::stats::Sample as Values;
use emu_core::{Error, ErrorKind, Host, Result};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::latency::Times;
use self::scratch::Scratch;
use self::target::{Target, fits_memory};
use self::worker::{Pace, phase};
use super::{Event, Left, Watch, notes_of_build, tell};
use crate::witness::{Others, Witness, counting};

/// The rate, as a share of the full one, at which single operations are timed.
pub const PACE: f64 = 0.5;

/// What a disk does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disk {
    /// Bytes of the file that is read, and of the one that is written.
    pub file_bytes: u64,
    /// The smallest block of a direct transfer, in bytes; `None` where there is none.
    pub direct_block_bytes: Option<u64>,
    /// Every transfer, in the order of the plan.
    pub cells: Vec<Cell>,
    /// What is to be known of the figures, in sentences.
    pub notes: Vec<String>,
}

/// A transfer and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// What was transferred, and how.
    #[serde(flatten)]
    pub transfer: Transfer,
    /// What was measured, or why not.
    pub outcome: Outcome,
}

impl Cell {
    /// What was measured; `None` where it cannot be had here.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::NotAvailable(_) => None,
        }
    }
}

/// What was measured, or why not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was measured.
    Measured(Measured),
    /// It cannot be had here, and why.
    NotAvailable(String),
}

/// What was measured of a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Median of the rates of the samples that [count](Self::counting).
    pub bytes_per_s: f64,
    /// The same in operations.
    pub operations_per_s: f64,
    /// Times of operations at half that rate, from when each was meant to begin; `None` for what is written back.
    pub latency: Option<Latency>,
    /// Operations at half that rate that were not made, as the disk had fallen too far behind: their times would have
    /// been longer than those that count.
    pub not_made: u64,
    /// Times of operations at full rate, one after another; `None` for what is written back.
    pub back_to_back: Option<Latency>,
    /// In the order they were taken.
    pub samples: Vec<Sample>,
}

/// One sample at full rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Operations of all threads.
    pub operations: u64,
    /// From the first operation to the end of the last one; with write-back to the end of the sync.
    pub seconds: f64,
    /// Bytes each second of all threads.
    pub bytes_per_s: f64,
    /// Whether the hypervisor had a part of the CPUs meanwhile.
    pub disturbed: bool,
}

/// Measures a disk as planned. A transfer that the kernel refuses, at any time, is not available; the others go on.
pub fn run(plan: &DiskPlan, host: &Host, watch: Watch<'_>) -> Result<Disk> {
    plan.check()?;
    let mut bench = Bench::new(plan, host, watch)?;
    let trial =
        |transfer| Trial { refused: bench.target(&transfer).refusal(&transfer), transfer, taken: Vec::new() };
    let mut trials: Vec<_> = plan.transfers().into_iter().map(trial).collect();
    let mut random = Pcg64::seed_from_u64(plan.seed);
    // The kernel's threads write back what was transferred.
    let mut witness = Witness::new(host, plan.rounds * trials.len(), Others::Work);
    let mut left = Left::new(plan.rounds * possible(&trials).len(), plan.phase() * 3);
    for _ in 0..plan.rounds {
        let mut order = possible(&trials);
        order.shuffle(&mut random);
        for number in order {
            let Some(Trial { transfer, refused, taken }) = trials.get_mut(number) else { continue };
            let what = transfer.name();
            watch(Event::Next { what: &what, left: left.time() })?;
            let begin = Instant::now();
            let sample = || bench.sample(transfer);
            match tried(transfer, witness.measure(&what, std::slice::from_ref(&host.allowed), sample))? {
                Ok((mut one, disturbed)) => {
                    one.sample.disturbed = disturbed;
                    let Taken { sample, not_made, .. } = one;
                    tell(watch, "disk", &Told { transfer, sample, latency: one.paced.summary(), not_made })?;
                    taken.push(one);
                }
                Err(why) => *refused = Some(why),
            }
            left.through(begin.elapsed());
        }
    }
    let cell = |Trial { transfer, refused, taken }| {
        let outcome = match refused {
            Some(why) => Outcome::NotAvailable(why),
            None => Outcome::Measured(Measured::of(&transfer, &taken)?),
        };
        Ok(Cell { transfer, outcome })
    };
    let cells = trials.into_iter().map(cell).collect::<Result<_>>()?;
    let direct_block_bytes = bench.written.direct_block_bytes();
    // Both files lie in the same folder.
    let doubts = bench.written.doubts().iter().cloned();
    let notes = doubts.chain(witness.notes()).chain(notes_of_build()).collect();
    Ok(Disk { file_bytes: plan.file_bytes, direct_block_bytes, cells, notes })
}

/// A transfer, why it cannot be had, and its samples.
struct Trial {
    transfer: Transfer,
    refused: Option<String>,
    taken: Vec<Taken>,
}

fn possible(trials: &[Trial]) -> Vec<usize> {
    let possible = trials.iter().enumerate().filter(|(_, trial)| trial.refused.is_none());
    possible.map(|(number, _)| number).collect()
}

fn tried<T>(transfer: &Transfer, sample: Result<T>) -> Result<std::result::Result<T, String>> {
    match sample {
        Ok(sample) => Ok(Ok(sample)),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map_or_else(|| error.to_string(), ToString::to_string);
            let (what, bytes) = (transfer.operation.name(), transfer.block_bytes);
            Ok(Err(format!("the kernel refuses to {what} blocks of {bytes} bytes: {cause}")))
        }
        Err(error) => Err(error),
    }
}

/// A sample of a transfer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Told<'a> {
    #[serde(flatten)]
    transfer: &'a Transfer,
    /// At full rate.
    sample: Sample,
    /// Times of operations at half that rate, from when each was meant to begin; null for what is written back.
    latency: Option<Latency>,
    /// Operations at half that rate that were not made.
    not_made: u64,
}

#[derive(Debug)]
struct Taken {
    sample: Sample,
    paced: Times,
    not_made: u64,
    back_to_back: Times,
}

impl Measured {
    /// The samples that nobody has disturbed, or all where there is none.
    pub fn counting(&self) -> impl Iterator<Item = &Sample> {
        counting(&self.samples, |sample| sample.disturbed)
    }

    /// Whether others have disturbed every sample.
    pub fn is_disturbed(&self) -> bool {
        self.samples.iter().all(|sample| sample.disturbed)
    }

    fn of(transfer: &Transfer, taken: &[Taken]) -> Result<Self> {
        let counting = || counting(taken, |one| one.sample.disturbed);
        let rates: Vec<_> = counting().map(|one| one.sample.bytes_per_s).collect();
        let bytes_per_s = Values::new(rates)?.median();
        let (mut latency, mut back_to_back) = (Times::new()?, Times::new()?);
        for one in counting() {
            latency.add(&one.paced);
            back_to_back.add(&one.back_to_back);
        }
        Ok(Self {
            bytes_per_s,
            operations_per_s: bytes_per_s / transfer.block_bytes as f64,
            latency: latency.summary(),
            not_made: counting().map(|one| one.not_made).sum(),
            back_to_back: back_to_back.summary(),
            samples: taken.iter().map(|one| one.sample).collect(),
        })
    }
}

#[derive(Debug)]
struct Bench {
    phase: Duration,
    /// Never written after it was made.
    read: Target,
    written: Target,
}

impl Bench {
    fn new(plan: &DiskPlan, host: &Host, watch: Watch<'_>) -> Result<Self> {
        let mut watch = || watch(Event::Next { what: "making the files", left: Duration::ZERO });
        let DiskPlan { folder, file_bytes, seed, .. } = plan;
        let fits_memory = fits_memory(host, file_bytes.saturating_mul(2));
        let mut make = |seed| {
            let scratch = Scratch::make(folder, *file_bytes, seed, &mut watch);
            scratch.map(|scratch| Target::new(scratch, *file_bytes, fits_memory))
        };
        Ok(Self { phase: plan.phase(), read: make(*seed)?, written: make(!seed)? })
    }

    fn target(&mut self, transfer: &Transfer) -> &mut Target {
        match transfer.operation {
            Operation::Read => &mut self.read,
            Operation::Write => &mut self.written,
        }
    }

    fn sample(&mut self, transfer: &Transfer) -> Result<Taken> {
        let length = self.phase;
        let target = self.target(transfer);
        target.prepare(transfer)?;
        let mut workers = target.workers(transfer)?;
        let (sample, back_to_back) = target.full(transfer, &mut workers, length)?;
        let (mut paced, mut not_made) = (Times::new()?, 0);
        if transfer.column.ends_operations() {
            let per_s = sample.bytes_per_s / transfer.block_bytes as f64;
            let interval = Duration::from_secs_f64(transfer.threads as f64 / (per_s * PACE));
            for done in phase(&mut workers, length, Pace::Every(interval))? {
                paced.add(&done.times);
                not_made += done.not_made;
            }
        }
        target.verify(transfer, &workers)?;
        Ok(Taken { sample, paced, not_made, back_to_back })
    }
}

/// A file with a name, to compare with other programs that transfer to and from it.
#[derive(Debug)]
pub struct Named {
    target: Target,
    phase: Duration,
}

impl Named {
    /// Makes the file, which must not exist. It is not removed again.
    pub fn make(path: &Path, file_bytes: u64, phase: Duration, seed: u64) -> Result<Self> {
        let failed = |cause| Error::file("make", path, cause);
        let file = File::options().read(true).write(true).create_new(true).open(path).map_err(failed)?;
        Scratch::fill(file, file_bytes, seed, &mut || Ok(()))?;
        Self::open(path, file_bytes, phase, seed)
    }

    /// Opens a file that was made so.
    pub fn open(path: &Path, file_bytes: u64, phase: Duration, seed: u64) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path);
        let scratch = Scratch::of(file.map_err(|cause| Error::file("open", path, cause))?, seed);
        let mut target = Target::new(scratch, file_bytes, true);
        // What an earlier process has written has other stamps.
        target.generation = u64::from(std::process::id()) << 8;
        Ok(Self { target, phase })
    }

    /// Makes a transfer at full rate. What is read must not have been written since the file was made.
    pub fn sample(&mut self, transfer: &Transfer) -> Result<Sample> {
        let Self { target, phase } = self;
        if let Some(why) = target.refusal(transfer) {
            return Err(Error::unavailable(why));
        }
        target.prepare(transfer)?;
        let mut workers = target.workers(transfer)?;
        let (sample, _) = target.full(transfer, &mut workers, *phase)?;
        target.verify(transfer, &workers)?;
        Ok(sample)
    }
}

#[cfg(test)]
mod tests;
