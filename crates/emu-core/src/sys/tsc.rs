//! Reading the time-stamp counter.

/// The time-stamp counter of this CPU, read after everything before it (`LFENCE`); `None` on other than x86-64.
///
/// An invariant counter runs at one rate whatever the core clock is. Whether the counters of several CPUs agree is
/// for the kernel to judge: it takes `tsc` as its clock source only where they do. References: Intel SDM vol. 2A
/// (`LFENCE`) and vol. 3B, section 19.17; AMD APM vol. 2, section 13.2.4.
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the standard library offers the instructions as unsafe only")
)]
pub fn tsc() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: LFENCE is part of SSE2, which every x86-64 CPU has; it touches no memory.
        unsafe { _mm_lfence() };
        // SAFETY: RDTSC has no operands and touches no memory; Linux lets user space execute it unless a process
        // forbids it to itself (prctl PR_SET_TSC), which this one does not.
        Some(unsafe { _rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_runs_where_there_is_one() {
        assert_eq!(tsc().is_some(), cfg!(target_arch = "x86_64"));
        if let Some(first) = tsc() {
            let begin = std::time::Instant::now();
            while begin.elapsed() < std::time::Duration::from_millis(1) {}
            assert_ne!(tsc(), Some(first));
        }
    }
}
