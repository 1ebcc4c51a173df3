//! Every place once, in an order without a pattern and without a table of it.

/// A random-looking order of the numbers below a count. A table of the order would take memory and caches from what is
/// measured. So the order is computed: shifts and multiplications by odd numbers, of which each maps the numbers of some bits
/// onto themselves, one to one. What falls beyond the count is mapped again, until it falls below (cycle walking; J. Black
/// and P. Rogaway 2002, *Ciphers with arbitrary finite domains*).
#[derive(Debug, Clone, Copy)]
pub struct Scatter {
    count: u64,
    mask: u64,
    shift: u32,
    key: u64,
}

impl Scatter {
    /// An order of the numbers below `count`, which is at least 1; another seed gives another order.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.max(1).saturating_sub(1).leading_zeros();
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        Self { count: count.max(1), mask, shift: bits / 2 + 1, key: mix(seed) }
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number that comes as the given step, counted from 0 and below the count.
    #[inline]
    pub fn place(&self, step: u64) -> u64 {
        let mut place = step;
        loop {
            place = (place ^ self.key) & self.mask;
            for factor in [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93] {
                place ^= place >> self.shift;
                place = place.wrapping_mul(factor) & self.mask;
            }
            place ^= place >> self.shift;
            if place < self.count {
                return place;
            }
        }
    }
}

/// A number that looks random and belongs to this one alone (the finaliser of `SplitMix64`, G. Steele, D. Lea and
/// C. Flood 2014, *Fast splittable pseudorandom number generators*).
#[inline]
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_comes_once(count in 1u64..3000, seed in any::<u64>()) {
            let order = Scatter::new(count, seed);
            let mut places: Vec<_> = (0..count).map(|step| order.place(step)).collect();
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..count));
        }
    }

    #[test]
    fn neighbours_are_far_apart() {
        let order = Scatter::new(1 << 20, 7);
        let places: Vec<_> = (0..10_000).map(|step| order.place(step)).collect();
        let mean = places.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum::<f64>() / 9_999.0;
        // A third of the range for places drawn at random.
        assert!((mean / f64::from(1 << 20) - 1.0 / 3.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn the_seed_makes_the_order() {
        let places = |seed| (0..100).map(|step| Scatter::new(100, seed).place(step)).collect::<Vec<_>>();
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
    }
}
