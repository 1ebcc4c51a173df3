//! Copies of blocks from one place of memory to another.

use std::hint::black_box;

use emu_core::Result;

use super::scatter::{Scatter, mix};

/// Blocks that are verified after a run, at most, and their bytes.
const VERIFIED_MAX: u64 = 500;
const VERIFIED_BYTES_MAX: u64 = 32 << 20;

/// Which of `count` blocks are verified after a run, by their numbers from 0: evenly spread, and one at least.
pub(crate) fn spot_checks(count: u64, block_bytes: u64) -> impl Iterator<Item = u64> {
    let most = (VERIFIED_BYTES_MAX / block_bytes.max(1)).clamp(1, VERIFIED_MAX);
    (0..count).step_by(count.div_ceil(most).max(1) as usize)
}

/// Two arrays, and how one is copied to the other.
#[derive(Debug)]
pub struct Blocks {
    source: Vec<u8>,
    target: Vec<u8>,
    block: usize,
    order: Scatter,
    random: bool,
    next: u64,
}

impl Blocks {
    /// Arrays of so many bytes each, copied in blocks of `block` bytes, which is at least 1 and at most all of it: in
    /// random order or in theirs. The thread that calls decides where the memory lies.
    pub fn new(bytes: usize, block: usize, random: bool, seed: u64) -> Self {
        let mut source = vec![0; bytes.max(1)];
        for (word, bytes) in (0..).zip(source.chunks_mut(size_of::<u64>())) {
            for (to, from) in bytes.iter_mut().zip(mix(seed ^ word).to_le_bytes()) {
                *to = from;
            }
        }
        // Not zeros, which the kernel would map to one page for all.
        let target = vec![1; source.len()];
        let block = block.clamp(1, source.len());
        let order = Scatter::new((source.len() / block) as u64, seed);
        Self { source, target, block, order, random, next: 0 }
    }

    /// Bytes of a block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Copies so many blocks. Both orders work out the random place, so that they differ only in where they copy.
    #[inline(never)]
    pub fn copy(&mut self, count: u64) {
        let Self { source, target, block, order, random, next } = self;
        let (block, mut step) = (*block, *next);
        for _ in 0..count {
            let scattered = black_box(order.place(step));
            let begin = if *random { scattered } else { step } as usize * block;
            if let (Some(to), Some(from)) =
                (target.get_mut(begin..begin + block), source.get(begin..begin + block))
            {
                to.copy_from_slice(from);
            }
            step += 1;
            if step == order.count() {
                step = 0;
            }
        }
        *next = step;
    }

    /// Spoils here and there what the next `count` copies will write, so that [`verify`](Self::verify) sees whether they did.
    pub fn spoil(&mut self, count: u64) -> Spoiled {
        let spoiled = Spoiled { first: self.next, count: count.min(self.order.count()) };
        for begin in self.begins(spoiled) {
            for place in [begin, begin + self.block - 1] {
                if let (Some(to), Some(from)) = (self.target.get_mut(place), self.source.get(place)) {
                    *to = !from;
                }
            }
        }
        spoiled
    }

    /// Whether what was spoiled has been copied.
    pub fn verify(&self, spoiled: Spoiled) -> Result<()> {
        let wrong = self.begins(spoiled).into_iter().find(|begin| {
            let block = *begin..begin + self.block;
            self.target.get(block.clone()) != self.source.get(block)
        });
        match wrong {
            None => Ok(()),
            Some(begin) => Err(emu_bench::wrong(format_args!("copy of the block at byte {begin}"))),
        }
    }

    fn begins(&self, spoiled: Spoiled) -> Vec<usize> {
        spot_checks(spoiled.count, self.block as u64)
            .map(|number| {
                let step = (spoiled.first + number) % self.order.count();
                (if self.random { self.order.place(step) } else { step }) as usize * self.block
            })
            .collect()
    }
}

/// Which copies are looked at afterwards.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Spoiled {
    first: u64,
    count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::ErrorKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whole_passes_copy_everything(block in 1usize..70, bytes in 70usize..3000, random in any::<bool>()) {
            let mut blocks = Blocks::new(bytes, block, random, 3);
            let count = (bytes / block) as u64;
            for _ in 0..2 {
                let spoiled = blocks.spoil(count);
                prop_assert!(blocks.verify(spoiled).is_err(), "nothing has been copied yet");
                blocks.copy(count);
                prop_assert!(blocks.verify(spoiled).is_ok());
            }
            let whole = bytes / block * block;
            prop_assert_eq!(&blocks.target[..whole], &blocks.source[..whole]);
        }
    }

    #[test]
    fn a_copy_that_was_left_out_is_noticed() {
        let mut blocks = Blocks::new(4096, 64, true, 1);
        let spoiled = blocks.spoil(10);
        blocks.copy(9);
        let error = blocks.verify(spoiled).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongResult);
        assert!(error.to_string().contains("wrong copy"), "{error}");
        blocks.copy(1);
        assert!(blocks.verify(spoiled).is_ok());
    }

    #[test]
    fn spot_checks_are_spread_and_limited() {
        let checks = |count, bytes| spot_checks(count, bytes).collect::<Vec<_>>();
        assert_eq!(checks(3, 1), [0, 1, 2]);
        assert!(checks(0, 4096).is_empty());
        assert_eq!(checks(1000, 1).len(), 500);
        assert_eq!(checks(64, 1 << 20).len(), 32);
        assert_eq!(checks(2, 64 << 20), [0]);
    }

    #[test]
    fn a_block_is_never_larger_than_all() {
        assert_eq!(Blocks::new(100, 1000, false, 1).block(), 100);
        assert_eq!(Blocks::new(0, 0, false, 1).block(), 1);
    }
}
