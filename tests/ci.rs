//! `emu ci`: what fails only when slow is found, and nothing of a run is left.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    EMU, Ended, alone, as_written, assert_nothing_left, assert_refused, can_emulate, emu, eventually, finish,
    inside, is_root, run, skip, some_method, start, state, until_child, unwrapped, words,
};
use crate::podman::{self, podman};
use crate::rig::fetch;

/// A suite of three tests. One has a limit of 1 s for work that takes between a thirtieth and a fifth of that at full speed, one
/// looks for the result of half of it after 0.2 s, and does not wait.
const SUITE: &str = "\
work() { timeout 1 sh -c \"i=0; while [ \\$i -lt $1 ]; do i=\\$((i+1)); done\"; }
work 80000 && late= || late='<failure message=\"too late\"/>'
rm -f result; { work 40000 && echo >result; } &
sleep 0.2; [ -e result ] && early= || early='<failure message=\"too early\"/>'
echo \"<testsuite name='s'><testcase name='fine'/><testcase name='in time'>$late</testcase>
  <testcase name='in order'>$early</testcase></testsuite>\" >junit.xml
[ -z \"$late$early\" ]";

/// `emu ci` in this folder, on CPU 0, with these further words.
fn ci(folder: &Path, line: &str) -> Ended {
    let method = some_method().unwrap();
    let cpus = if line.contains("--cpus") { "" } else { "--cpus 0" };
    let mut command = emu(words(&format!("ci --method {method} {cpus} {line}")));
    run(command.current_dir(folder), "")
}

#[test]
fn a_race_and_a_timeout_that_only_a_slow_machine_meets() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("suite"), SUITE).unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let outputs = "--junit junit.xml --merged all.xml --summary summary.md --json ci.json";
    for _ in 0..3 {
        let _ = fs::remove_file(folder.path().join("summary.md"));
        let ended = ci(folder.path(), &format!("--speeds 100%,2% --reps 1 {outputs} -- sh suite"));
        assert_eq!(ended.code(), Some(8), "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
        let said = unwrapped(&ended.stderr);
        assert!(said.contains("fails only when slow: s::in time (100%: 0 of 1, 2%: 1 of 1)"), "{said}");
        let json = as_written("ci", &read("ci.json"));
        assert_eq!((&json["verdict"], &json["is_complete"]), (&"only-when-slow".into(), &true.into()));
        for (test, verdict, message) in [
            ("s::in time", "only-when-slow", Some("too late")),
            ("s::in order", "only-when-slow", Some("too early")),
            ("s::fine", "nowhere", None),
        ] {
            let judged = &json["tests"][test];
            assert_eq!(
                (&judged["verdict"], &judged["message"]),
                (&verdict.into(), &message.into()),
                "{test}"
            );
        }
        let outcomes: Vec<_> = json["runs"].as_array().unwrap().iter().map(|run| &run["outcome"]).collect();
        assert_eq!(outcomes, ["passed", "failed"]);
        assert_eq!(json["runs"][1]["exit"]["code"], 1);
        let all = read("all.xml");
        assert!(
            all.contains("fails in 1 of 1 runs at 2%: too late") && !all.contains("runs at 100%"),
            "{all}"
        );
        let summary = read("summary.md");
        assert!(summary.contains("| s::in time | 0 of 1 fail | 1 of 1 fail | too late |"), "{summary}");
        assert_nothing_left(ended.pid);
    }

    // The summary of an earlier step stays, and what passes everywhere is no failure.
    let summary = read("summary.md");
    let ended = ci(folder.path(), "--speeds 100%,50% --reps 1 --summary summary.md --quiet -- true");
    assert_eq!((ended.code(), ended.stderr.as_str()), (Some(0), ""));
    assert!(read("summary.md").starts_with(&summary) && read("summary.md").contains("passes at every speed"));
}

/// What `emu ci` in this folder has measured before it ended.
fn written(folder: &Path) -> serde_json::Value {
    as_written("ci", &fs::read_to_string(folder.join("ci.json")).unwrap())
}

#[test]
fn junit_of_a_run_that_died_while_it_wrote_costs_nothing_else() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("all")).unwrap();
    // The first run is as it should be; the second leaves half a file, and the third, which passes, too.
    let suite = "\
echo x >>runs; run=$(wc -l <runs)
echo \"<testsuite><testcase name='a'/></testsuite>\" >all/a.xml
[ $run -eq 1 ] && end='/></testsuite>' || end=
printf \"<testsuite>\\n<testcase name='b'$end\" >all/b.xml
[ $run -ne 2 ] || kill -ABRT $$";
    fs::write(folder.path().join("suite"), suite).unwrap();
    let outputs = "--junit all --merged all.xml --summary summary.md --json ci.json";
    let ended = ci(folder.path(), &format!("--speeds 100%,50% --reps 2 {outputs} -- sh suite"));
    assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
    let said = unwrapped(&ended.stderr);
    let broken = "cannot use the JUnit XML in all/b.xml, line 1: the root node was opened";
    assert!(
        said.contains(&format!("note: {broken}")) && said.contains(&format!("error: {broken}")),
        "{said}"
    );
    let json = written(folder.path());
    let outcomes: Vec<_> = json["runs"].as_array().unwrap().iter().map(|run| &run["outcome"]).collect();
    assert_eq!(outcomes, ["passed", "failed", "passed"]);
    assert_eq!(json["is_complete"], false);
    let passed = |test: &str, speed: usize| json["tests"][test]["by_speed"][speed]["passed"].as_u64();
    let seen = [passed("a", 0), passed("b", 0), passed("a", 1), passed("b", 1)];
    assert_eq!(seen, [Some(2), Some(1), Some(1), Some(0)]);
    for file in ["all.xml", "summary.md"] {
        assert!(folder.path().join(file).exists(), "{file}");
    }
    assert_nothing_left(ended.pid);
}

#[test]
fn what_was_measured_before_an_interrupt_is_written() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let suite = "[ -e ran ] || { touch ran; exit; }; touch waits; exec sleep 300";
    fs::write(folder.path().join("suite"), suite).unwrap();
    let begin = |line: &str| {
        let line = format!("--method {} --cpus 0 --json ci.json {line} -- sh suite", some_method().unwrap());
        let child = start(emu(words(&format!("ci {line}"))).current_dir(folder.path()));
        eventually("a run waits", || folder.path().join("waits").exists());
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        let ended = finish(child);
        assert_eq!(ended.status.signal(), Some(Signal::SIGINT as i32), "{}", ended.stderr);
        assert_nothing_left(ended.pid);
        ended
    };
    let ended = begin("--speeds 100%,50% --reps 2");
    assert!(unwrapped(&ended.stderr).contains("Not complete. The command passes in every run"), "{ended:?}");
    let json = written(folder.path());
    assert_eq!((json["runs"].as_array().unwrap().len(), &json["is_complete"]), (1, &false.into()));

    // Where there is nothing yet, nothing is written.
    for file in ["waits", "ci.json"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    begin("--speeds 100%,50%");
    assert!(!folder.path().join("ci.json").exists());
}

/// A loop that takes half a second or more.
const LOOP: &str = "i=0;␣while␣[␣$i␣-lt␣300000␣];␣do␣i=$((i+1));␣done";

#[test]
fn in_a_container_the_cpus_are_said_to_be_the_hosts() {
    let _alone = alone();
    if !is_root() {
        skip("only root can have another namespace");
        return;
    }
    if !can_emulate() {
        return;
    }
    let line = format!("ci --method {} --cpus 0 --speeds 100%,50% --reps 1 -- true", some_method().unwrap());
    let mut contained = inside(":", "unshare");
    let ended = run(contained.args(["--uts", EMU]).args(words(&line)).env("container", "podman"), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(unwrapped(&ended.stderr).contains("the CPUs are the host's"), "{}", ended.stderr);
}

#[test]
fn in_a_container_it_slows_with_what_it_may() {
    let _alone = alone();
    if !is_root() {
        skip("it needs root");
        return;
    }
    if let Err(why) = fetch(&["containers"]) {
        skip(&why);
        return;
    }
    let root = podman::root();
    let command = format!(
        "-v {EMU}:/bin/emu:ro -v /lib:/lib:ro -v /lib64:/lib64:ro {} /bin/emu ci --cpus 0 --speeds 100%,50% --reps 1",
        podman::options(root.path())
    );
    for (rights, best) in [("", "cpu-lim"), ("--cap-add SYS_NICE", "cpu-hogs")] {
        let ended = podman(&format!("run --rm {rights} {command} --json /ci.json -- sh -c {LOOP}"));
        assert_eq!(ended.code(), Some(0), "{rights}: {}", ended.stderr);
        assert!(unwrapped(&ended.stderr).contains("the CPUs are the host's"), "{}", ended.stderr);
        let slow = &written(root.path())["runs"][1];
        // Real-time tasks need a budget of their group, too, where the kernel has one.
        let method = slow["method"].as_str().unwrap();
        assert!([best, "cpu-lim"].contains(&method), "{rights}: {slow}");
        let share = slow["delivered"]["share"].as_f64();
        assert!(share.is_some_and(|share| (0.2..0.55).contains(&share)), "{rights}: {slow}");
    }
    // Where there is no place for the result of a run, it says what helps.
    let ended = podman(&format!("run --rm --read-only --read-only-tmpfs=false {command} -- sh"));
    assert_eq!(ended.code(), Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("TMPDIR"), "{}", ended.stderr);
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
    let json = written(folder.path());
    assert_eq!(
        (&json["runs"][0]["outcome"], json["runs"].as_array().unwrap().len()),
        (&"timed-out".into(), 1)
    );
    let child = fs::read_to_string(folder.path().join("child")).unwrap().trim().parse().unwrap();
    eventually("what it began has ended", || state(child).is_none_or(|state| state == 'Z'));
    assert_nothing_left(ended.pid);
}

#[test]
fn a_run_ends_with_its_emu_ci_however_that_ends() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let method = some_method().unwrap();
    let line = format!("ci -q --method {method} --cpus 0 --speeds 50%,25% --reps 1 -- sh -c");
    let mut child = start(
        emu(words(&line)).arg("echo $$ >pid.new; mv pid.new pid; exec sleep 60").current_dir(folder.path()),
    );
    eventually("the command runs", || folder.path().join("pid").exists());
    let pid: i32 = fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
    let emu_of_run = until_child(child.id(), "emu");
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the command has ended", || matches!(state(pid), None | Some('Z')));
    eventually("emu has ended", || matches!(state(emu_of_run), None | Some('Z')));
    assert_nothing_left(emu_of_run as u32);
}

#[test]
fn a_command_begins_with_no_signal_blocked() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let blocked = "! grep -q SigBlk:.*[1-9a-f] /proc/self/status";
    fs::write(folder.path().join("blocked"), blocked).unwrap();
    let ended = ci(folder.path(), "--speeds 100%,50% --reps 1 -- sh blocked");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
}

#[test]
fn a_run_that_stops_counts_as_timed_out() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // One stops for good, one whenever it is continued, and one stops where its emu does not follow.
    for (suite, options) in [
        ("kill -TSTP $$; sleep 300", ""),
        ("trap '' TERM; while :; do kill -TSTP $$; done", ""),
        ("kill -STOP $$; sleep 300", "--timeout 2s"),
    ] {
        fs::write(folder.path().join("suite"), suite).unwrap();
        let ended =
            ci(folder.path(), &format!("--speeds 100%,50% --reps 1 {options} --json ci.json -- sh suite"));
        assert_eq!(ended.code(), Some(1), "{suite}: {}", ended.stderr);
        let json = written(folder.path());
        assert_eq!(json["runs"][0]["outcome"], "timed-out", "{suite}");
        let says_why = unwrapped(&ended.stderr).contains("nobody continues it");
        assert_eq!(says_why, options.is_empty(), "{suite}: {}", ended.stderr);
        assert_nothing_left(ended.pid);
    }
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
