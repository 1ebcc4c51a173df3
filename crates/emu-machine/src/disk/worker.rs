//! One thread's transfers, and the phases in which several make theirs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use emu_core::{Error, ErrorKind, Result};

use super::content::{self, Block, PAGE};
use super::latency::Times;
use super::scratch;
use crate::kernel::all_at_once;
use crate::kernel::blocks::spot_checks;
use crate::kernel::scatter::Scatter;

/// A paced phase ends after this many times its length: storage that has fallen so far behind would take any time.
const LATE_MAX: u32 = 10;

/// The last stretch before an operation is due is waited for awake: a sleep ends late.
const AWAKE: Duration = Duration::from_micros(200);

#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) file: &'a File,
    pub(super) start: u64,
    pub(super) blocks: u64,
    /// Bytes of a block.
    pub(super) length: usize,
    pub(super) write: bool,
    pub(super) durable: bool,
    /// Ends when every block has been transferred once: a page that is dirty already costs nothing.
    pub(super) once: bool,
    pub(super) order: Option<Scatter>,
    pub(super) seed: u64,
    /// Number of the sample, which every block written tells of.
    pub(super) generation: u64,
}

#[derive(Debug)]
pub(super) struct Worker<'a> {
    job: Job<'a>,
    block: Block,
    count: u64,
    /// Sum of the heads read.
    sum: u64,
}

#[derive(Debug)]
pub(super) struct Done {
    pub(super) operations: u64,
    /// Operations that were due in a paced phase and have not been made.
    pub(super) not_made: u64,
    /// From when the first thread began until this one had ended, without the time in which blocks were made; of a paced
    /// phase, its length.
    pub(super) seconds: f64,
    pub(super) times: Times,
}

impl<'a> Worker<'a> {
    pub(super) fn new(job: Job<'a>) -> Self {
        let block = if job.write { writable(&job) } else { Block::new(job.length, PAGE) };
        Self { job, block, count: 0, sum: 0 }
    }

    fn offset(&self, number: u64) -> u64 {
        let step = number % self.job.blocks;
        let place = self.job.order.map_or(step, |order| order.place(step));
        self.job.start + place * self.job.length as u64
    }

    fn stamp(&self, number: u64) -> u64 {
        let generation = (self.job.generation << 32) | (number / self.job.blocks);
        content::stamp(self.job.seed, generation, self.offset(number))
    }

    /// Makes the block that is transferred next. That is work of the CPU, and none of its time is the transfer's.
    fn prepare(&mut self) {
        if self.job.write {
            self.block.renew(self.stamp(self.count));
        }
    }

    fn transfer(&mut self) -> io::Result<()> {
        let offset = self.offset(self.count);
        if self.job.write {
            self.job.file.write_all_at(self.block.bytes(), offset)?;
            if self.job.durable {
                self.job.file.sync_data()?;
            }
        } else {
            self.job.file.read_exact_at(self.block.bytes_mut(), offset)?;
            self.sum = self.sum.wrapping_add(self.block.head());
        }
        self.count += 1;
        Ok(())
    }

    /// Each operation is meant to begin when the one before has ended and its block is made. `begin` is when the first thread
    /// began: threads that share a CPU take turns, and wait for them in the time of all.
    fn at_once(&mut self, length: Duration, begin: &OnceLock<Instant>) -> Result<Done> {
        let mut times = Times::new()?;
        let first = self.count;
        let ready = Instant::now();
        let begin = *begin.get_or_init(|| ready);
        let mut spent = ready - begin;
        loop {
            self.prepare();
            let before = Instant::now();
            self.transfer().map_err(|cause| self.failed(cause))?;
            let now = Instant::now();
            times.take(now - before);
            spent += now - before;
            let through = self.job.once && self.count - first >= self.job.blocks;
            if through || now - begin >= length {
                break;
            }
        }
        Ok(Done { operations: self.count - first, not_made: 0, seconds: spent.as_secs_f64(), times })
    }

    /// At even intervals, each counted from the moment it was meant to begin, also where the one before held it up.
    fn paced(&mut self, length: Duration, interval: Duration) -> Result<Done> {
        let mut times = Times::new()?;
        // As nanoseconds in 64 bits for 584 years.
        let interval_ns = (interval.as_nanos() as u64).max(1);
        let planned = (length.as_nanos() as u64).div_ceil(interval_ns);
        let mut made = 0;
        let begin = Instant::now();
        let mut now = begin;
        while made < planned && now - begin < length * LATE_MAX {
            let due = begin + Duration::from_nanos(made * interval_ns);
            self.prepare();
            wait_until(due);
            self.transfer().map_err(|cause| self.failed(cause))?;
            now = Instant::now();
            times.take(now - due);
            made += 1;
        }
        Ok(Done { operations: made, not_made: planned - made, seconds: (now - begin).as_secs_f64(), times })
    }

    /// The error is of kind unavailable where the kernel refuses transfers of this kind.
    fn failed(&self, cause: io::Error) -> Error {
        let Job { write, length, .. } = self.job;
        let (what, offset) = (if write { "write" } else { "read" }, self.offset(self.count));
        let refused = scratch::is_refusal(&cause);
        let error = Error::io(format!("cannot {what} {length} bytes at byte {offset} of the file"), cause);
        if !refused {
            return error;
        }
        let hint = "take other --blocks or another --column, or another disk with --dir";
        error.with_kind(ErrorKind::Unavailable).hint(hint)
    }

    /// Looks whether all that was read was right, or what was written is there, through another descriptor of the file.
    pub(super) fn verify(&self, through: &File) -> Result<()> {
        if self.job.write { self.verify_written(through) } else { self.verify_read() }
    }

    fn verify_read(&self) -> Result<()> {
        let Job { seed, length, start, .. } = self.job;
        let head = |number| content::original_head(seed, self.offset(number), length);
        // One pass read everything; whole passes repeat it.
        let passes = self.count / self.job.blocks;
        let sum = |numbers: std::ops::Range<u64>| numbers.map(head).fold(0, u64::wrapping_add);
        let rest = sum(0..self.count % self.job.blocks);
        let must =
            if passes == 0 { rest } else { sum(0..self.job.blocks).wrapping_mul(passes).wrapping_add(rest) };
        content::check(self.sum == must, start, "read")?;
        match self.count.checked_sub(1) {
            Some(last) => scratch::check_original(&self.block, seed, self.offset(last)),
            None => Ok(()),
        }
    }

    fn verify_written(&self, through: &File) -> Result<()> {
        let Job { blocks, length, .. } = self.job;
        let mut is = Block::new(length, PAGE);
        let mut must = writable(&self.job);
        for number in spot_checks(self.count.min(blocks), length as u64) {
            let last = number + (self.count - 1 - number) / blocks * blocks;
            let offset = self.offset(last);
            through
                .read_exact_at(is.bytes_mut(), offset)
                .map_err(|cause| Error::io(format!("cannot read back byte {offset} of the file"), cause))?;
            must.renew(self.stamp(last));
            content::check(is.bytes() == must.bytes(), offset, "written")?;
        }
        Ok(())
    }
}

/// Blocks have other content than the file, so that a write that did not happen is noticed.
fn writable(job: &Job<'_>) -> Block {
    let mut block = Block::renewable(job.length);
    block.fill(!job.seed, 0);
    block
}

fn wait_until(moment: Instant) {
    let left = moment.saturating_duration_since(Instant::now());
    thread::sleep(left.saturating_sub(AWAKE));
    while Instant::now() < moment {
        std::hint::spin_loop();
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Pace {
    AtOnce,
    /// Each thread makes one in this time.
    Every(Duration),
}

/// Lets every worker transfer for this long, all at the same time.
pub(super) fn phase(workers: &mut [Worker<'_>], length: Duration, pace: Pace) -> Result<Vec<Done>> {
    let (barrier, begin) = (Barrier::new(workers.len()), OnceLock::new());
    all_at_once("the transfer", workers, |worker| {
        barrier.wait();
        match pace {
            Pace::AtOnce => worker.at_once(length, &begin),
            Pace::Every(interval) => worker.paced(length, interval),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::scratch::Scratch;
    use super::*;

    const BYTES: u64 = 1 << 20;

    fn scratch() -> (tempfile::TempDir, Scratch) {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(dir.path(), BYTES, 5, &mut || Ok(())).unwrap();
        (dir, scratch)
    }

    fn job(scratch: &Scratch, length: usize, write: bool, order: bool) -> Job<'_> {
        let blocks = BYTES / 2 / length as u64;
        let order = order.then(|| Scatter::new(blocks, 3));
        let (start, seed) = (BYTES / 2, scratch.seed);
        let file = &scratch.buffered;
        Job { file, start, blocks, length, write, durable: false, once: false, order, seed, generation: 1 }
    }

    #[test]
    fn what_is_transferred_is_verified_in_every_way() {
        let (_dir, scratch) = scratch();
        for (length, write, order) in [
            (1, false, true),
            (4096, false, false),
            (4096, true, true),
            (1, true, false),
            (1 << 18, true, true),
        ] {
            let mut workers = [Worker::new(job(&scratch, length, write, order))];
            let length = Duration::from_millis(2);
            phase(&mut workers, length, Pace::AtOnce).unwrap();
            phase(&mut workers, length, Pace::Every(Duration::from_micros(500))).unwrap();
            workers[0].verify(&scratch.buffered).unwrap();
            // Written again what was there before, for the reads that follow.
            let mut watch = || Ok(());
            let again = scratch.buffered.try_clone().unwrap();
            Scratch::fill(again, BYTES, scratch.seed, &mut watch).unwrap();
        }
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let (_dir, scratch) = scratch();
        let long = Duration::from_secs(60);
        let once = |write| Job { once: true, ..job(&scratch, 4096, write, !write) };
        let mut read = [Worker::new(once(false))];
        scratch.buffered.write_all_at(b"wrong!!!", BYTES / 2 + 7 * 4096).unwrap();
        phase(&mut read, long, Pace::AtOnce).unwrap();
        assert!(read[0].verify(&scratch.buffered).unwrap_err().to_string().contains("wrong content read"));

        let mut write = [Worker::new(once(true))];
        phase(&mut write, long, Pace::AtOnce).unwrap();
        write[0].verify(&scratch.buffered).unwrap();
        // In the middle of the first block.
        scratch.buffered.write_all_at(b"wrong", BYTES / 2 + 100).unwrap();
        let error = write[0].verify(&scratch.buffered).unwrap_err();
        assert!(error.to_string().contains("wrong content written"), "{error}");
    }

    #[test]
    fn a_refused_transfer_is_told_apart_from_a_failed_one() {
        let (_dir, scratch) = scratch();
        let kind = |start, write| {
            let mut worker = [Worker::new(Job { start, ..job(&scratch, 4096, write, false) })];
            phase(&mut worker, Duration::from_millis(1), Pace::AtOnce).unwrap_err().kind()
        };
        // No offset may be negative, as this one is for the kernel.
        assert_eq!(kind(1 << 63, true), ErrorKind::Unavailable);
        assert_eq!(kind(1 << 63, false), ErrorKind::Unavailable);
        assert_eq!(kind(BYTES, false), ErrorKind::Failed, "the end of the file");
    }

    #[test]
    fn blocks_that_are_written_are_not_all_the_same() {
        let (_dir, scratch) = scratch();
        let mut workers = [Worker::new(Job { once: true, ..job(&scratch, 8192, true, false) })];
        phase(&mut workers, Duration::from_secs(60), Pace::AtOnce).unwrap();
        let mut written = vec![0; BYTES as usize / 2];
        scratch.buffered.read_exact_at(&mut written, BYTES / 2).unwrap();
        let insides: BTreeSet<_> = written.chunks(8192).map(|block| &block[8..4096]).collect();
        assert!(insides.len() > 32, "{} of 64", insides.len());
        let pages: BTreeSet<_> = written.chunks(PAGE).collect();
        assert_eq!(pages.len(), 128);
    }

    #[test]
    fn a_pass_that_is_to_be_made_once_is() {
        let (_dir, scratch) = scratch();
        let mut workers = [Worker::new(Job { once: true, ..job(&scratch, 4096, true, true) })];
        let done = phase(&mut workers, Duration::from_secs(60), Pace::AtOnce).unwrap();
        assert_eq!(done[0].operations, BYTES / 2 / 4096);
    }

    #[test]
    fn an_operation_that_is_held_up_counts_from_when_it_was_due() {
        let (_dir, scratch) = scratch();
        let mut workers = [Worker::new(job(&scratch, 1 << 18, false, false))];
        // Due ten times as fast as it can be at least: the last one is late by nearly the whole phase.
        let done =
            phase(&mut workers, Duration::from_micros(20), Pace::Every(Duration::from_micros(2))).unwrap();
        let (latency, seconds) = (done[0].times.summary().unwrap(), done[0].seconds);
        assert_eq!(latency.operations + done[0].not_made, 10);
        assert!(latency.max_ns as f64 > seconds * 1e9 * 0.5, "{latency:?} in {seconds} s");
    }

    #[test]
    fn a_phase_that_falls_far_behind_ends_and_tells_what_it_missed() {
        let (_dir, scratch) = scratch();
        let mut workers = [Worker::new(job(&scratch, 1 << 18, false, false))];
        // No machine reads 256 KiB in a nanosecond.
        let (length, interval) = (Duration::from_micros(100), Duration::from_nanos(1));
        let done = phase(&mut workers, length, Pace::Every(interval)).unwrap();
        let Done { operations, not_made, seconds, .. } = done[0];
        assert_eq!((operations + not_made, workers[0].count), (100_000, operations));
        assert!(operations > 0 && not_made > 0, "{operations} made");
        assert!(seconds >= length.as_secs_f64() * f64::from(LATE_MAX), "{seconds} s");
        workers[0].verify(&scratch.buffered).unwrap();
    }
}
