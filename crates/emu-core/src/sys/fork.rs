//! Forking a child that goes on inside this program, however many threads the program has.

#![expect(unsafe_code, reason = "no crate forks without a signal to the parent, or closes descriptor ranges")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, getpid, getppid, set_parent_process_death_signal};

use super::signal;
use crate::sys::Pid;

#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Child {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it has ended. Where that cannot be told, it has not.
    pub(crate) fn has_ended(&self) -> bool {
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut ended, Some(&Timespec::default())) == Ok(1)
    }

    /// That it has ended meanwhile is no failure.
    pub(super) fn kill(&self) -> io::Result<()> {
        match signal::send(self.pidfd.as_fd(), self.pid, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
                Ok(status) => {
                    let status = status.ok_or(io::ErrorKind::Other)?;
                    // As wait(2) encodes it.
                    let code = status.exit_status().map(|code| (code & 0xff) << 8);
                    let raw = code.or(status.terminating_signal()).unwrap_or_default();
                    return Ok(ExitStatus::from_raw(raw | if status.dumped() { 0x80 } else { 0 }));
                }
            }
        }
    }

    /// A child that cannot be killed is not waited for: it ends by itself once it sees that this process has ended.
    pub(crate) fn end(&self) {
        if self.kill().is_err() {
            return;
        }
        // `__WALL`: without an exit signal, a child is hidden from an ordinary wait. ECHILD: the embedding program
        // has such a wait for all its children, and was quicker.
        while waitid(Id::PIDFd(self.pidfd.as_fd()), WaitPidFlag::WEXITED | WaitPidFlag::__WALL)
            == Err(nix::Error::EINTR)
        {}
    }
}

/// `clone(CLONE_PIDFD)`: runs `child` in a copy of this process, which then ends with the code returned. The child
/// has the one thread that called, all signals blocked, and of the open files only `keep`.
///
/// It has no exit signal: a program that embeds this crate gets no `SIGCHLD` for it, and `wait(2)` for any child does
/// not return it. Handlers of `pthread_atfork(3)` are not run. Needs Linux 5.2.
///
/// # Safety
/// Other threads may have held any lock when they were copied away, `malloc`'s among them: `child` must not
/// allocate, free, print, panic or wait for a lock, only compute and make system calls (`signal-safety(7)`). It must
/// use no descriptor but those of `keep`: the numbers of the others are closed, whoever owns them.
///
/// References: <https://man7.org/linux/man-pages/man2/clone.2.html>,
/// <https://man7.org/linux/man-pages/man2/close_range.2.html>
pub(crate) unsafe fn fork<const N: usize>(
    keep: [BorrowedFd<'_>; N],
    child: impl FnOnce() -> i32,
) -> io::Result<Child> {
    // Blocked before, so that no handler of the program ever runs in the child.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    // SAFETY: the child does what `child` does, which keeps to the contract, and then ends.
    let forked = unsafe { copy(0) };
    if matches!(forked, Ok(None)) {
        let _never_return = NeverReturn;
        close_all_but(keep.map(|fd| fd.as_raw_fd()));
        exit(child());
    }
    // A mask that was in force before is always valid.
    let _ = mask.thread_set_mask();
    forked.and_then(|child| child.ok_or_else(|| io::ErrorKind::Other.into()))
}

/// `clone(CLONE_PIDFD)` with an exit signal, as fork(2) with a pidfd of the child: `None` in the child.
///
/// # Safety
/// The child must not return into the program, and must do only what the closure of [`fork`] may.
pub(super) unsafe fn copy(exit_signal: libc::c_int) -> io::Result<Option<Child>> {
    let mut pidfd: RawFd = -1;
    let (no_stack, unused): (libc::c_ulong, libc::c_ulong) = (0, 0);
    // SAFETY: without CLONE_VM and CLONE_VFORK this is fork(2): the child goes on with its own copy of memory
    // and stack. The kernel stores a descriptor in `pidfd`, which outlives the call; the other pointer
    // arguments are not used without their flags.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            (libc::CLONE_PIDFD | exit_signal) as libc::c_ulong,
            no_stack,
            &raw mut pidfd,
            unused,
            unused,
        )
    };
    match pid {
        0 => Ok(None),
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => {
            // SAFETY: the call succeeded in the parent, so `pidfd` is a new descriptor that nothing else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Some(Child { pid: pid as Pid, pidfd }))
        }
    }
}

/// As [`fork`], for a child that must not outlive the thread that calls, however that ends: the kernel kills it then
/// (`PR_SET_PDEATHSIG`).
///
/// # Safety
/// As [`fork`].
pub(crate) unsafe fn fork_bound<const N: usize>(
    keep: [BorrowedFd<'_>; N],
    child: impl FnOnce() -> i32,
) -> io::Result<Child> {
    let parent = getpid();
    let bound = || {
        let bound = set_parent_process_death_signal(Some(Signal::KILL));
        // It may have ended before the kernel was asked.
        if bound.is_err() || getppid() != Some(parent) {
            return 1;
        }
        child()
    };
    // SAFETY: two system calls, and what `child` does, which keeps to the contract.
    unsafe { fork(keep, bound) }
}

fn exit(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Ends a child that would unwind into its parent's code.
struct NeverReturn;

impl Drop for NeverReturn {
    fn drop(&mut self) {
        exit(101);
    }
}

fn close_all_but<const N: usize>(mut keep: [RawFd; N]) {
    keep.sort_unstable();
    let mut first = 0;
    for fd in keep {
        if first < fd {
            close_between(first, fd - 1);
        }
        first = fd + 1;
    }
    close_between(first, RawFd::MAX);
}

fn close_between(first: RawFd, last: RawFd) {
    // SAFETY: takes no pointer. The owners of the descriptors were copied with the rest of the program, of
    // which the child runs nothing but a closure that uses only the descriptors kept.
    let code = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if code == 0 {
        return;
    }
    // Linux before 5.9, or a sandbox that does not know the call: one by one, up to the limit on numbers.
    let limit =
        getrlimit(Resource::RLIMIT_NOFILE).map_or(65_536, |(current, _)| current.min(1 << 20)) as RawFd;
    for fd in first..=last.min(limit) {
        // SAFETY: as above; a number that is not open fails with EBADF.
        unsafe { libc::close(fd) };
    }
}

/// A child whose first thread has ended while another one waits for ever.
#[cfg(test)]
pub(crate) fn fork_leaderless() -> io::Result<Child> {
    extern "C" fn wait(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `pause` has no preconditions.
        unsafe { libc::pause() }
    }
    let leave = || {
        let mut stack = [0u128; 1024];
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        let top = stack.as_mut_ptr_range().end;
        // SAFETY: the thread runs `wait` on an aligned stack that stays, as this function never returns.
        unsafe { libc::clone(wait, top.cast(), flags, std::ptr::null_mut()) };
        // SAFETY: ends this thread alone; what borrows from its stack stays valid.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!("the thread has ended")
    };
    // SAFETY: only makes system calls.
    unsafe { fork([], leave) }
}

/// Counts what the current thread allocates; a forked child may be forbidden to.
#[cfg(test)]
pub(crate) mod allocations {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
        static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
    }

    struct Counting;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    fn count() {
        COUNT.set(COUNT.get() + 1);
        if FORBIDDEN.get() {
            std::process::abort();
        }
    }

    // SAFETY: every call is passed on unchanged to the system's allocator.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            count();
            // SAFETY: the caller keeps to the contract of `GlobalAlloc`.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            count();
            // SAFETY: as above.
            unsafe { System.dealloc(block, layout) }
        }
    }

    /// How many times `work` allocated or freed.
    pub(crate) fn during<T>(work: impl FnOnce() -> T) -> (T, usize) {
        let before = COUNT.get();
        let value = work();
        (value, COUNT.get() - before)
    }

    /// From now on this thread is aborted when it allocates or frees.
    pub(crate) fn forbid() {
        FORBIDDEN.set(true);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// For closures that only compute and make system calls, or do what they must not, to see what becomes of it.
    fn fork<const N: usize>(keep: [BorrowedFd<'_>; N], child: impl FnOnce() -> i32) -> io::Result<Child> {
        // SAFETY: what breaks the contract in these tests ends the child.
        unsafe { super::fork(keep, child) }
    }

    fn exit_code(child: &Child) -> i32 {
        match waitid(Id::PIDFd(child.pidfd.as_fd()), WaitPidFlag::WEXITED | WaitPidFlag::__WALL).unwrap() {
            nix::sys::wait::WaitStatus::Exited(_, code) => code,
            nix::sys::wait::WaitStatus::Signaled(_, signal, _) => 1000 + signal as i32,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_child_has_only_the_descriptors_it_keeps() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let other = std::fs::File::open("/dev/null").unwrap();
        let child = fork([writer.as_fd()], || {
            let open = |fd| i32::from(rustix::io::fcntl_getfd(fd).is_ok());
            let kept = rustix::io::write(&writer, b"x").map_or(0, |n| n as i32);
            kept * 8 + open(other.as_fd()) * 4 + open(std::io::stdin().as_fd()) * 2 + open(reader.as_fd())
        });
        let child = child.unwrap();
        drop(writer);
        let mut sent = String::new();
        reader.read_to_string(&mut sent).unwrap();
        assert_eq!(sent, "x");
        assert_eq!(exit_code(&child), 8);
    }

    #[test]
    fn a_child_is_hidden_from_a_wait_for_any_child() {
        // In a process of its own: other tests have children, too.
        if std::env::var_os("EMU_TEST_HIDDEN_CHILD").is_none() {
            let name = "sys::fork::tests::a_child_is_hidden_from_a_wait_for_any_child";
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--test-threads=1"])
                .env("EMU_TEST_HIDDEN_CHILD", "1")
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap();
            assert!(status.success(), "{:?} {:?}", status.code(), status.signal());
            return;
        }
        let child = fork([], || 7).unwrap();
        assert_eq!(waitid(Id::All, WaitPidFlag::WEXITED), Err(nix::Error::ECHILD));
        assert_eq!(exit_code(&child), 7);
        // Gone already: tolerated.
        child.end();
    }

    #[test]
    fn a_child_that_panics_does_not_return_into_the_tests() {
        std::panic::set_hook(Box::new(|_| {}));
        let child = fork([], || panic!()).unwrap();
        let _ = std::panic::take_hook();
        assert_eq!(exit_code(&child), 101);
    }

    #[test]
    fn an_allocation_in_a_child_that_must_not_is_fatal() {
        let child = fork([], || {
            allocations::forbid();
            *std::hint::black_box(Box::new(1))
        });
        assert_eq!(exit_code(&child.unwrap()), 1000 + libc::SIGABRT);
    }

    #[test]
    fn a_child_can_be_ended_at_any_time() {
        let started = std::time::Instant::now();
        let child = fork([], || {
            let _ = rustix::event::poll(&mut [], None);
            0
        });
        child.unwrap().end();
        assert!(started.elapsed().as_secs() < 5);
    }
}
