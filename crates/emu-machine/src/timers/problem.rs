//! The computation that clocks are compared on.

use std::time::Duration;

use emu_bench::workload::kernel::{START, advance, expected};
use emu_bench::wrong;
use emu_core::Result;

/// Sizes are powers of two from the first to the last: 0.3 µs to 0.3 s at 1.1 ns a step, with the published range inside.
const FIRST: u32 = 8;
const LAST: u32 = 28;
const LAST_QUICK: u32 = 24;

/// Nanoseconds of a step, to tell how long a measurement will take: three cycles of multiplying and one of adding.
const STEP_NS: f64 = 1.1;

pub(super) fn sizes(quick: bool) -> Vec<u64> {
    (FIRST..=if quick { LAST_QUICK } else { LAST }).map(|power| 1 << power).collect()
}

pub(super) fn expected_time(steps: u64) -> Duration {
    Duration::from_secs_f64(steps as f64 * STEP_NS / 1e9)
}

pub(super) fn solve(steps: u64) -> u64 {
    advance(START, steps)
}

/// Verification is outside of any timed span.
pub(super) fn verify(steps: u64, result: u64) -> Result<()> {
    if result == expected(START, steps) {
        return Ok(());
    }
    Err(wrong(format_args!("result of {steps} steps: {result:#018x}")))
}

#[cfg(test)]
mod tests {
    use emu_core::ErrorKind;

    use super::*;

    #[test]
    fn a_wrong_result_is_found_out() {
        verify(1000, solve(1000)).unwrap();
        assert_eq!(verify(1001, solve(1000)).unwrap_err().kind(), ErrorKind::WrongResult);
    }

    #[test]
    fn sizes_double() {
        for quick in [false, true] {
            let sizes = sizes(quick);
            assert!(sizes.windows(2).all(|pair| pair[1] == 2 * pair[0]), "{sizes:?}");
            assert_eq!(sizes[0], 256);
        }
    }
}
