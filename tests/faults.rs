//! Each system call that a run makes fails once: emu ends, says so, and at most one further command leaves nothing.
//!
//! `tests/campaign faults` tries as many as are asked for; the test that always runs tries a few.

mod inject;

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::campaign::{Random, Table, Wanted, kill_marked, left_of};
use crate::common::{alone, child_called, emu, methods, run, skip, words};
use inject::{Counted, Fault, Injector, Seen};

/// How long emu may take, on a machine that is shared and asks for every call.
const SOON: Duration = Duration::from_secs(20);

/// Errors that are let happen, by what a kernel, a sandbox or a full disk answers.
const ERRORS: [(&str, i32); 5] = [
    ("EPERM", libc::EPERM),
    ("EINTR", libc::EINTR),
    ("ENOSPC", libc::ENOSPC),
    ("EBUSY", libc::EBUSY),
    ("ENOENT", libc::ENOENT),
];

/// How the program of a run ends by itself.
const OWN_CODE: i32 = 7;

const PROGRAM: &str = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; exit 7";

/// A run has ended.
struct Outcome {
    /// `None` where it had to be killed.
    status: Option<ExitStatus>,
    stderr: String,
    seen: Seen,
    /// What is wrong about it.
    faults: Vec<String>,
}

#[test]
fn a_call_that_fails_once_is_told_and_leaves_nothing() {
    campaign(Counted::All, Wanted::short(12));
    campaign(Counted::ControlWrites, Wanted::short(8));
}

#[test]
#[ignore = "a campaign of minutes: tests/campaign faults"]
fn calls_that_fail_are_told_and_leave_nothing() {
    campaign(Counted::All, Wanted::from_environment());
}

#[test]
#[ignore = "a campaign of minutes: tests/campaign writes"]
fn control_files_that_refuse_are_told_and_leave_nothing() {
    campaign(Counted::ControlWrites, Wanted::from_environment());
}

fn campaign(counted: Counted, wanted: Wanted) {
    let _alone = alone();
    let methods = methods();
    if methods.is_empty() {
        skip("no method works here");
        return;
    }
    let mut random = Random(wanted.seed);
    let calls: Vec<u64> =
        methods.iter().map(|method| one_run(method, counted, None, &mut random).seen.calls).collect();
    let mut table = Table::new(&["method", "calls", "tried", "own end", "refused", "killed", "wrong"]);
    let mut wrong = Vec::new();
    let mut counts = vec![[0; 5]; methods.len()];
    for _ in 0..wanted.count {
        let which = random.below(methods.len() as u64) as usize;
        let fault = Fault {
            number: random.below(calls[which].max(1)),
            errno: ERRORS[random.below(ERRORS.len() as u64) as usize].1,
        };
        let outcome = one_run(&methods[which], counted, Some(fault), &mut random);
        let place = match outcome.status.map(|status| status.code()) {
            Some(Some(OWN_CODE)) => 1,
            Some(Some(_)) => 2,
            Some(None) | None => 3,
        };
        counts[which][0] += 1;
        counts[which][place] += 1;
        if !outcome.faults.is_empty() {
            counts[which][4] += 1;
            let error = ERRORS.iter().find(|(_, errno)| *errno == fault.errno).map_or("", |(name, _)| *name);
            let call = outcome.seen.failed.as_deref().unwrap_or("no call");
            let Outcome { faults, stderr, status, .. } = &outcome;
            wrong.push(format!(
                "{}, {error} to {call}, the {}th: {faults:?}, {status:?}: {stderr}",
                methods[which], fault.number
            ));
        }
    }
    for ((method, calls), counts) in methods.iter().zip(calls).zip(counts) {
        table.row(
            [method.clone(), calls.to_string()].into_iter().chain(counts.map(|count| count.to_string())),
        );
    }
    println!("seed {}\n{table}", wanted.seed);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs emu with a call that fails, and one further command.
fn one_run(method: &str, counted: Counted, fault: Option<Fault>, random: &mut Random) -> Outcome {
    let mark = format!("EMU_CRASH_MARK={}-fault-{}", std::process::id(), random.below(1 << 30));
    let (name, value) = mark.split_once('=').expect("a mark");
    let said = tempfile::NamedTempFile::new().expect("a file for what emu says");
    let mut command = emu(words(&format!("run --speed 30% --cpus 0 --method {method} -- sh -c")));
    command.arg(PROGRAM).env(name, value).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(said.reopen().expect("the file to be opened again"));
    let injector = Injector::attach(&mut command, counted, fault);
    let mut child = command.spawn().expect("emu to start");
    drop(command);
    let (pid, begin) = (child.id(), Instant::now());
    let mut faults = Vec::new();
    let status = loop {
        match child.try_wait().expect("to wait for emu") {
            Some(status) => break Some(status),
            None if begin.elapsed() > SOON => {
                faults.push(format!("it has not ended in {SOON:?}"));
                let guardian = child_called(pid, "emu-guardian");
                for one in guardian.into_iter().chain([pid as i32]) {
                    let _ = kill(Pid::from_raw(one), Signal::SIGKILL);
                }
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let stderr = std::fs::read_to_string(said.path()).unwrap_or_default();
    match status.and_then(|status| status.code()) {
        Some(OWN_CODE) => {}
        Some(0) => faults.push("it has ended with 0, which the program never does".into()),
        // Rust's own start ends a program whose first poll(2) fails.
        None if status.is_some_and(|status| status.signal() == Some(Signal::SIGABRT as i32))
            && stderr.is_empty() => {}
        _ if stderr.is_empty() => faults.push("it has ended without a word".into()),
        _ => {}
    }
    let left = left_of(pid, &mark);
    if !left.is_empty() {
        let restored = run(&mut emu(["restore"]), "");
        if restored.code() != Some(0) {
            faults.push(format!("restore ended with {:?}: {}", restored.code(), restored.stderr));
        }
        faults.extend(left_of(pid, &mark));
    }
    kill_marked(&mark);
    let seen = injector.end();
    Outcome { status, stderr, seen, faults }
}
