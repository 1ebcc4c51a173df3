//! Scheduling policies.

#![expect(unsafe_code, reason = "no crate wraps sched_setscheduler safely for every libc")]

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

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
    set(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// `sched_setscheduler(0, SCHED_IDLE)`: runs the calling thread only where nothing else wants to; it gives way at once
/// to any other. Every thread may do that.
///
/// # Errors
/// None that is known.
///
/// # References
/// - <https://man7.org/linux/man-pages/man7/sched.7.html>
pub(crate) fn set_idle() -> io::Result<()> {
    set(libc::SCHED_IDLE, 0)
}

/// `sched_setscheduler(0, SCHED_OTHER)`: runs the calling thread among all normal threads, with the nice value that it
/// has.
///
/// # Errors
/// `EPERM` for a thread that is `SCHED_IDLE`, without `CAP_SYS_NICE` or an `RLIMIT_NICE` that allows its nice value.
///
/// # References
/// - <https://man7.org/linux/man-pages/man7/sched.7.html>
pub(crate) fn set_normal() -> io::Result<()> {
    set(libc::SCHED_OTHER, 0)
}

/// `pthread_setschedparam(thread, SCHED_OTHER)`: as [`set_normal`], for another thread of this process.
///
/// # Errors
/// As [`set_normal`]; `ESRCH` for a thread that has ended.
///
/// # References
/// - <https://man7.org/linux/man-pages/man3/pthread_setschedparam.3.html>
pub(crate) fn set_thread_normal<T>(thread: &JoinHandle<T>) -> io::Result<()> {
    let param = param(0);
    // SAFETY: the handle is neither joined nor detached, so its ID is valid whether the thread has ended or not; the
    // `sched_param` lives until the call returns.
    let code = unsafe {
        libc::pthread_setschedparam(
            thread.as_pthread_t() as libc::pthread_t,
            libc::SCHED_OTHER,
            &raw const param,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// musl's form has more fields, for a policy that Linux does not have.
fn param(priority: i32) -> libc::sched_param {
    // SAFETY: all fields are numbers, so they may be zero.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    param
}

fn set(policy: i32, priority: i32) -> io::Result<()> {
    let param = param(priority);
    // SAFETY: the kernel reads one `sched_param` behind the pointer, which lives until the call returns;
    // thread 0 is the calling thread.
    let code = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const param) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
