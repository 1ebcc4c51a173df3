//! What the files of a measurement hold, so that every transfer can be verified.

use std::ops::Range;

use emu_bench::wrong;
use emu_core::Result;

use crate::kernel::scatter::mix;

const WORD: usize = size_of::<u64>();

/// Alignment of memory that suits every device, and the smallest part of a file that storage compares with others.
pub(super) const PAGE: usize = 4096;

/// Pages by which the memory of blocks that are written is longer than one of them: little enough for a CPU's caches.
const SPARE: usize = 256;

/// Memory for a block that starts at an address which direct transfers accept.
#[derive(Debug)]
pub(super) struct Block {
    memory: Vec<u8>,
    start: usize,
    length: usize,
    spare: usize,
    /// How many of them are before the block.
    before: usize,
}

impl Block {
    /// Memory for `length` bytes at a multiple of `alignment`, a power of two.
    pub(super) fn new(length: usize, alignment: usize) -> Self {
        Self::with_spare(length, alignment, 0)
    }

    /// Memory for blocks of `length` bytes that are [made new](Self::renew) one after another, at multiples of a page.
    pub(super) fn renewable(length: usize) -> Self {
        Self::with_spare(length, PAGE, SPARE)
    }

    fn with_spare(length: usize, alignment: usize, spare: usize) -> Self {
        let memory = vec![0; length + spare * PAGE + alignment];
        // The offset is at most the alignment, unless that is no power of two, which no kernel asks for.
        let start = memory.as_ptr().align_offset(alignment).min(alignment);
        Self { memory, start, length, spare, before: 0 }
    }

    fn range(&self) -> Range<usize> {
        let start = self.start + self.before * PAGE;
        start..start + self.length
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.memory.get(self.range()).unwrap_or_default()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        self.memory.get_mut(range).unwrap_or_default()
    }

    /// The block's first bytes, at most eight, as a number.
    pub(super) fn head(&self) -> u64 {
        let mut word = [0; WORD];
        for (to, from) in word.iter_mut().zip(self.bytes()) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    }

    /// Makes it a block like no other: another part of the memory, each page of which is known by a number that follows from
    /// `stamp`. Storage that compresses, or keeps equal pages only once, would have less to do with the same block again and
    /// again than with the data of a program.
    pub(super) fn renew(&mut self, stamp: u64) {
        self.before = stamp as usize % (self.spare + 1);
        for (page, bytes) in (0..).zip(self.bytes_mut().chunks_mut(PAGE)) {
            put(bytes, mix(stamp ^ page));
        }
    }

    /// Fills the memory with what a file as made holds from `offset`, a multiple of eight, on.
    pub(super) fn fill(&mut self, seed: u64, offset: u64) {
        let first = offset / WORD as u64;
        let all = self.start..self.start + self.spare * PAGE + self.length;
        let memory = self.memory.get_mut(all).unwrap_or_default();
        for (word, bytes) in (first..).zip(memory.chunks_mut(WORD)) {
            put(bytes, original(seed, word));
        }
    }
}

/// Writes a number at the begin of some bytes; fewer than eight keep its low bytes.
fn put(bytes: &mut [u8], number: u64) {
    for (to, from) in bytes.iter_mut().zip(number.to_le_bytes()) {
        *to = from;
    }
}

fn original(seed: u64, word: u64) -> u64 {
    mix(seed ^ mix(word))
}

/// The [`head`](Block::head) of a block of a file as made; `length` is a power of two, and divides `offset`.
pub(super) fn original_head(seed: u64, offset: u64, length: usize) -> u64 {
    let word = original(seed, offset / WORD as u64) >> (8 * (offset % WORD as u64));
    word & head_mask(length)
}

/// What a block that is written [follows from](Block::renew): no two of a file are alike, nor those of two times.
pub(super) fn stamp(seed: u64, generation: u64, offset: u64) -> u64 {
    mix(seed ^ mix(generation) ^ offset)
}

fn head_mask(length: usize) -> u64 {
    if length >= WORD { u64::MAX } else { (1 << (8 * length)) - 1 }
}

pub(super) fn check(same: bool, offset: u64, what: &str) -> Result<()> {
    if same {
        return Ok(());
    }
    Err(wrong(format_args!("content {what} at byte {offset} of the file"))
        .hint("the disk, the memory or the file system has erred: look at the kernel's messages"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use emu_core::ErrorKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_block_lies_where_direct_transfers_want_it(length in 1usize..5000, power in 0u32..14) {
            let mut block = Block::new(length, 1 << power);
            prop_assert_eq!(block.bytes().as_ptr() as usize % (1 << power), 0);
            prop_assert_eq!(block.bytes().len(), length);
            put(block.bytes_mut(), 0x0123_4567_89ab_cdef);
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
        assert_ne!(stamp(1, 1, 0), stamp(1, 1, 4096));
        assert_ne!(stamp(1, 1, 0), stamp(1, 2, 0));
    }

    #[test]
    fn a_block_made_new_has_no_page_that_was_there_before() {
        let mut block = Block::renewable(4 * PAGE);
        block.fill(7, 0);
        let (mut pages, mut insides) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..100 {
            block.renew(stamp(7, 1, number * 4 * PAGE as u64));
            assert_eq!(block.bytes().as_ptr() as usize % PAGE, 0);
            assert_eq!(block.bytes().len(), 4 * PAGE);
            for page in block.bytes().chunks(PAGE) {
                assert!(pages.insert(page.to_vec()), "{number}");
                insides.insert(page[WORD..].to_vec());
            }
        }
        // Of 260 pages that there are besides their heads.
        assert!(insides.len() > 150, "{}", insides.len());
    }

    #[test]
    fn a_block_made_new_can_be_told_from_its_stamp_alone() {
        for length in [1, 512, PAGE, 8 * PAGE] {
            let (mut used, mut fresh) = (Block::renewable(length), Block::renewable(length));
            used.fill(7, 0);
            fresh.fill(7, 0);
            (0..1000).for_each(|number| used.renew(stamp(7, 1, number)));
            used.renew(stamp(7, 2, 0));
            fresh.renew(stamp(7, 2, 0));
            assert_eq!(used.bytes(), fresh.bytes(), "{length}");
        }
    }

    #[test]
    fn wrong_content_is_a_wrong_result() {
        assert!(check(true, 0, "read").is_ok());
        assert_eq!(check(false, 0, "read").unwrap_err().kind(), ErrorKind::WrongResult);
    }
}
