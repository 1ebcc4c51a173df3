//! `emu ci`: what fails only when slow is found, and nothing of a run is left.

use std::fs;
use std::path::Path;

use crate::common::{
    Ended, alone, as_written, assert_nothing_left, assert_refused, can_emulate, emu, eventually, run,
    some_method, state, unwrapped, words,
};

/// A suite of two tests. One has a limit of 1 s for work that takes between a thirtieth and a fifth of that at full speed.
const SUITE: &str = "\
work='i=0; while [ $i -lt 80000 ]; do i=$((i+1)); done'
timeout 1 sh -c \"$work\" && late= || late='<failure message=\"too late\"/>'
echo \"<testsuite name='s'><testcase name='fine'/><testcase name='in time'>$late</testcase></testsuite>\" >junit.xml
[ -z \"$late\" ]";

/// `emu ci` in this folder, on CPU 0, with these further words.
fn ci(folder: &Path, line: &str) -> Ended {
    let method = some_method().unwrap();
    let cpus = if line.contains("--cpus") { "" } else { "--cpus 0" };
    let mut command = emu(words(&format!("ci --method {method} {cpus} {line}")));
    run(command.current_dir(folder), "")
}

#[test]
fn a_timeout_that_only_a_slow_machine_meets_is_found() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("suite"), SUITE).unwrap();
    let outputs = "--junit junit.xml --merged all.xml --summary summary.md --json ci.json";
    let ended = ci(folder.path(), &format!("--speeds 100%,2% --reps 1 {outputs} -- sh suite"));
    assert_eq!(ended.code(), Some(8), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
    assert!(unwrapped(&ended.stderr).contains("fails only when slow: s::in time (100%: 0 of 1, 2%: 1 of 1)"));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let json = as_written("ci", &read("ci.json"));
    assert_eq!(json["verdict"], "only-when-slow");
    assert_eq!(json["tests"]["s::in time"]["verdict"], "only-when-slow");
    assert_eq!(json["tests"]["s::in time"]["message"], "too late");
    assert_eq!(json["tests"]["s::fine"]["verdict"], "nowhere");
    let outcomes: Vec<_> = json["runs"].as_array().unwrap().iter().map(|run| &run["outcome"]).collect();
    assert_eq!(outcomes, ["passed", "failed"]);
    assert_eq!(json["runs"][1]["exit"]["code"], 1);
    let all = read("all.xml");
    assert!(all.contains("fails in 1 of 1 runs at 2%: too late") && !all.contains("runs at 100%"), "{all}");
    let summary = read("summary.md");
    assert!(summary.contains("| s::in time | 0 of 1 fail | 1 of 1 fail | too late |"), "{summary}");
    assert_nothing_left(ended.pid);

    // The summary of an earlier step stays, and what passes everywhere is no failure.
    let ended = ci(folder.path(), "--speeds 100%,50% --reps 1 --summary summary.md --quiet -- true");
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(0), ""));
    assert!(read("summary.md").starts_with(&summary) && read("summary.md").contains("passes at every speed"));
}

#[test]
fn a_run_that_takes_too_long_is_ended_with_all_it_began() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let hang = "setsid sleep 300 & echo $! >child; wait";
    fs::write(folder.path().join("hang"), hang).unwrap();
    let ended = ci(folder.path(), "--speeds 100%,50% --reps 1 --timeout 2s --json ci.json -- sh hang");
    // It does so at full speed already, and is not tried at others.
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    let json = as_written("ci", &fs::read_to_string(folder.path().join("ci.json")).unwrap());
    assert_eq!(
        (&json["runs"][0]["outcome"], json["runs"].as_array().unwrap().len()),
        (&"timed-out".into(), 1)
    );
    let child = fs::read_to_string(folder.path().join("child")).unwrap().trim().parse().unwrap();
    eventually("what it began has ended", || state(child).is_none_or(|state| state == 'Z'));
    assert_nothing_left(ended.pid);
}

#[test]
fn what_cannot_be_compared_or_read_is_refused() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (line, code, part) in [
        ("--speeds 50% -- touch ran", 2, "one speed only"),
        ("--speeds 25%,50% -- touch ran", 2, "50% is not slower than 25%"),
        ("--speeds 100%,50%,100% -- touch ran", 2, "100% is not slower than 100%"),
        ("--speeds 100%,0 -- touch ran", 2, "0"),
        ("--reps 0 -- touch ran", 2, "`0`"),
        ("--cpus 8191 -- touch ran", 2, "8191"),
        ("--json /no/such/x -- touch ran", 2, "/no/such/x"),
        ("--summary /no/such/x -- touch ran", 2, "/no/such/x"),
        ("-- /no/such/program", 127, "/no/such/program"),
    ] {
        let ended = ci(folder.path(), line);
        assert_refused(&ended, code, line);
        assert!(unwrapped(&ended.stderr).contains(part), "{line}: {}", ended.stderr);
        assert!(!folder.path().join("ran").exists(), "{line}");
    }
    let speeds = "--quiet --speeds 100%,50% --reps 1";
    for (command, part) in
        [("true", "not written x.xml"), ("cp␣bad␣x.xml", "x.xml, line 2: expected 'testcase' tag")]
    {
        fs::write(folder.path().join("bad"), "<testsuite>\n<testcase name='a'></testsuite>").unwrap();
        let ended = ci(folder.path(), &format!("{speeds} --junit x.xml -- sh -c {command}"));
        assert_refused(&ended, 2, command);
        assert!(unwrapped(&ended.stderr).contains(part), "{command}: {}", ended.stderr);
    }
}
