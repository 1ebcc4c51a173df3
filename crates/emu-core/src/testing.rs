//! What the tests of several rooms use: busy processes, waiting for a state, and skipping.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::sys::Pid;
use crate::sys::times::process_cpu_time;

/// Says why a test does not run here; with `EMU_NO_SKIP` in the environment it fails instead.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("EMU_NO_SKIP").is_none(), "must not be skipped here: {why}");
    println!("skipped: {why}");
}

/// Waits up to 10 s for what is named.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// For where the line of the caller says enough.
#[track_caller]
pub(crate) fn wait_until(condition: impl FnMut() -> bool) {
    eventually("it is so", condition);
}

/// Tries a test that measures three times at least, and for two minutes: others take their share of a shared machine for a
/// while, and what is broken is broken every time.
pub(crate) fn in_some_attempt(test: impl Fn()) {
    let begin = Instant::now();
    let mut attempts = 0;
    while catch_unwind(AssertUnwindSafe(&test)).is_err() {
        attempts += 1;
        assert!(attempts < 3 || begin.elapsed() < Duration::from_secs(120), "in no attempt");
        thread::sleep(Duration::from_secs(1));
    }
}

/// As the harness takes it, for a process of this executable that runs that test alone: by its `module_path!()`, which begins
/// with the crate, and its function.
pub(crate) fn test_name(module: &str, test: &str) -> String {
    let (_, module) = module.split_once("::").unwrap();
    format!("{module}::{test}")
}

/// For this executable, run as a process of its own.
const BUSY: &str = "EMU_TEST_BUSY";

pub(crate) struct Busy(pub(crate) Vec<Child>);

impl Busy {
    /// Each process has so many threads, which are busy from now on.
    pub(crate) fn start(processes: usize, threads: usize) -> Self {
        let this = Self::after(Duration::ZERO, processes, threads);
        this.wait();
        this
    }

    /// Its first thread waits for another one, which is busy from now on.
    pub(crate) fn aside() -> Self {
        let this = Self::after(Duration::ZERO, 1, 0);
        this.wait();
        this
    }

    pub(crate) fn after(delay: Duration, processes: usize, threads: usize) -> Self {
        let start = |_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &test_name(module_path!(), "busy"), "--test-threads=1"])
                .env(BUSY, format!("{} {threads}", delay.as_millis()))
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        Self((0..processes).map(start).collect())
    }

    fn wait(&self) {
        wait_until(|| self.used() > Duration::from_millis(30));
    }

    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.0.iter().map(|child| child.id() as Pid).collect()
    }

    pub(crate) fn used(&self) -> Duration {
        self.pids().into_iter().map(|pid| process_cpu_time(pid).unwrap()).sum()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Has this thread, and what it starts from now on, fail in a system call (`seccomp(2)`).
#[expect(unsafe_code, reason = "no crate wraps seccomp(2)")]
pub(crate) fn forbid(call: libc::c_long) {
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = [
        // The number of the call is the first word of what a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    nix::sys::prctl::set_no_new_privs().unwrap();
    // SAFETY: the kernel reads the program, which outlives the call.
    let set =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Only a helper of the other tests.
#[test]
fn busy() {
    let Ok(order) = std::env::var(BUSY) else { return };
    let (delay, threads) = order.split_once(' ').unwrap();
    thread::sleep(Duration::from_millis(delay.parse().unwrap()));
    // Whatever becomes of the test that started this.
    let end = Instant::now() + Duration::from_secs(20);
    let burn = move || while Instant::now() < end {};
    match threads.parse::<usize>().unwrap() {
        0 => thread::spawn(burn).join().unwrap(),
        count => thread::scope(|scope| {
            (1..count).for_each(|_| drop(scope.spawn(burn)));
            burn();
        }),
    }
}
