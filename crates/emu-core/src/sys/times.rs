//! CPU time in ticks.

#![expect(unsafe_code, reason = "no crate of ours wraps times(2) and sysconf(3)")]

/// `times()`: CPU time of this process and its threads, in ticks of which `sysconf(_SC_CLK_TCK)` are a second.
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

/// `sysconf(_SC_CLK_TCK)`: ticks of [`cpu_ticks`] in a second; 100 on Linux, unless the C library says otherwise.
pub fn ticks_per_second() -> i64 {
    // SAFETY: `sysconf` takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks } else { 100 }
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
        assert!(cpu_ticks() > begin && ticks_per_second() > 0);
    }
}
