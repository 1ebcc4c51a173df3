//! The computation that every workload is made of: a chain of dependent integer operations in registers, so that its speed is
//! the core clock and nothing else. It is Knuth's linear congruential generator (*The Art of Computer Programming* vol. 2, §
//! 3.3.4, line 26), of which `n` steps can be checked in `log n` (F. Brown 1994, *Random number generation with arbitrary
//! strides*).

use std::hint::black_box;

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// Steps between two looks at the clock: some 22 µs at 3.6 GHz, of which a look takes under 2 ‰.
pub const QUANTUM: u64 = 20_000;

/// Where every chain starts.
pub const START: u64 = 0x0123_4567_89ab_cdef;

/// Takes `steps` steps from `state`.
#[inline(never)]
pub fn advance(state: u64, steps: u64) -> u64 {
    // Known constants would let the compiler fold several steps into one.
    let (multiplier, increment) = (black_box(MULTIPLIER), black_box(INCREMENT));
    let mut state = black_box(state);
    for _ in 0..steps {
        state = state.wrapping_mul(multiplier).wrapping_add(increment);
    }
    black_box(state)
}

/// Where `steps` steps from `state` lead, found by repeated squaring.
pub fn expected(state: u64, steps: u64) -> u64 {
    let (mut multiplier, mut increment) = (MULTIPLIER, INCREMENT);
    let (mut all_multiplied, mut all_added) = (1u64, 0u64);
    let mut left = steps;
    while left > 0 {
        if left & 1 == 1 {
            all_multiplied = all_multiplied.wrapping_mul(multiplier);
            all_added = all_added.wrapping_mul(multiplier).wrapping_add(increment);
        }
        increment = increment.wrapping_mul(multiplier.wrapping_add(1));
        multiplier = multiplier.wrapping_mul(multiplier);
        left >>= 1;
    }
    state.wrapping_mul(all_multiplied).wrapping_add(all_added)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_result_of_any_number_of_steps_is_foretold(state: u64, steps in 0u64..5_000) {
            prop_assert_eq!(advance(state, steps), expected(state, steps));
        }
    }

    #[test]
    fn a_step_too_few_is_noticed() {
        assert_ne!(advance(START, QUANTUM - 1), expected(START, QUANTUM));
    }
}
