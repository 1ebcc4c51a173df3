//! Scheduling policies.

#![expect(unsafe_code, reason = "no crate wraps sched_setscheduler safely for every libc")]

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// `sched_setscheduler(2)` with `SCHED_FIFO`: runs the calling thread ahead of all normal threads.
/// `SCHED_RESET_ON_FORK` keeps children normal. The raw system call is used because musl's wrapper is a stub that
/// fails with `ENOSYS`.
///
/// Fails with `EPERM` without `CAP_SYS_NICE` or `RLIMIT_RTPRIO` ≥ `priority`, and in a cgroup without real-time
/// budget (`CONFIG_RT_GROUP_SCHED`, Documentation/scheduler/sched-rt-group.rst).
pub(crate) fn set_fifo(priority: i32) -> io::Result<()> {
    set(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// `SCHED_IDLE` (`sched(7)`): runs the calling thread only where nothing else wants to; it gives way at once to any
/// other. Every thread may do that.
pub(crate) fn set_idle() -> io::Result<()> {
    set(libc::SCHED_IDLE, 0)
}

/// `SCHED_OTHER` (`sched(7)`): runs the calling thread among all normal threads, with the nice value that it has.
/// Fails with `EPERM` for a thread that is `SCHED_IDLE`, without `CAP_SYS_NICE` or an `RLIMIT_NICE` that allows that
/// value.
pub(crate) fn set_normal() -> io::Result<()> {
    set(libc::SCHED_OTHER, 0)
}

/// `pthread_setschedparam(3)`: as [`set_normal`], for another thread of this process; `ESRCH` for one that has ended.
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
