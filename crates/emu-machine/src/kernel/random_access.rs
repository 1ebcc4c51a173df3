//! `RandomAccess`: updates of a large table at random places, by HPCC's rules: four updates for each word, 128
//! independent streams of its generator, no more than 1 % of the words wrong.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use emu_core::{CpuList, Error, Result};

use super::{Outcome, Span, timed};

/// The generator's polynomial: the next number is the last one times x, modulo x⁶⁴ + x² + x + 1.
const POLYNOMIAL: u64 = 7;

/// Steps until the numbers repeat.
const PERIOD: u64 = 1_317_624_576_693_539_401;

/// Updates for each word of the table.
const UPDATES: u64 = 4;

/// Updates that are looked ahead: independent streams of all threads together.
const STREAMS: usize = 128;

/// The most threads: each has a stream of its own at least.
pub const THREADS_MAX: usize = STREAMS;

/// Share of the words that may be wrong: threads may lose each other's updates.
const WRONG_MAX: f64 = 0.01;

/// Updates of a table of so many words.
pub fn updates(words: usize) -> u64 {
    UPDATES * words as u64
}

/// Bytes of a table.
pub fn bytes(words: usize) -> u64 {
    8 * words as u64
}

fn next(number: u64) -> u64 {
    (number << 1) ^ if (number as i64) < 0 { POLYNOMIAL } else { 0 }
}

/// The number of the generator after so many steps from 1, found by squaring, as HPCC's `HPCC_starts`.
fn number_after(steps: u64) -> u64 {
    let steps = steps % PERIOD;
    // Multiplication by x^(2k) of each single bit, which adds up to that of any number.
    let mut doubled = [0; 64];
    let mut power = 1;
    for place in &mut doubled {
        *place = power;
        power = next(next(power));
    }
    let square = |number: u64| {
        let bits = doubled.iter().enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
        bits.fold(0, |sum, (_, power)| sum ^ power)
    };
    if steps == 0 {
        return 1;
    }
    let highest = steps.ilog2();
    (0..highest).rev().fold(2, |number, bit| {
        let squared = square(number);
        if steps >> bit & 1 == 1 { next(squared) } else { squared }
    })
}

/// Updates a table of so many words, a power of two, on a thread for each list of CPUs, and checks every word. The threads do
/// not wait for each other: that an update is lost where two meet is part of the benchmark.
pub fn run(words: usize, threads: &[CpuList]) -> Result<Outcome> {
    if !words.is_power_of_two() || words < STREAMS || threads.len() > THREADS_MAX {
        return Err(Error::usage(format!(
            "cannot update a table of {words} words by {} threads",
            threads.len()
        ))
        .hint("the table needs a power of two of 128 words or more; 128 threads are the most"));
    }
    let table: Vec<_> = (0..words as u64).map(AtomicU64::new).collect();
    let mine = |number: usize| STREAMS * number / threads.len()..STREAMS * (number + 1) / threads.len();
    let each = updates(words) / STREAMS as u64;
    let start = |stream: usize| number_after(each * stream as u64);
    let (seconds, _) = timed("RandomAccess", threads, |number, all| {
        let mut streams: Vec<_> = mine(number).map(start).collect();
        Ok(Span::of(all, || update(&table, &mut streams, each)))
    })?;
    // The same updates again, by one thread, undo the first ones.
    let mut streams: Vec<_> = (0..STREAMS).map(start).collect();
    update(&table, &mut streams, each);
    let wrong = (0..).zip(&table).filter(|(place, word)| word.load(Ordering::Relaxed) != *place).count();
    Ok(Outcome {
        seconds,
        work: updates(words) as f64,
        error: wrong as f64,
        error_max: WRONG_MAX * words as f64,
    })
}

fn update(table: &[AtomicU64], streams: &mut [u64], each: u64) {
    let mask = table.len() - 1;
    for _ in 0..each {
        for number in &mut *streams {
            *number = next(*number);
            if let Some(word) = table.get(*number as usize & mask) {
                // No atomic change: that would keep every update, and take longer than HPCC's.
                word.store(word.load(Ordering::Relaxed) ^ *number, Ordering::Relaxed);
            }
        }
    }
    black_box(streams);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::threads;

    #[test]
    fn a_number_far_ahead_is_where_steps_lead() {
        let mut number = 1;
        for steps in 0..2000 {
            assert_eq!(number_after(steps), number, "{steps}");
            number = next(number);
        }
        assert_eq!(number_after(PERIOD), 1);
        assert_eq!(next(number_after(PERIOD - 1)), 1);
        assert_eq!(next(number_after(1 << 40)), number_after((1 << 40) + 1));
    }

    #[test]
    fn one_thread_makes_no_error_and_several_few() {
        let alone = run(1 << 12, &threads(1)).unwrap();
        assert_eq!((alone.error.to_bits(), alone.work.to_bits()), (0f64.to_bits(), 16384f64.to_bits()));
        assert!(run(1 << 16, &threads(3)).unwrap().passes());
    }

    #[test]
    fn updates_change_the_table_and_a_lost_one_is_seen() {
        let table: Vec<_> = (0..256).map(AtomicU64::new).collect();
        let wrong =
            || (0..).zip(&table).filter(|(place, word)| word.load(Ordering::Relaxed) != *place).count();
        let starts = || [number_after(1 << 40), number_after(1 << 50)];
        update(&table, &mut starts(), 512);
        assert!(wrong() > 100);
        update(&table, &mut starts(), 511);
        assert!((1..=2).contains(&wrong()), "{}", wrong());
    }

    #[test]
    fn sizes_that_are_no_table_are_refused() {
        for words in [0, 1, 64, 1000] {
            assert!(run(words, &threads(1)).is_err(), "{words}");
        }
        assert!(run(256, &threads(129)).is_err());
        assert!(run(256, &[]).is_err());
    }
}
