//! `emu set` and `emu top`: what is at work is seen and changed.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{
    alone, assert_free, assert_nothing_left, assert_refused, assert_share, comm, emu, eventually, finish,
    in_some_attempt, is_near, methods, run, some_method, start, until_child, until_it_acts, words, zone_of,
};

/// A loop on CPU 0, at 20 % at first.
struct Looping {
    emu: Option<Child>,
    program: i32,
}

impl Looping {
    fn start(method: &str) -> Self {
        let line = format!("run --speed 20% --cpus 0 -m {method} -- sh -c while␣:;␣do␣:;␣done");
        let mut looping = Self { emu: Some(start(&mut emu(words(&line)))), program: 0 };
        // It was a shell before.
        eventually("emu runs", || comm(looping.id() as i32).as_deref() == Some("emu"));
        looping.program = until_child(looping.id(), "sh");
        until_it_acts(looping.id());
        looping
    }

    fn id(&self) -> u32 {
        self.emu.as_ref().unwrap().id()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id() as i32), signal).unwrap();
    }

    /// Ends it; returns what its emu has said.
    fn end(mut self) -> String {
        self.signal(Signal::SIGTERM);
        let ended = finish(self.emu.take().unwrap());
        assert_nothing_left(ended.pid);
        ended.stderr
    }
}

impl Drop for Looping {
    /// A test that fails does not keep CPU 0 for itself.
    fn drop(&mut self) {
        if let Some(mut emu) = self.emu.take() {
            let _ = emu.kill();
            let _ = emu.wait();
            let _ = kill(Pid::from_raw(self.program), Signal::SIGKILL);
        }
    }
}

/// What is asked of its CPU.
fn asked(zone: &Value) -> f64 {
    zone["status"]["cpus"][0]["asked_share"].as_f64().unwrap_or_else(|| panic!("no zone: {zone}"))
}

#[test]
fn a_speed_set_anew_is_delivered_by_each_method() {
    let _alone = alone();
    for method in methods() {
        let looping = Looping::start(&method);
        let ended = run(&mut emu(words(&format!("set {} --speed 70%", looping.program))), "");
        assert_eq!(ended.code(), Some(0), "{method}: {}", ended.stderr);
        assert_share(looping.program, 0.7, &method);
        in_some_attempt(|| {
            let zone = zone_of(looping.id());
            assert!((asked(&zone) - 0.7).abs() < 1e-9, "{method}: {zone}");
            // Not of the time before. On a busy machine it may not be told.
            let delivered = zone["status"]["delivered"]["share"].as_f64();
            if delivered.is_none_or(|share| is_near(share, 0.7)) {
                Ok(())
            } else {
                Err(format!("{method}: {zone}"))
            }
        });
        let said = looping.end();
        assert!(said.contains("the speed was set to 70%"), "{method}: {said}");
    }
}

#[test]
fn what_cannot_be_set_is_refused_and_changes_nothing() {
    let _alone = alone();
    let Some(method) = some_method() else { return };
    let looping = Looping::start(&method);
    let program = looping.program;
    for (line, code) in [
        (format!("set {program} --speed 900=40%"), 2),
        (format!("set {program} --speed 99GHz"), 3),
        ("set 1 --speed 40%".into(), 2),
        (format!("set {} --speed 40%", std::process::id()), 2),
    ] {
        assert_refused(&run(&mut emu(words(&line)), ""), code, &line);
    }
    assert!((asked(&zone_of(looping.id())) - 0.2).abs() < 1e-9);
    looping.end();
}

#[test]
fn a_speed_too_low_for_stops_is_refused_later_too() {
    let _alone = alone();
    for method in methods().into_iter().filter(|one| ["cpu-freeze", "cpu-lim"].contains(&one.as_str())) {
        let looping = Looping::start(&method);
        let ended = run(&mut emu(words(&format!("set {} --speed 0.01%", looping.program))), "");
        assert_refused(&ended, 3, &method);
        assert!(ended.stderr.contains("ask for 0.1"), "{}", ended.stderr);
        assert!((asked(&zone_of(looping.id())) - 0.2).abs() < 1e-9);
        looping.end();
    }
}

#[test]
fn what_an_emu_stops_runs_while_the_emu_is_stopped() {
    let _alone = alone();
    for method in methods() {
        let looping = Looping::start(&method);
        assert_share(looping.program, 0.2, &method);
        looping.signal(Signal::SIGSTOP);
        // The guardian looks now and then.
        thread::sleep(Duration::from_millis(2000));
        let what = format!("{method}, stopped");
        // With fracas the kernel goes on.
        if method == "fracas" {
            assert_share(looping.program, 0.2, &what);
        } else {
            assert_free(looping.program, &what);
        }
        looping.signal(Signal::SIGCONT);
        assert_share(looping.program, 0.2, &format!("{method}, continued"));
        let said = looping.end();
        assert!(said.contains("is not kept until emu goes on"), "{method}: {said}");
        let is_explained = said.replace("\nemu: ", " ").contains("emu was stopped, or got no CPU, for");
        assert_eq!(is_explained, method != "fracas", "{method}: {said}");
    }
}

#[test]
fn an_emu_that_is_stopped_is_shown_as_one_that_does_not_answer() {
    let _alone = alone();
    let Some(method) = some_method() else { return };
    let looping = Looping::start(&method);
    looping.signal(Signal::SIGSTOP);
    let shown = run(&mut emu(["top"]), "");
    let refused = run(&mut emu(words(&format!("set {} --speed 40%", looping.program))), "");
    looping.signal(Signal::SIGCONT);
    assert_eq!(shown.code(), Some(0), "{}", shown.stderr);
    assert!(shown.stdout.contains("does not answer"), "{}", shown.stdout);
    assert_refused(&refused, 3, "an emu that is stopped");
    looping.end();
}

#[test]
fn what_is_shown_live_ends_with_its_reader() {
    let mut top = start(&mut emu(words("top --json --every 20ms")));
    let mut line = String::new();
    BufReader::new(top.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    eventually("it ends", || top.try_wait().unwrap().is_some());
    assert_eq!(finish(top).code(), Some(0));
}
