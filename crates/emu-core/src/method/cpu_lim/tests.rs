//! Stopping and continuing the processes of a program, in a group and without one.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::setpriority_process;

use super::members::Sent;
use super::*;
use crate::cgroup::TaskGroup;
use crate::cgroup::testing::*;
use crate::duty::Stop;
use crate::host::{Controller, Host};
use crate::notes::Notes;
use crate::process::{Descendants, Stat, threads};
use crate::roots::Roots;
use crate::sys::Pid;
use crate::sys::affinity;
use crate::testing::Busy;
use crate::undo::Journal;

/// A stopper of a program that is in a group, and one of a program that is not. The program ends before the session.
fn for_each_source(test: impl Fn(&Program, &mut Stopper), script: &str) {
    for_each_session(
        |program, mut stopper, journal| {
            test(&program, &mut stopper);
            drop(stopper);
            drop(program);
            journal.undo_all().unwrap();
        },
        script,
    );
}

/// As [`for_each_source`], with the session for the test to end.
fn for_each_session(test: impl Fn(Program, Stopper, &Journal), script: &str) {
    for_each_version(Controller::Cpuacct, |host| {
        let program = Program::shell(script);
        let journal = journal(host);
        let zone = zone(&host.online(), processes(&[program.pid()]));
        let group = TaskGroup::create(host, &zone, &[Controller::Cpuacct], &journal).unwrap();
        let members = Members::of_group(Path::new(PROC), group, &journal).unwrap();
        test(program, Stopper::new(Path::new(PROC), members, 2, Notes::default()), &journal);
    });
    let dir = tempfile::tempdir().unwrap();
    let host = Host::detect(&Roots { state: dir.path().join("state"), ..Roots::system() }).unwrap();
    let program = Program::shell(script);
    let journal = journal(&host);
    let members = Members::of_family(Path::new(PROC), program.descendants(), &journal).unwrap();
    test(program, Stopper::new(Path::new(PROC), members, 2, Notes::default()), &journal);
}

#[test]
fn all_processes_are_stopped_and_continued() {
    for_each_source(
        |program, stopper| {
            let pids = program.wait_for(4);
            for _ in 0..3 {
                assert!(stopper.stop(0).unwrap().is_confirmed);
                wait_until(|| pids.iter().all(|&pid| state(pid) == Some(b'T')));
                stopper.resume().unwrap();
                wait_until(|| pids.iter().all(|&pid| state(pid) != Some(b'T')));
            }
        },
        "sleep 30 & sh -c 'sleep 30 & wait' & wait",
    );
}

#[test]
fn a_fork_storm_is_stopped_whole() {
    for_each_source(
        |program, stopper| {
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(20));
                assert!(stopper.stop(0).unwrap().is_confirmed);
                let mut descendants = program.descendants();
                // `D`: a parent that waits for the child it has made by vfork, which is stopped.
                let is_held = |stat: &Stat| matches!(stat.state, b'T' | b'Z' | b'X' | b'D');
                wait_until(|| {
                    descendants.look().unwrap();
                    descendants
                        .members()
                        .keys()
                        .all(|&pid| Stat::read(Path::new(PROC), pid).is_none_or(|s| is_held(&s)))
                });
                stopper.resume().unwrap();
            }
        },
        "while :; do (sleep 0.05 & sleep 0.02) & sleep 0.005; done",
    );
}

#[test]
fn what_others_have_stopped_is_not_continued() {
    for_each_session(
        |program, mut stopper, journal| {
            let pids = program.wait_for(2);
            let child = *pids.iter().find(|&&pid| pid != program.pid()).unwrap();
            signal(child, libc::SIGSTOP);
            wait_until(|| state(child) == Some(b'T'));
            stopper.stop(0).unwrap();
            wait_until(|| state(program.pid()) == Some(b'T'));
            stopper.resume().unwrap();
            wait_until(|| state(program.pid()) != Some(b'T'));
            assert_eq!(state(child), Some(b'T'));
            // Nor at the end, be it in the middle of a stop.
            stopper.stop(0).unwrap();
            wait_until(|| state(program.pid()) == Some(b'T'));
            stopper.release().unwrap();
            drop(stopper);
            journal.undo_all().unwrap();
            wait_until(|| state(program.pid()) != Some(b'T'));
            assert_eq!(state(child), Some(b'T'));
            signal(child, libc::SIGCONT);
            wait_until(|| state(child) != Some(b'T'));
        },
        "sleep 30 & wait",
    );
}

#[test]
fn a_stopped_member_does_not_keep_a_large_group_from_stopping() {
    for_each_session(
        |program, mut stopper, journal| {
            let pids = program.wait_for(41);
            let mut hold_but = |stopped: &[Pid], during: &dyn Fn()| {
                stopper.stop(0).unwrap();
                wait_until(|| pids.iter().all(|&pid| state(pid) == Some(b'T')));
                during();
                stopper.resume().unwrap();
                let others = || pids.iter().filter(|pid| !stopped.contains(pid));
                wait_until(|| others().all(|&pid| state(pid) != Some(b'T')));
                assert!(stopped.iter().all(|&pid| state(pid) == Some(b'T')));
            };
            // The first that is asked.
            signal(program.pid(), libc::SIGSTOP);
            wait_until(|| state(program.pid()) == Some(b'T'));
            hold_but(&[program.pid()], &|| ());
            signal(program.pid(), libc::SIGCONT);
            wait_until(|| state(program.pid()) != Some(b'T'));
            hold_but(&[program.pid()], &|| signal(program.pid(), libc::SIGTSTP));
            signal(program.pid(), libc::SIGCONT);
            drop(stopper);
            drop(program);
            journal.undo_all().unwrap();
        },
        "for i in $(seq 40); do sleep 30 & done; wait",
    );
}

#[test]
fn a_stop_from_the_terminal_that_comes_during_a_hold_lasts() {
    for_each_source(
        |program, stopper| {
            let pids = program.wait_for(2);
            let child = *pids.iter().find(|&&pid| pid != program.pid()).unwrap();
            stopper.stop(0).unwrap();
            wait_until(|| pids.iter().all(|&pid| state(pid) == Some(b'T')));
            signal(child, libc::SIGTSTP);
            stopper.resume().unwrap();
            wait_until(|| state(program.pid()) != Some(b'T'));
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(state(child), Some(b'T'));
            // And in the next round, too.
            stopper.stop(0).unwrap();
            stopper.resume().unwrap();
            assert_eq!(state(child), Some(b'T'));
            signal(child, libc::SIGCONT);
            wait_until(|| state(child) != Some(b'T'));
        },
        "sleep 30 & wait",
    );
}

#[test]
fn a_process_that_ends_while_held_or_free_is_forgotten() {
    for_each_source(
        |program, stopper| {
            let pids = program.wait_for(3);
            let children: Vec<_> = pids.into_iter().filter(|&pid| pid != program.pid()).collect();
            stopper.stop(0).unwrap();
            signal(children[0], libc::SIGKILL);
            stopper.resume().unwrap();
            signal(children[1], libc::SIGKILL);
            wait_until(|| {
                program.descendants().members().values().filter(|stat| !stat.has_ended()).count() == 1
            });
            assert!(stopper.stop(0).unwrap().is_confirmed);
            wait_until(|| state(program.pid()) == Some(b'T'));
            stopper.resume().unwrap();
        },
        "sleep 30 & sleep 30 & wait; exec sleep 30",
    );
}

#[test]
fn a_stopper_that_ends_leaves_nothing_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::detect(&Roots { state: dir.path().join("state"), ..Roots::system() }).unwrap();
    let program = Program::shell("sleep 30 & wait");
    let pids = program.wait_for(2);
    let journal = journal(&host);
    let stopper = || {
        let members = Members::of_family(Path::new(PROC), program.descendants(), &journal).unwrap();
        let mut stopper = Stopper::new(Path::new(PROC), members, 2, Notes::default());
        stopper.stop(0).unwrap();
        wait_until(|| pids.iter().all(|&pid| state(pid) == Some(b'T')));
        stopper
    };
    drop(stopper());
    wait_until(|| pids.iter().all(|&pid| state(pid) != Some(b'T')));
    // As if the process had been killed: the journal does it.
    std::mem::forget(stopper());
    journal.undo_all().unwrap();
    wait_until(|| pids.iter().all(|&pid| state(pid) != Some(b'T')));
}

#[test]
fn a_process_with_a_waiting_leader_is_stopped_by_a_busy_thread() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::detect(&Roots { state: dir.path().join("state"), ..Roots::system() }).unwrap();
    if host.kernel_version() < Some((6, 9)) {
        skip("pidfds of threads need Linux 6.9");
        return;
    }
    let program = Busy::aside();
    let pid = program.pids()[0];
    let tids = || threads(Path::new(PROC), pid);
    let computes = |tid: &Pid| *tid != pid && state(*tid) == Some(b'R');
    wait_until(|| tids().iter().any(computes));
    let busy: Vec<_> = tids().into_iter().filter(computes).collect();
    // The first thread has to wait for the other one, and long.
    let one = host.online().first().into_iter().collect();
    for tid in tids() {
        affinity::set(tid, &one).unwrap();
    }
    let descendants = Descendants::of(Path::new(PROC), &[pid]).unwrap();
    setpriority_process(rustix::process::Pid::from_raw(pid), 19).unwrap();
    let members = Members::of_family(Path::new(PROC), descendants, &journal(&host)).unwrap();
    let mut stopper = Stopper::new(Path::new(PROC), members, 1, Notes::default());
    stopper.census(0);
    for _ in 0..10 {
        stopper.set_busy(&busy);
        // What was used until then is not known to the nanosecond.
        let before = cpu_time(pid) + 20_000_000;
        stopper.stop(0).unwrap();
        wait_until(|| tids().iter().all(|&tid| state(tid) == Some(b'T')));
        assert!(cpu_time(pid) < before, "{} ms late", (cpu_time(pid) - before) / 1_000_000 + 20);
        stopper.resume().unwrap();
        wait_until(|| computes(&busy[0]));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_could_not_be_signalled_is_not_taken_for_gone() {
    for (errno, sent) in [
        (Errno::SRCH, Sent::Gone),
        (Errno::PERM, Sent::Refused),
        (Errno::INTR, Sent::Refused),
        (Errno::NOSPC, Sent::Refused),
    ] {
        assert_eq!(Sent::of(Err(errno)), sent, "{errno}");
    }
}
