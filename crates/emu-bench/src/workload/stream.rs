//! STREAM: how fast memory can be read and written, which a slower core would not change.
//!
//! Windows are shorter than a pass over arrays that fit no cache. So all four kernels are under way at once, each a quarter of
//! the arrays behind the one before: every element sees them in STREAM's order, a block is gone from the caches when the next
//! kernel comes to it, and any window holds the four kernels in equal parts.

use std::ops::Range;

use emu_core::{Error, Host, Result, Roots};

use super::clocks::now_ns;
use super::stamps::{Stamps, fill};
use super::threads;
use super::{Done, Job, Moved, Order, Running, Setting, Workload};
use crate::memory::StreamSize;
use crate::stream::{Arrays, Kernel, Values};

/// Elements that a kernel passes over between two looks at the clock: 128 KiB, some 30 µs.
const BLOCK: usize = 16 << 10;

/// One element in each page is verified after a window: reading all would take longer than most windows.
const VERIFY_EVERY: usize = 512;

pub(super) struct Stream;

impl Workload for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn about(&self) -> &'static str {
        "STREAM, a thread for each CPU: a slower core would not change the memory's speed"
    }

    fn unit(&self) -> &'static str {
        "bytes"
    }

    fn follows_clock(&self) -> bool {
        false
    }

    fn quantum(&self) -> f64 {
        Kernel::Copy.bytes(BLOCK) as f64
    }

    fn ideal(&self, _share: f64, _native: &Done) -> f64 {
        1.0
    }

    fn is_promised(&self) -> bool {
        false
    }

    fn job(&self, setting: &Setting) -> Job {
        let host = Host::detect(&Roots::system());
        let arrays = host.and_then(|host| StreamSize::of(&host, &setting.cpus)).ok();
        Job { active: setting.cpus.len(), arrays, ..Job::new(self.name(), &setting.cpus) }
    }

    fn start(&self, job: &Job) -> Result<Box<dyn Running>> {
        let size = job.arrays.ok_or_else(|| Error::usage("the job does not say how long arrays are"))?;
        let elements = size.array_bytes as usize / size_of::<f64>() / job.active.max(1);
        // Memory lies where it is first touched: each thread fills its own.
        threads::start(job, move || Part::new(elements))
    }
}

struct Part {
    arrays: Arrays,
    /// Steps taken; in each, one kernel passes over one block.
    steps: u64,
    stamps: Stamps,
}

impl Part {
    /// A part of at least so many elements, whose quarters are whole blocks.
    fn new(elements: usize) -> Self {
        let blocks = elements.div_ceil(BLOCK).next_multiple_of(4).max(4);
        let mut part = Self { arrays: Arrays::new(blocks * BLOCK), steps: 0, stamps: Stamps::default() };
        for block in 0..blocks {
            part.arrays.set(range(block), Values::after(part.passes(block)));
        }
        part
    }

    fn blocks(&self) -> u64 {
        (self.arrays.len() / BLOCK) as u64
    }

    fn place(&self, step: u64) -> (Kernel, usize) {
        let (round, number, blocks) = (step / 4, step % 4, self.blocks());
        let behind = number * (blocks / 4);
        (Kernel::of_step(number), ((round % blocks + blocks - behind) % blocks) as usize)
    }

    /// How many kernels have passed over a block, counted from the start values. At step 0 the quarters of the
    /// arrays are where each kernel has them to be: 0, 3, 2 and 1 passes old.
    fn passes(&self, block: usize) -> u64 {
        let (blocks, block) = (self.blocks(), block as u64);
        let quarter = blocks / 4;
        let initial = (4 - block / quarter) % 4;
        // Of each kernel: at step s it has finished the rounds below `rounds`, one more if it had its turn.
        let of_kernel = |number: u64| {
            let rounds = self.steps / 4 + u64::from(self.steps % 4 > number);
            let first = (block + number * quarter) % blocks;
            if rounds > first { (rounds - first).div_ceil(blocks) } else { 0 }
        };
        initial + (0..4).map(of_kernel).sum::<u64>()
    }

    fn verify(&self, chance: usize) -> Result<()> {
        let mut known: Option<(u64, Values)> = None;
        for block in 0..self.blocks() as usize {
            let passes = self.passes(block);
            let values = match known {
                Some((of, values)) if of == passes => values,
                _ => Values::after(passes),
            };
            known = Some((passes, values));
            let Range { start, end } = range(block);
            self.arrays.verify(start + chance % VERIFY_EVERY..end, VERIFY_EVERY, values)?;
        }
        Ok(())
    }
}

impl Running for Part {
    fn through(&mut self, order: &Order) -> Result<Done> {
        let mut moved = Kernel::ALL.map(|kernel| Moved { kernel, bytes: 0, busy_ns: 0 });
        let mut stamps = std::mem::take(&mut self.stamps);
        let mut total = 0;
        let done = fill(order, &mut stamps, || {
            let (kernel, block) = self.place(self.steps);
            let (passes, bytes) = (self.passes(block), kernel.bytes(BLOCK));
            let begin = now_ns();
            self.arrays.pass(passes, range(block));
            let end = now_ns();
            if begin >= order.begin_ns
                && end <= order.end_ns()
                && let Some(moved) = moved.iter_mut().find(|moved| moved.kernel == kernel)
            {
                moved.bytes += bytes;
                moved.busy_ns += end - begin;
            }
            self.steps += 1;
            total += bytes;
            Ok(total)
        });
        self.stamps = stamps;
        let done = done?;
        self.verify(order.begin_ns as usize)?;
        Ok(Done { moved: moved.to_vec(), ..done })
    }
}

fn range(block: usize) -> Range<usize> {
    block * BLOCK..(block + 1) * BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(length_ms: u64) -> Order {
        Order { begin_ns: now_ns() + 2_000_000, length_ns: length_ms * 1_000_000, first: 0, stamps: false }
    }

    #[test]
    fn every_block_sees_the_kernels_in_their_order() {
        let mut part = Part::new(BLOCK * 12);
        let mut passes: Vec<u64> = (0..12).map(|block| part.passes(block)).collect();
        for step in 0..400 {
            let (kernel, block) = part.place(step);
            assert_eq!(kernel, Kernel::of_step(passes[block]), "step {step}");
            passes[block] += 1;
            part.steps = step + 1;
            assert_eq!((0..12).map(|block| part.passes(block)).collect::<Vec<_>>(), passes, "step {step}");
        }
    }

    #[test]
    fn a_block_is_left_alone_for_a_quarter_of_the_arrays() {
        let part = Part::new(BLOCK * 16);
        let of_block = |wanted| (0..256).filter(move |step| part.place(*step).1 == wanted);
        let steps: Vec<_> = of_block(5).collect();
        assert!(steps.windows(2).all(|pair| pair[1] - pair[0] >= 4 * 3), "{steps:?}");
    }

    #[test]
    fn a_window_is_filled_with_all_four_kernels_and_verified() {
        let mut part = Part::new(BLOCK * 8);
        let done = part.through(&order(20)).unwrap();
        let moved: u64 = done.moved.iter().map(|moved| moved.bytes).sum();
        assert!(moved > 0 && moved as f64 <= done.work() + 3.0 * 8.0 * BLOCK as f64, "{done:?}");
        let share = |number: usize| done.moved[number].bytes as f64 / moved as f64;
        assert!((share(3) - 0.3).abs() < 0.05 && (share(0) - 0.2).abs() < 0.05, "{done:?}");
        for block in 0..8 {
            part.arrays.verify(range(block), 1, Values::after(part.passes(block))).unwrap();
        }
    }

    #[test]
    fn a_step_that_was_left_out_is_found() {
        let mut part = Part::new(BLOCK * 4);
        part.through(&order(2)).unwrap();
        part.steps += 1;
        assert!(part.verify(0).is_err());
    }

    #[test]
    fn threads_share_the_arrays() {
        let cpus = Host::detect(&Roots::system()).unwrap().allowed;
        let arrays = StreamSize { array_bytes: 4 << 20, cache_bytes: None, available_bytes: None };
        let job = Job { active: 2, arrays: Some(arrays), ..Job::new("stream", &cpus) };
        for pinned in [false, true] {
            let job = Job { pinned, ..job.clone() };
            let done = Stream.start(&job).unwrap().through(&order(10)).unwrap();
            assert_eq!((done.parts.len(), done.moved.len()), (2, 4));
        }
        assert!(Stream.start(&Job { arrays: None, ..job }).is_err());
    }
}
