//! Sizes of systems, and what of them the memory holds.

use std::ops::RangeInclusive;

use emu_bench::memory::may_take;
use emu_core::{Error, Result};

use crate::kernel::linpack;

/// Equations of a system: below, a solution takes less than a step of the work that is timed; above, a system takes 8 TB.
pub const EQUATIONS: RangeInclusive<usize> = 100..=1_000_000;

/// How many systems of the last size fit the memory beside the others, of which so many bytes are available.
pub(super) fn solutions_max(available: Option<u64>, sizes: &[usize]) -> Result<usize> {
    if let Some(size) = sizes.iter().find(|size| !EQUATIONS.contains(size)) {
        return Err(Error::usage(format!("cannot calibrate by systems of {size} equations")).hint(format!(
            "take sizes from {} to {}",
            EQUATIONS.start(),
            EQUATIONS.end()
        )));
    }
    let bytes =
        |sizes: &[usize]| sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(linpack::bytes(*size)));
    let limit = may_take(available);
    let last = sizes.last().map_or(u64::MAX, |last| linpack::bytes(*last));
    if let Some(left) = limit.checked_sub(bytes(sizes)) {
        return Ok((left / last + 1) as usize);
    }
    let fitting: Vec<_> = (1..sizes.len())
        .rev()
        .filter_map(|count| sizes.get(..count))
        .find(|some| bytes(some) <= limit)
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    let fitting = if fitting.is_empty() {
        String::new()
    } else {
        format!("; of yours --size {} fit", fitting.join(","))
    };
    // Eight bytes for each coefficient.
    let largest = (limit / 8).isqrt();
    Err(Error::unavailable(format!(
        "systems of {} equations take {} MiB, and of the {} MiB that are available emu takes half",
        sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        bytes(sizes) >> 20,
        available.unwrap_or(0) >> 20
    ))
    .hint(format!("one system of up to {largest} equations fits{fitting}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::ErrorKind;

    #[test]
    fn sizes_that_do_not_fit_are_refused_with_those_that_do() {
        let refused = |mib: u64, sizes: &[usize]| solutions_max(Some(mib << 20), sizes).unwrap_err();
        assert_eq!(solutions_max(Some(64 << 20), &[1000]).unwrap(), 4);
        assert_eq!(solutions_max(Some(64 << 20), &[1000, 1000]).unwrap(), 3);
        assert!(solutions_max(None, &[100_000]).unwrap() > 1_000_000);
        let error = refused(512, &[1000, 5000, 10_000]);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("961 MiB, and of the 512 MiB"), "{error}");
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("up to 5792 equations fits; of yours --size 1000,5000 fit"), "{hint}");
        let hint = refused(1, &[10_000]).hint_text().unwrap();
        assert!(hint.ends_with("up to 256 equations fits"), "{hint}");
        for size in [0, 99, 1_000_001, usize::MAX] {
            assert_eq!(refused(1 << 20, &[size, 1000]).kind(), ErrorKind::Usage, "{size}");
        }
    }
}
