//! Lets one system call of emu fail, by a filter whose answers this process gives (`seccomp_unotify(2)`).

#![expect(unsafe_code, reason = "a filter is set between fork and exec, and answered by ioctls")]

use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// What is to fail.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    /// Which of the calls that count, in their order.
    pub(super) number: u64,
    pub(super) errno: i32,
}

/// Which calls count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    All,
    /// Writes to the kernel's control files.
    ControlWrites,
}

/// What emu and its guardian have called.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How many calls counted.
    pub(super) calls: u64,
    /// The one that has failed.
    pub(super) failed: Option<String>,
}

/// Where the child tells its process ID and the number of its listener; no program of the tests has as many files.
const TOLD: RawFd = 1000;

macro_rules! calls {
    ($($call:ident)*) => { &[$((stringify!($call), libc::$call)),*] };
}

/// Calls that cannot fail so, or whose failure no program can handle.
const LEFT_OUT: &[(&str, libc::c_long)] = calls![
    SYS_exit SYS_exit_group SYS_rt_sigreturn SYS_restart_syscall SYS_futex SYS_brk SYS_mmap SYS_munmap SYS_mprotect
    SYS_mremap SYS_madvise SYS_rt_sigprocmask SYS_getpid SYS_gettid SYS_set_robust_list SYS_rseq SYS_sched_yield
    SYS_clock_gettime
];

/// The names of calls that emu makes, for the table.
const NAMES: &[(&str, libc::c_long)] = calls![
    SYS_read SYS_write SYS_pread64 SYS_pwrite64 SYS_openat SYS_close SYS_fstat SYS_newfstatat SYS_statx SYS_lseek SYS_ioctl
    SYS_fcntl SYS_flock SYS_fsync SYS_fdatasync SYS_ftruncate SYS_fallocate SYS_getdents64 SYS_mkdirat SYS_unlinkat
    SYS_renameat SYS_readlinkat SYS_faccessat SYS_pipe2 SYS_dup SYS_dup3 SYS_ppoll SYS_epoll_create1 SYS_epoll_ctl
    SYS_epoll_pwait SYS_eventfd2 SYS_signalfd4 SYS_timerfd_create SYS_timerfd_settime SYS_timer_create SYS_timer_settime
    SYS_timer_delete SYS_socket SYS_socketpair SYS_bind SYS_listen SYS_accept4 SYS_connect SYS_sendto SYS_recvfrom
    SYS_clone SYS_clone3 SYS_execve SYS_wait4 SYS_waitid SYS_kill SYS_tgkill SYS_pidfd_open SYS_pidfd_send_signal SYS_prctl
    SYS_prlimit64 SYS_rt_sigaction SYS_sigaltstack SYS_sched_setaffinity SYS_sched_getaffinity SYS_sched_setscheduler
    SYS_sched_getscheduler SYS_sched_setattr SYS_sched_getattr SYS_sched_getparam SYS_setpriority SYS_getpriority
    SYS_setpgid SYS_getpgid SYS_setsid SYS_getsid SYS_getppid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_uname SYS_umask
    SYS_getrandom SYS_getcpu SYS_clock_nanosleep SYS_nanosleep SYS_mlock SYS_mlockall SYS_membarrier SYS_close_range
    SYS_memfd_create SYS_statfs SYS_fstatfs SYS_getcwd SYS_chdir SYS_perf_event_open SYS_seccomp SYS_capget SYS_set_tid_address
    SYS_inotify_init1 SYS_inotify_add_watch SYS_sysinfo SYS_getrusage
];

/// Who answers the filter of a command.
pub(super) struct Injector {
    thread: JoinHandle<Seen>,
    is_over: Arc<AtomicBool>,
}

impl Injector {
    /// Sets a filter for a command that is started next. What counts is what processes and threads called `emu…` do.
    pub(super) fn attach(command: &mut Command, counted: Counted, fault: Option<Fault>) -> Self {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut filter = filter();
        let set = move || {
            // SAFETY: takes numbers only.
            let told = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_DUPFD_CLOEXEC, TOLD) };
            if told != TOLD {
                return Err(io::Error::last_os_error());
            }
            let pid = std::process::id();
            nix::sys::prctl::set_no_new_privs()?;
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
            // SAFETY: the kernel reads the program, which outlives the call.
            let listener = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
            if listener < 0 {
                return Err(io::Error::last_os_error());
            }
            let words = [pid, listener as u32];
            // SAFETY: the words are as long as is said.
            let written = unsafe { libc::write(TOLD, words.as_ptr().cast(), size_of_val(&words)) };
            if written == size_of_val(&words) as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: the closure only makes system calls.
        unsafe { command.pre_exec(set) };
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut seen = Seen::default();
            if let Ok(listener) = listener(reader) {
                answer_all(&listener, counted, fault, &over, &mut seen);
            }
            seen
        });
        Self { thread, is_over }
    }

    /// When the command and all that it has started have ended, or should have.
    pub(super) fn end(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("answers to be given")
    }
}

/// Asks about every call but those that are left out, and the one by which the child tells of its listener.
fn filter() -> Vec<libc::sock_filter> {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal) =
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    let allow = step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW);
    // The number of the call is the first word of what a filter sees, the lower half of the first argument the fifth.
    let mut steps = vec![step(load, 0, 0, 0)];
    for (_, call) in LEFT_OUT {
        steps.extend([step(equal, 0, 1, *call as u32), allow]);
    }
    steps.extend([
        step(equal, 0, 3, libc::SYS_write as u32),
        step(load, 0, 0, 16),
        step(equal, 0, 1, TOLD as u32),
        allow,
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
    ]);
    steps
}

/// The listener of the child, which tells of it.
fn listener(mut told: PipeReader) -> io::Result<OwnedFd> {
    let mut words = [0; 8];
    told.read_exact(&mut words)?;
    let [pid, listener] =
        [&words[..4], &words[4..]].map(|word| i32::from_ne_bytes(word.try_into().expect("a word")));
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
    let child = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_getfd(child, listener, PidfdGetfdFlags::empty())?)
}

/// Answers until nobody has the filter any more, or nothing has been asked for a while when all should be over.
fn answer_all(
    listener: &OwnedFd,
    counted: Counted,
    fault: Option<Fault>,
    over: &AtomicBool,
    seen: &mut Seen,
) {
    loop {
        let mut asked = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let is_asked = poll(&mut asked, PollTimeout::from(200_u8)).unwrap_or(0) > 0;
        let events = asked[0].revents().unwrap_or(PollFlags::empty());
        if events.contains(PollFlags::POLLIN) {
            answer(listener.as_raw_fd(), counted, fault, seen);
        } else if events.contains(PollFlags::POLLHUP) || (!is_asked && over.load(Ordering::Relaxed)) {
            return;
        }
    }
}

/// Answers one call.
fn answer(listener: RawFd, counted: Counted, fault: Option<Fault>, seen: &mut Seen) {
    // SAFETY: numbers only, all of which may be zero, as the kernel wants them.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes what it asks into `asked`. It fails where the caller has died.
    if unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) } != 0 {
        return;
    }
    let (pid, data) = (asked.pid as i32, asked.data);
    let is_ours = crate::common::comm(pid).is_some_and(|name| name.starts_with("emu"));
    let file = || fs::read_link(format!("/proc/{pid}/fd/{}", data.args[0])).unwrap_or_default();
    let call = libc::c_long::from(data.nr);
    let counts = is_ours
        && match counted {
            Counted::All => true,
            Counted::ControlWrites => {
                [libc::SYS_write, libc::SYS_pwrite64].contains(&call)
                    && ["/sys", "/proc"].iter().any(|top| file().starts_with(top))
            }
        };
    let number = seen.calls;
    seen.calls += u64::from(counts);
    let failing = fault.filter(|fault| counts && fault.number == number);
    if failing.is_some() {
        let name = NAMES.iter().find(|(_, known)| *known == call);
        let name = name
            .map_or_else(|| format!("call {call}"), |(name, _)| name.trim_start_matches("SYS_").to_owned());
        let thread = crate::common::comm(pid).unwrap_or_default();
        seen.failed = Some(format!("{name} of {thread} ({})", file().display()));
    }
    let reply = libc::seccomp_notif_resp {
        id: asked.id,
        val: 0,
        error: failing.map_or(0, |fault| -fault.errno),
        flags: if failing.is_some() { 0 } else { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 },
    };
    // SAFETY: the kernel reads the reply. It fails where the call was interrupted, and then asks again.
    unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const reply) };
}
