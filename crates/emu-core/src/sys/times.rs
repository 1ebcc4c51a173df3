//! CPU time of processes.

#![expect(unsafe_code, reason = "no crate of ours wraps times(2)")]

use std::time::Duration;

use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{clock_getcpuclockid, clock_gettime};

use crate::sys::Pid;

/// `times(2)`: CPU time of this process and its threads, in ticks (`sysconf(_SC_CLK_TCK)` to the second). The oldest
/// and the coarsest of the CPU clocks: what `time(1)` of some shells and `clock()` of old programs show.
pub fn cpu_ticks() -> i64 {
    let mut times = libc::tms { tms_utime: 0, tms_stime: 0, tms_cutime: 0, tms_cstime: 0 };
    // SAFETY: the kernel writes one `tms` behind the pointer, which lives until the call returns. The result, ticks
    // since some moment, may be any number; the only error is a bad pointer.
    unsafe { libc::times(&raw mut times) };
    times.tms_utime + times.tms_stime
}

/// CPU time of a process, its ended threads included (`clock_getcpuclockid(3)`); `None` when there is none (any more).
pub fn process_cpu_time(pid: Pid) -> Option<Duration> {
    let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(pid)).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

/// CPU time of all that this process has waited for, orphans that it adopts included (`PR_SET_CHILD_SUBREAPER`); `None` where
/// it adopts none.
pub(crate) fn adopted_cpu_time() -> Option<Duration> {
    prctl::get_child_subreaper().ok().filter(|adopts| *adopts)?;
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let time = usage.user_time() + usage.system_time();
    Some(Duration::from_micros(time.num_microseconds() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_cpu_time_while_it_lives() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as Pid;
        assert!(process_cpu_time(pid).is_some());
        child.wait().unwrap();
        assert_eq!(process_cpu_time(pid), None);
        assert!(process_cpu_time(std::process::id() as Pid).unwrap() > Duration::ZERO);
    }

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
