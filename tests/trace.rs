//! `--trace` and `emu trace`: a speed that changes with time.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{
    alone, as_written, assert_nothing_left, assert_refused, can_emulate, emu, finish, in_some_attempt,
    is_near, methods, run, start, until_child, until_it_acts, words,
};

/// Half a second at each speed, and two steps of 100 ms.
const TRACE: &str = "time_s,cpu,speed\n0,*,80%\n0.5,*,30%\n1,*,60%\n1.1,*,20%\n1.2,*,50%\n1.7,*,end\n";

const SHARES: [f64; 5] = [0.8, 0.3, 0.6, 0.2, 0.5];

/// A loop, for so many seconds.
const LOOP: &str = "timeout 1.65 sh -c while␣:;␣do␣:;␣done";

/// A folder with the trace.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("trace.csv"), TRACE).unwrap();
    dir
}

fn json(path: &Path) -> Value {
    as_written("run", &fs::read_to_string(path).unwrap())
}

/// Whether each step has come in its time, and was delivered where that is known.
fn judged(kept: &Value) -> Result<(), String> {
    let steps = kept["steps"].as_array().unwrap();
    let asked: Vec<_> = steps.iter().map(|step| step["cpus"][0]["asked_share"].as_f64().unwrap()).collect();
    assert_eq!(asked, SHARES, "{kept}");
    for (step, begin) in steps.iter().zip([0.0, 0.5, 1.0, 1.1, 1.2]) {
        let from = step["from_ns"].as_f64().unwrap() * 1e-9;
        if !(begin..begin + 0.08).contains(&from) {
            return Err(format!("late: {step}"));
        }
    }
    // Of each long step it is known, as the loop never rests.
    for step in &steps[..2] {
        let [share, asked] = ["share", "asked"].map(|key| step["delivered"][key].as_f64());
        if !share.zip(asked).is_some_and(|(share, asked)| is_near(share, asked)) {
            return Err(format!("not delivered: {step}"));
        }
    }
    Ok(())
}

#[test]
fn each_step_of_a_trace_is_delivered_by_each_method() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let dir = folder();
    let [trace, kept, figure] = ["trace.csv", "run.json", "run.svg"].map(|name| dir.path().join(name));
    for method in methods() {
        let line =
            format!("run -m {method} --cpus 0 --trace {} --json {} --", trace.display(), kept.display());
        in_some_attempt(|| {
            let ended = run(&mut emu(words(&format!("{line} {LOOP}"))), "");
            assert_eq!(ended.code(), Some(124), "{method}: {}", ended.stderr);
            assert_nothing_left(ended.pid);
            judged(&json(&kept)).map_err(|why| format!("{method}: {why}"))
        });
    }
    let line = format!("trace show {} --figure {}", kept.display(), figure.display());
    let ended = run(&mut emu(words(&line)), "");
    // A row for each step, at least: where the loop has changed its CPU, for the whole of it, too.
    assert!(ended.code() == Some(0) && ended.stdout.lines().count() > SHARES.len(), "{}", ended.stdout);
    assert!(fs::read_to_string(figure).unwrap().contains("delivered, CPU 0"));
}

#[test]
fn a_trace_sets_the_speed_alone_and_ends_an_attach() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let dir = folder();
    let trace = dir.path().join("trace.csv");
    let line = format!("run --trace {} --trace-end loop --cpus 0 -- sleep 600", trace.display());
    let looping = start(&mut emu(words(&line)));
    let program = until_child(looping.id(), "sleep");
    until_it_acts(looping.id());
    let ended = run(&mut emu(words(&format!("set {program} --speed 50%"))), "");
    assert_refused(&ended, 2, "follows");
    let attach =
        format!("attach --pid {} --cpus 1 --trace {} --trace-end full", std::process::id(), trace.display());
    // The tests themselves are an ancestor of this emu.
    assert_refused(&run(&mut emu(words(&attach)), ""), 2, "emu itself");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(program), nix::sys::signal::Signal::SIGKILL).unwrap();
    assert_nothing_left(finish(looping).pid);

    let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let line = format!("attach --pid {} --cpus 0 --trace {} --trace-end full", sleeper.id(), trace.display());
    let ended = run(&mut emu(words(&line)), "");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("was set 5 times"), "{}", ended.stderr);
}

#[test]
fn what_is_no_trace_is_refused_before_anything_begins() {
    let dir = folder();
    let write = |lines: &str| {
        let path = dir.path().join("bad.csv");
        fs::write(&path, format!("time_s,cpu,speed\n{lines}\n")).unwrap();
        path
    };
    for (lines, rest, told) in [
        ("0,*,40%\n0.5,*,NaN", "", "line 3"),
        ("0,*,40%\n0.5,*,50%\n0.2,*,60%", "", "line 4"),
        ("0,*,40%\n0.001,*,50%", "", "shorter than 10 ms"),
        ("1,*,40%", "", "begin at time 0"),
        ("0,*,40%\n1,*,50%", "--trace-end loop", "where it ends"),
        ("0,*,40%\n1,1023,50%", "--cpus 0", "names CPUs 1023"),
    ] {
        let line = format!("run --trace {} {rest} -- true", write(lines).display());
        assert_refused(&run(&mut emu(words(&line)), ""), 2, told);
    }
    let none = "run --speed 40% --trace-end loop -- true";
    assert_refused(&run(&mut emu(words(none)), ""), 2, "for a trace");
    for line in ["run --trace /nowhere -- true", "trace show /nowhere"] {
        let ended = run(&mut emu(words(line)), "");
        assert!(matches!(ended.code(), Some(2 | 4 | 125)), "{line}: {}", ended.stderr);
        assert!(ended.stderr.contains("/nowhere"), "{}", ended.stderr);
    }
    assert_refused(&run(&mut emu(words("trace record x --every 5ms")), ""), 2, "too short");
    let nowhere = run(&mut emu(words("trace record /nowhere/x --for 50ms --every 20ms")), "");
    assert_refused(&nowhere, 2, "said before it is recorded");
}

#[test]
fn what_is_recorded_can_be_followed() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("own.csv");
    let line = format!("trace record {} --for 300ms --every 50ms --cpus 0 --quiet", trace.display());
    let ended = run(&mut emu(words(&line)), "");
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(0), ""));
    let ended = run(&mut emu(words(&format!("trace show {}", trace.display()))), "");
    assert_eq!((ended.code(), ended.stdout.lines().count()), (Some(0), 7), "{}", ended.stdout);
    if can_emulate() {
        let ended = run(&mut emu(words(&format!("run --trace {} -- true", trace.display()))), "");
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    }
}
