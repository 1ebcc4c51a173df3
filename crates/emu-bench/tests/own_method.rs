//! The example of a method of another crate: engaged, measured, and undone after its end by SIGKILL.
//!
//! Workers are processes of the running executable, so this test has its own `main` and no test harness.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests without a harness are not known as such")]

#[path = "../examples/own_method.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program of its own, whose main is not this one's")]
mod own_method;

use std::fs;
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use emu_bench::worker::serve_if_asked;
use emu_core::Pid;

/// Has this program engage the method on the process of that number, and wait to be killed.
const ENGAGE: &str = "EMU_TEST_ENGAGE";

fn main() -> ExitCode {
    if let Some(code) = serve_if_asked(&[emu_bench::workload::TASK]) {
        return code;
    }
    if let Ok(pid) = std::env::var(ENGAGE) {
        let _session = own_method::engage(pid.parse().unwrap()).unwrap();
        thread::sleep(Duration::from_secs(60));
        return ExitCode::FAILURE;
    }
    it_is_measured_as_what_it_is();
    println!("test it_is_measured_as_what_it_is ... ok");
    after_sigkill_nothing_stays_stopped();
    println!("test after_sigkill_nothing_stays_stopped ... ok");
    ExitCode::SUCCESS
}

fn it_is_measured_as_what_it_is() {
    let findings = own_method::measure().unwrap();
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    // It counts on its sleeps, and a busy machine lengthens either of them.
    let speed = finding.ratio.estimate;
    assert!((0.25..0.75).contains(&speed), "{finding:?}");
}

fn after_sigkill_nothing_stays_stopped() {
    let mut sleeper = Command::new("sleep").arg("120").spawn().unwrap();
    let pid = sleeper.id() as Pid;
    let mut holder =
        Command::new(std::env::current_exe().unwrap()).env(ENGAGE, pid.to_string()).spawn().unwrap();
    wait_until(&mut holder, || state(pid) == 'T');
    holder.kill().unwrap();
    holder.wait().unwrap();
    let begin = Instant::now();
    // The guardian may need some time on a busy machine; then nothing stops the process again.
    let mut free_since = Instant::now();
    while free_since.elapsed() < Duration::from_millis(300) {
        if state(pid) == 'T' {
            free_since = Instant::now();
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it stays stopped");
        thread::sleep(Duration::from_millis(2));
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

fn wait_until(holder: &mut Child, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert_eq!(holder.try_wait().unwrap(), None, "it has ended");
        assert!(begin.elapsed() < Duration::from_secs(20), "waited in vain");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The state letter of a process, after its name in parentheses.
fn state(pid: Pid) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next()).unwrap()
}
