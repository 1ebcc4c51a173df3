//! Children at their gates.

use super::*;
use crate::command::SlowCommand;
use nix::sys::wait::{WaitStatus, waitpid};

fn waiting(words: &[&str]) -> Gated {
    SlowCommand::new(words[0]).args(&words[1..]).gate().unwrap()
}

fn begun(mut gated: Gated) -> Pid {
    gated.begin().unwrap();
    gated.pid()
}

fn exit_code(pid: Pid) -> i32 {
    match waitpid(nix::unistd::Pid::from_raw(pid), None).unwrap() {
        WaitStatus::Exited(_, code) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_program_runs_only_when_the_gate_opens() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let script = format!("echo x > {}; exit 7", mark.display());
    let gated = waiting(&["sh", "-c", &script]);
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(!mark.exists());
    let pid = begun(gated);
    assert_eq!(exit_code(pid), 7);
    assert!(mark.exists());
}

#[test]
fn a_dropped_gate_ends_the_child_without_running_it() {
    let gated = waiting(&["sh", "-c", "exit 7"]);
    let pid = gated.pid();
    drop(gated);
    assert!(waitpid(nix::unistd::Pid::from_raw(pid), None).is_err());
}

fn gated(code: u8) -> Gated {
    waiting(&["sh", "-c", &format!("exit {code}")])
}

/// Fails where `work` takes for ever.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    told.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
}

#[test]
fn two_children_at_the_gate_are_ended_in_either_order() {
    in_time(|| {
        let (first, second) = (gated(1), gated(2));
        drop(first);
        drop(second);
        let (first, second) = (gated(1), gated(2));
        drop(second);
        drop(first);
    });
}

#[test]
fn one_of_two_children_begins_while_the_other_waits() {
    in_time(|| {
        let (first, second) = (gated(1), gated(2));
        assert_eq!(exit_code(begun(first)), 1);
        assert_eq!(exit_code(begun(second)), 2);
    });
}

#[test]
fn children_of_several_threads_begin_one_by_one() {
    in_time(|| {
        for _ in 0..10 {
            let spawners: Vec<_> =
                (0..8).map(|code| std::thread::spawn(move || (code, gated(code)))).collect();
            let children: Vec<_> = spawners.into_iter().map(|one| one.join().unwrap()).collect();
            for (code, child) in children {
                if code % 2 == 0 {
                    assert_eq!(exit_code(begun(child)), i32::from(code));
                }
            }
        }
    });
}

#[test]
fn a_child_that_was_killed_at_its_gate_is_reaped() {
    let mut gated = gated(0);
    let pid = nix::unistd::Pid::from_raw(gated.pid());
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
    while nix::sys::wait::waitid(
        nix::sys::wait::Id::Pid(pid),
        nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT,
    )
    .is_err()
    {}
    assert!(gated.begin().is_err());
    drop(gated);
    assert!(waitpid(pid, None).is_err());
}

#[test]
fn what_the_program_had_open_stays_open() {
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    // Some shells know the numbers 0 to 9 only.
    let script = format!("echo x >/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
    let gated = waiting(&["sh", "-c", &script]);
    assert_eq!(exit_code(begun(gated)), 0);
    let mut bytes = [0; 2];
    (&reader).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"x\n");
}

#[test]
fn missing_and_unexecutable_programs_are_told_apart() {
    let error = |program| waiting(&[program]).begin().unwrap_err();
    assert!(error("/nonexistent/x").is_not_found());
    assert_eq!(error("/nonexistent/x").to_string(), "cannot run `/nonexistent/x`");
    assert!(!error("/").is_not_found());
}
