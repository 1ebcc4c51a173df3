//! CPU time in ticks.

#![expect(unsafe_code, reason = "no crate of ours wraps times(2)")]

/// `times()`: CPU time of this process and its threads, in ticks (`sysconf(_SC_CLK_TCK)` to the second).
///
/// It is the oldest of the CPU clocks, and the coarsest: what `time(1)` of some shells and `clock()` of old programs
/// show.
///
/// # References
/// - <https://man7.org/linux/man-pages/man2/times.2.html>
pub fn cpu_ticks() -> i64 {
    let mut times = libc::tms { tms_utime: 0, tms_stime: 0, tms_cutime: 0, tms_cstime: 0 };
    // SAFETY: the kernel writes one `tms` behind the pointer, which lives until the call returns. The result, ticks
    // since some moment, may be any number; the only error is a bad pointer.
    unsafe { libc::times(&raw mut times) };
    times.tms_utime + times.tms_stime
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_pass_while_this_process_computes() {
        let begin = cpu_ticks();
        let started = std::time::Instant::now();
        while cpu_ticks() == begin {
            assert!(started.elapsed() < std::time::Duration::from_secs(30));
        }
        assert!(cpu_ticks() > begin);
    }
}
