//! Loads of which each tells the address of the next: what memory makes a program wait.

use emu_bench::wrong;
use emu_core::{Error, Result};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

/// Bytes from one load to the next at least: a line of the cache, as most CPUs have it.
pub const LINE: usize = 64;

const WORDS: usize = LINE / size_of::<u64>();

const LINES_MIN: usize = 2;

/// A way through memory that touches every line once, in random order, and begins again. No prefetcher can guess the next
/// line, and no load can begin before the one before it has ended.
#[derive(Debug)]
pub struct Chase {
    /// In the first word of every line, the index of the word where the way goes on.
    next: Vec<u64>,
    way: Vec<u32>,
    steps: u64,
    place: u64,
}

impl Chase {
    /// A way through so many bytes: at least two lines of them, at most 256 GiB.
    pub fn new(bytes: u64, seed: u64) -> Result<Self> {
        let lines = u32::try_from(bytes / LINE as u64)
            .map_err(|cause| {
                Error::usage(format!("cannot chase through {bytes} bytes"))
                    .caused_by(cause)
                    .hint("256 GiB is the most")
            })?
            .max(LINES_MIN as u32);
        let mut way: Vec<u32> = (0..lines).collect();
        way.shuffle(&mut Pcg64::seed_from_u64(seed));
        let mut next = vec![0; lines as usize * WORDS];
        for (from, to) in way.iter().zip(way.iter().cycle().skip(1)) {
            if let Some(word) = next.get_mut(*from as usize * WORDS) {
                *word = u64::from(*to) * WORDS as u64;
            }
        }
        let place = way.first().map_or(0, |line| u64::from(*line) * WORDS as u64);
        Ok(Self { next, way, steps: 0, place })
    }

    /// How many lines the way has.
    pub fn lines(&self) -> u64 {
        self.way.len() as u64
    }

    /// Goes on by so many steps.
    #[inline(never)]
    #[expect(
        clippy::indexing_slicing,
        reason = "a check that cannot fail is predicted; `get` would wait for the load"
    )]
    pub fn walk(&mut self, steps: u64) {
        let next = self.next.as_slice();
        let mut place = self.place;
        for _ in 0..steps {
            place = next[place as usize];
        }
        self.place = place;
        self.steps += steps;
    }

    /// Whether the way has been followed.
    pub fn verify(&self) -> Result<()> {
        let step = (self.steps % self.lines()) as usize;
        let must = self.way.get(step).map(|line| u64::from(*line) * WORDS as u64);
        if must == Some(self.place) {
            return Ok(());
        }
        let Self { steps, place, .. } = self;
        Err(wrong(format_args!("place after {steps} steps: word {place} instead of {must:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::ErrorKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_way_is_one_cycle_through_all_lines(lines in 2u64..500, seed in any::<u64>()) {
            let mut chase = Chase::new(lines * LINE as u64, seed).unwrap();
            prop_assert_eq!(chase.lines(), lines);
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..lines {
                prop_assert!(seen.insert(chase.place), "twice in one round");
                chase.walk(1);
                prop_assert!(chase.verify().is_ok());
            }
            prop_assert!(seen.contains(&chase.place), "the way begins again");
            chase.walk(7 * lines + 3);
            prop_assert!(chase.verify().is_ok());
        }
    }

    #[test]
    fn a_step_that_was_left_out_is_noticed() {
        let mut chase = Chase::new(4096, 1).unwrap();
        chase.walk(10);
        chase.steps += 1;
        assert_eq!(chase.verify().unwrap_err().kind(), ErrorKind::WrongResult);
    }

    #[test]
    fn sizes_have_limits() {
        assert_eq!(Chase::new(0, 1).unwrap().lines(), 2);
        assert!(Chase::new(u64::MAX, 1).is_err());
    }
}
