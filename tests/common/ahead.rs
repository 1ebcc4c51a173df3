//! The tests of the rig in a process of their own, beside those that emulate.
//!
//! Tests that emulate go one at a time and mostly sleep. What they leave of the CPUs is enough for guests, which have the
//! kernel's idle policy and so delay nobody; their time is the count of their instructions.

use std::env;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process::marked;

/// In the environment of that process and of all that it starts.
const MARK: &str = "EMU_RIG_AHEAD=yes";

struct Ahead {
    tests: Mutex<Child>,
    /// What it writes: a line for each test that has ended.
    log: PathBuf,
}

static AHEAD: OnceLock<Option<Ahead>> = OnceLock::new();

/// Starts that process, once, where all tests are wanted: an argument chooses some. Without `chrt` they run in their turn.
pub(super) fn begin() {
    AHEAD.get_or_init(|| {
        if env::args_os().len() > 1 {
            return None;
        }
        let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rig.log");
        let file = File::create(&log).expect("a file for what the tests of the rig write");
        let own = env::current_exe().expect("the path of the tests");
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(own).args(["rig::", "--test-threads=2"]);
        let (name, value) = MARK.split_once('=').expect("a name and a value");
        command.env(name, value);
        command.stdin(Stdio::null()).stderr(file.try_clone().expect("another descriptor")).stdout(file);
        Some(Ahead { tests: Mutex::new(command.spawn().ok()?), log })
    });
}

/// Waits until that process has run a test, and fails if the test has. False where there is no such process.
pub(crate) fn has_run(test: &str) -> bool {
    let Some(Some(rig)) = AHEAD.get() else { return false };
    loop {
        let has_ended = rig.tests.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
        let has_ended = has_ended.expect("to wait for the tests of the rig").is_some();
        let lines = fs::read_to_string(&rig.log).expect("what they have written");
        if lines.lines().any(|line| line == format!("test {test} ... ok")) {
            return true;
        }
        assert!(!has_ended, "{test} has failed:\n{lines}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Until it is dropped the guests stand still: for what is judged against the load of the host.
pub(crate) struct Pause;

impl Pause {
    pub(crate) fn begin() -> Self {
        Self::signal(Signal::SIGSTOP);
        Self
    }

    fn signal(signal: Signal) {
        if AHEAD.get().is_some_and(Option::is_some) {
            for pid in marked(MARK) {
                // It may have ended meanwhile.
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        Self::signal(Signal::SIGCONT);
    }
}
