//! The order of windows.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use super::window::Side::{self, Emulated, Native};

/// The sides of each pair and control in turn, shuffled. Pairs come in blocks of two with opposite orders, ABBA or BAAB.
pub(crate) fn schedule(pairs: usize, controls: usize, seed: u64) -> Vec<[Side; 2]> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let blocks = pairs.div_ceil(2);
    let mut is_block: Vec<bool> = (0..blocks + controls).map(|number| number < blocks).collect();
    is_block.shuffle(&mut rng);
    let mut left = pairs;
    let mut order = Vec::with_capacity(pairs + controls);
    for is_block in is_block {
        if !is_block {
            order.push([Native, Native]);
            continue;
        }
        let mut block = [[Native, Emulated], [Emulated, Native]];
        block.shuffle(&mut rng);
        // The last block of an odd number is half a one.
        order.extend(block.into_iter().take(left));
        left = left.saturating_sub(2);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(order: &[[Side; 2]], sides: [Side; 2]) -> usize {
        order.iter().filter(|pair| **pair == sides).count()
    }

    #[test]
    fn both_orders_are_equally_frequent_and_controls_are_among_them() {
        for seed in 0..50 {
            let order = schedule(15, 6, seed);
            let (ne, en) = (count(&order, [Native, Emulated]), count(&order, [Emulated, Native]));
            assert_eq!((ne + en, count(&order, [Native, Native])), (15, 6));
            assert!(ne.abs_diff(en) <= 1);
        }
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(schedule(15, 6, 3), schedule(15, 6, 3));
        assert_ne!(schedule(15, 6, 3), schedule(15, 6, 4));
        assert!(schedule(0, 0, 1).is_empty());
    }
}
