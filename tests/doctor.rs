//! `emu doctor` from end to end: what it shows, what it changes, and that all of it is put back.
//!
//! What is changed here for a moment is the randomisation of addresses, and what only this process's children see.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Child;

use crate::common::{
    self, Ended, alone, as_written, assert_refused, child_called, emu, eventually, finish, inside, is_root,
    leave_out, run, skip, start, unwrapped, words,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const ASLR: &str = "/proc/sys/kernel/randomize_va_space";

fn aslr() -> String {
    fs::read_to_string(ASLR).expect("the kernel to have it").trim().to_owned()
}

fn doctor(line: &str) -> Ended {
    run(&mut emu(words(&format!("doctor {line}"))), "")
}

/// Whether the tests may turn the one knob of the kernel that they turn; says why not.
fn may_tune() -> bool {
    if !is_root() || aslr() == "0" {
        skip("needs root, and addresses that are random");
        return false;
    }
    true
}

/// Kills emu and its guardian, so that nobody is left to undo; returns the process ID.
fn kill_with_guardian(emu: Child) -> u32 {
    let mut guardian = None;
    // The kernel's list of children may leave one out while it changes.
    eventually("the guardian is found", || {
        guardian = child_called(emu.id(), "emu-guardian");
        guardian.is_some()
    });
    if let Some(guardian) = guardian {
        send(guardian, Signal::SIGKILL);
    }
    send(emu.id() as i32, Signal::SIGKILL);
    finish(emu).pid
}

/// A tuning of that knob that goes on, from when it is in force.
fn held() -> Child {
    let child = start(&mut emu(words("doctor tune --knobs aslr")));
    eventually("addresses are not random any more", || aslr() == "0");
    child
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("the process to be there");
}

#[test]
fn every_knob_is_shown_and_the_exit_code_tells_readiness() {
    let _alone = alone();
    let ended = doctor("show --json");
    let json = as_written("doctor", &ended.stdout);
    assert_eq!(json["schema"], 1);
    let knobs = json["knobs"].as_array().expect("a list");
    assert!(knobs.len() > 20, "{}", knobs.len());
    let disturbing = knobs.iter().any(|knob| knob["state"] == "tune" || knob["state"] == "hand");
    assert_eq!(json["ready"], !disturbing);
    assert_eq!(ended.code(), Some(if disturbing { 7 } else { 0 }), "{}", ended.stderr);
    for knob in knobs {
        for field in ["name", "found", "better", "why", "source", "takes"] {
            assert!(knob[field].as_str().is_some_and(|text| !text.is_empty()), "{knob}");
        }
    }
    let table = doctor("show");
    for knob in knobs {
        let name = knob["name"].as_str().expect("a name");
        assert!(table.stdout.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
    }
    assert!(table.stdout.lines().all(|line| line.chars().count() <= 80), "{}", table.stdout);
}

#[test]
fn named_knobs_are_shown_in_full_and_alone_decide() {
    let ended = doctor("show --knobs virtual");
    assert_eq!(ended.code(), Some(2));
    assert!(ended.stderr.contains("virtual"), "{}", ended.stderr);
    let ended = doctor("show --knobs hypervisor,rt-limit");
    assert_eq!(ended.code(), Some(0), "facts disturb nobody: {}", ended.stdout);
    for word in ["hypervisor\n", "rt-limit\n", "  found", "  better", "  why", "  source", "  change"] {
        assert!(ended.stdout.contains(word), "{word} in {}", ended.stdout);
    }
}

#[test]
fn a_command_runs_tuned_and_all_is_put_back() {
    if !may_tune() {
        return;
    }
    let _alone = alone();
    let before = aslr();
    let command =
        format!("doctor tune --knobs aslr,timer-slack -- sh -c cat␣{ASLR}␣/proc/self/timerslack_ns;exit␣9");
    let ended = run(&mut emu(words(&command)), "");
    assert_eq!((ended.code(), ended.stdout.as_str()), (Some(9), "0\n1\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("emu: aslr: found on"), "{}", ended.stderr);
    assert_eq!(aslr(), before);
    let quiet = run(&mut emu(words("doctor tune --quiet --knobs aslr -- sh -c kill␣-TERM␣$$")), "");
    assert_eq!(quiet.stderr, "");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&quiet.status), Some(15), "{quiet:?}");
    assert_eq!(aslr(), before);
}

#[test]
fn a_tuning_ends_by_time_and_by_signal() {
    if !may_tune() {
        return;
    }
    let _alone = alone();
    let before = aslr();
    let ended = doctor("tune --knobs aslr --for 100ms");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(aslr(), before);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let child = held();
        send(child.id() as i32, signal);
        let ended = finish(child);
        assert_eq!(ended.code(), Some(0), "{signal}: {}", ended.stderr);
        assert_eq!(aslr(), before, "{signal}");
    }
}

#[test]
fn a_killed_tuning_is_undone_by_its_guardian_or_by_reset() {
    if !may_tune() {
        return;
    }
    let _alone = alone();
    let before = aslr();
    let child = held();
    send(child.id() as i32, Signal::SIGKILL);
    let ended = finish(child);
    eventually("the guardian has put it back", || aslr() == before);
    assert!(ended.stderr.contains("the tuning for this machine ended because emu died"), "{}", ended.stderr);

    let pid = kill_with_guardian(held());
    assert_eq!(aslr(), "0", "nobody is left to put it back");
    let ended = doctor("reset");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, format!("restored: what emu {pid} had left of doctor tune for this machine\n"));
    assert_eq!(aslr(), before);
    assert_eq!(doctor("reset").stdout, "nothing to restore\n");
}

#[test]
fn a_look_at_the_machine_first_undoes_what_a_killed_emu_left() {
    if !may_tune() {
        return;
    }
    let _alone = alone();
    let before = aslr();
    let folder = tempfile::tempdir().expect("a folder");
    // A record that exists is refused when the machine has been looked at, before it is measured.
    let refused =
        ["noise", "timers", "measure cpu", "measure memory", "measure disk", "measure hpcc", "calibrate"]
            .map(|name| (format!("{name} --quick --out {}", folder.path().display()), false));
    let readers = ["methods --json", "info --json", "doctor show --knobs hypervisor --json"]
        .map(|line| (line.to_owned(), true));
    for (line, is_to_work) in refused.into_iter().chain(readers) {
        let pid = kill_with_guardian(held());
        let ended = run(&mut emu(words(&line)), "");
        assert_eq!(aslr(), before, "{line}");
        assert_eq!(ended.code() == Some(0), is_to_work, "{line}: {}", ended.stderr);
        let told = format!("note: restored what emu {pid} had left of doctor tune for this machine");
        assert!(unwrapped(&ended.stderr).contains(&told), "{line}: {}", ended.stderr);
        let is_json = serde_json::from_str::<Value>(&ended.stdout).is_ok();
        assert!(ended.stdout.is_empty() || is_json, "{line}: {}", ended.stdout);
    }
}

#[test]
fn what_somebody_else_has_changed_meanwhile_is_left_and_told() {
    if !may_tune() {
        return;
    }
    let _alone = alone();
    let before = aslr();
    let mut child = held();
    // It reads what it has written, first.
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("tuned until Ctrl-C")));
    fs::write(ASLR, "1").expect("root to write it");
    send(child.id() as i32, Signal::SIGTERM);
    let said = unwrapped(&said.collect::<Vec<_>>().join("\n"));
    let ended = finish(child);
    let now = aslr();
    fs::write(ASLR, &before).expect("root to write it");
    assert_eq!((ended.code(), now.as_str()), (Some(0), "1"), "{said}");
    assert!(said.contains("somebody else has changed it since"), "{said}");
}

#[test]
fn a_second_tuning_is_refused_and_an_emulation_is_not() {
    if !may_tune() {
        return;
    }
    let _alone = alone();
    let child = held();
    let second = doctor("tune --knobs timer-slack -- true");
    assert_refused(&second, 3, "a second tuning");
    assert!(unwrapped(&second.stderr).contains(&format!("by emu {}", child.id())), "{}", second.stderr);
    let info = run(&mut emu(["info"]), "");
    assert!(
        info.stdout.contains(&format!("emu {}: doctor tune (this machine)", child.id())),
        "{}",
        info.stdout
    );
    if common::some_method().is_some() {
        assert_eq!(run(&mut common::half("-- true"), "").code(), Some(0));
    } else {
        leave_out("no method works here");
    }
    send(child.id() as i32, Signal::SIGTERM);
    assert_eq!(finish(child).code(), Some(0));
}

#[test]
fn what_makes_no_sense_or_cannot_be_done_is_refused() {
    let _alone = alone();
    for (line, code) in [
        ("tune --quick -- true", 2),
        ("tune --json", 2),
        ("tune --cpus 1023 -- true", 2),
        ("show --cpus 1023", 2),
        ("tune --knobs load -- true", 3),
        ("tune --measure --knobs load", 3),
        ("tune --knobs timer-slack -- /nonexistent/program", 127),
        ("tune --knobs timer-slack -- /", 126),
    ] {
        assert_refused(&doctor(line), code, line);
    }
}

#[test]
fn a_knob_that_may_not_be_written_is_named() {
    if !is_root() {
        let ended = doctor("tune --knobs aslr -- true");
        assert_refused(&ended, 4, "without root");
        return;
    }
    if !may_tune() {
        return;
    }
    let _alone = alone();
    // As containers have it.
    let read_only = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys";
    let within = |line: &str| run(inside(read_only, common::EMU).args(words(line)), "");
    let before = aslr();
    let named = within("doctor tune --knobs aslr -- true");
    assert_refused(&named, 4, "a knob that is named");
    assert!(named.stderr.contains(ASLR), "{}", named.stderr);
    let slack = within("doctor tune --knobs timer-slack -- true");
    assert_eq!(slack.code(), Some(0), "{}", slack.stderr);
    let shown = within("doctor show --knobs aslr");
    assert_eq!(shown.code(), Some(7));
    assert!(shown.stdout.contains("not by this user"), "{}", shown.stdout);
    assert_eq!(aslr(), before);
}

#[test]
fn the_effect_of_a_knob_is_measured_in_pairs() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("record");
    let line =
        format!("doctor tune --measure --quick --json --seed 7 --knobs timer-slack --out {}", out.display());
    let ended = run(&mut emu(words(&line)), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let json = as_written("doctor-tune", &ended.stdout);
    let effects = json["result"]["effects"].as_array().expect("a list");
    assert_eq!(effects.len(), 2, "what computes, and what sleeps");
    for effect in effects {
        assert_eq!(effect["knob"], "timer-slack");
        let pairs = effect["pairs"].as_array().expect("a list");
        assert_eq!(pairs.len(), 6);
        assert!(pairs.iter().all(|pair| pair["found_ns"].as_array().is_some_and(|runs| runs.len() == 25)));
        assert!(effect["noise_ratio"]["low"].as_f64() <= effect["noise_ratio"]["high"].as_f64());
    }
    assert_eq!(common::samples(&out).len(), 2 * 6);
    for file in ["record.json", "doctor-tune.json", "doctor-tune.csv", "doctor-tune.svg"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let again = run(&mut emu(words(&line)), "");
    assert_refused(&again, 2, "a record that exists");
}
