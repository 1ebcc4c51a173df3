//! Scheduling policies.

#![expect(unsafe_code, reason = "no crate wraps sched_setscheduler safely for every libc")]

use std::io;

/// `sched_setscheduler(0, SCHED_FIFO, priority)`: runs the calling thread ahead of all normal threads.
///
/// The raw system call is used because musl's wrapper is a stub that fails with `ENOSYS`.
/// `SCHED_RESET_ON_FORK` keeps children normal.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` or `RLIMIT_RTPRIO` ≥ `priority`, and in a cgroup without real-time budget
/// (`CONFIG_RT_GROUP_SCHED`); `EINVAL` for a priority outside 1..=99.
///
/// # References
/// - <https://man7.org/linux/man-pages/man2/sched_setscheduler.2.html>
/// - Documentation/scheduler/sched-rt-group.rst
pub(crate) fn set_fifo(priority: i32) -> io::Result<()> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one `sched_param` behind the pointer, which lives until the call returns;
    // thread 0 is the calling thread.
    let code = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const param) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
