//! What the files of a measurement hold, so that every transfer can be verified.

use emu_core::{Error, ErrorKind, Result};

use crate::kernel::scatter::mix;

/// Bytes by which a block is known.
const WORD: usize = size_of::<u64>();

/// Memory for a block that starts at an address which direct transfers accept.
#[derive(Debug)]
pub(super) struct Block {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Block {
    /// Memory for `length` bytes at a multiple of `alignment`, a power of two.
    pub(super) fn new(length: usize, alignment: usize) -> Self {
        let memory = vec![0; length + alignment];
        // The offset is at most the alignment, unless that is no power of two, which no kernel asks for.
        let start = memory.as_ptr().align_offset(alignment).min(alignment);
        Self { memory, start, length }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..self.start + self.length).unwrap_or_default()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }

    /// The block's first bytes, at most eight, as a number.
    pub(super) fn head(&self) -> u64 {
        let mut word = [0; WORD];
        for (to, from) in word.iter_mut().zip(self.bytes()) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    }

    /// Makes the block known by a number, of which a short block keeps the low bytes.
    pub(super) fn set_head(&mut self, number: u64) {
        for (to, from) in self.bytes_mut().iter_mut().zip(number.to_le_bytes()) {
            *to = from;
        }
    }

    /// Fills it with what a file as made holds from `offset`, a multiple of eight, on.
    pub(super) fn fill(&mut self, seed: u64, offset: u64) {
        let first = offset / WORD as u64;
        for (word, bytes) in (first..).zip(self.bytes_mut().chunks_mut(WORD)) {
            for (to, from) in bytes.iter_mut().zip(original(seed, word).to_le_bytes()) {
                *to = from;
            }
        }
    }
}

/// The word with this number of a file as made.
fn original(seed: u64, word: u64) -> u64 {
    mix(seed ^ mix(word))
}

/// The [`head`](Block::head) of a block of a file as made; `length` is a power of two, and divides `offset`.
pub(super) fn original_head(seed: u64, offset: u64, length: usize) -> u64 {
    let word = original(seed, offset / WORD as u64) >> (8 * (offset % WORD as u64));
    word & head_mask(length)
}

/// What is written at the head of a block: no two of a file are alike, nor those of two times.
pub(super) fn stamp(seed: u64, generation: u64, offset: u64, length: usize) -> u64 {
    mix(seed ^ mix(generation) ^ offset) & head_mask(length)
}

fn head_mask(length: usize) -> u64 {
    if length >= WORD { u64::MAX } else { (1 << (8 * length)) - 1 }
}

/// The error of a block that holds something else than it must.
pub(super) fn wrong(offset: u64, what: &str) -> Error {
    Error::new(
        ErrorKind::Failed,
        format!("wrong content {what} at byte {offset} of the file; the sample is void"),
    )
    .hint("the disk, the memory or the file system has erred: look at the kernel's messages")
}

/// Whether two heads or contents are the same.
///
/// # Errors
/// They are not.
pub(super) fn check(same: bool, offset: u64, what: &str) -> Result<()> {
    if same { Ok(()) } else { Err(wrong(offset, what)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_block_lies_where_direct_transfers_want_it(length in 1usize..5000, power in 0u32..14) {
            let mut block = Block::new(length, 1 << power);
            prop_assert_eq!(block.bytes().as_ptr() as usize % (1 << power), 0);
            prop_assert_eq!(block.bytes().len(), length);
            block.set_head(0x0123_4567_89ab_cdef);
            let mask = head_mask(length);
            prop_assert_eq!(block.head(), 0x0123_4567_89ab_cdef & mask);
        }

        #[test]
        fn heads_are_those_of_the_content(seed in any::<u64>(), power in 0u32..12, number in 0u64..64) {
            let length = 1usize << power;
            let mut file = Block::new(64 * 4096, 8);
            file.fill(seed, 0);
            let offset = number * length as u64;
            let mut block = Block::new(length, 8);
            let place = offset as usize;
            block.bytes_mut().copy_from_slice(&file.bytes()[place..place + length]);
            prop_assert_eq!(block.head(), original_head(seed, offset, length));
        }
    }

    #[test]
    fn stamps_differ_by_place_and_time() {
        assert_ne!(stamp(1, 1, 0, 4096), stamp(1, 1, 4096, 4096));
        assert_ne!(stamp(1, 1, 0, 4096), stamp(1, 2, 0, 4096));
        assert!(stamp(1, 1, 0, 1) < 256);
    }
}
