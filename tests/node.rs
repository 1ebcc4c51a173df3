//! `emu node`: what runs on a node is as slow as the node, and the end of the node leaves nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{
    EMU, Ended, alone, as_written, assert_free, assert_nothing_left, assert_refused, assert_share,
    can_emulate, can_emulate_by, comm, emu, eventually, finish, has_cpus, is_near, methods, place_of, run,
    skip, some_method, start, until_it_acts, words,
};

pub(crate) fn emu_node(line: &str) -> Ended {
    run(&mut emu(words(&format!("node {line}"))), "")
}

pub(crate) fn apply(file: &str, options: &str) -> Ended {
    run(&mut emu(words(&format!("node apply - {options}"))), file)
}

/// A node on CPU 0, which goes with the test.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) keeper: u32,
}

impl Node {
    pub(crate) fn create(name: &'static str, options: &str) -> Self {
        let ended = emu_node(&format!("create {name} --cpus 0 {options}"));
        assert_eq!(ended.code(), Some(0), "{options}: {}", ended.stderr);
        let mut node = Self { name, keeper: 0 };
        node.keeper = node.shown()["pid"].as_u64().unwrap() as u32;
        node
    }

    /// What `emu node list` has of it; null where it is not there.
    pub(crate) fn shown(&self) -> Value {
        let ended = emu_node("list --json");
        let json = as_written("node-list", &ended.stdout);
        let nodes = json["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["name"] == self.name).cloned().unwrap_or_default()
    }

    /// Begins to run a script there. Returns its emu, and the process of the script: the same where a node stops nothing.
    pub(crate) fn begin(&self, script: &str) -> (Child, u32) {
        let child = start(&mut emu(words(&format!("node exec {} -- sh -c {script}", self.name))));
        let mut pid = 0;
        eventually("the command has joined", || {
            pid = self.shown()["members"][0].as_u64().unwrap_or(0) as u32;
            pid != 0
        });
        eventually("the command runs", || comm(pid as i32).as_deref() == Some("sh"));
        (child, pid)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        emu_node(&format!("remove {} --kill", self.name));
    }
}

pub(crate) const LOOP: &str = "while␣:;␣do␣:;␣done";

#[test]
fn what_runs_on_a_node_is_as_slow_as_the_node() {
    let _alone = alone();
    for method in methods() {
        let node = Node::create("one", &format!("--speed 30% --method {method}"));
        let (child, looping) = node.begin(LOOP);
        assert_share(looping as i32, 0.3, &method);
        // What is delivered is told when the first window has passed.
        eventually("it is told", || !node.shown()["status"]["delivered"].is_null());
        let shown = node.shown();
        assert_eq!(shown["members"], serde_json::json!([looping]), "{method}");
        let delivered = shown["status"]["delivered"]["share"].as_f64().unwrap_or_default();
        assert!(is_near(delivered, 0.3), "{method}: {shown}");
        assert_eq!(emu_node("set one --speed 70%").code(), Some(0), "{method}");
        assert_share(looping as i32, 0.7, &method);
        assert_refused(&emu_node("remove one"), 2, "a node with processes");
        assert_eq!(emu_node("remove one --kill").code(), Some(0), "{method}");
        let ended = finish(child).status;
        assert!(ended.signal() == Some(9) || ended.code() == Some(128 + 9), "{method}: {ended}");
        assert_eq!(node.shown(), Value::Null, "{method}");
        assert_nothing_left(node.keeper);
    }
}

#[test]
fn nodes_of_several_hosts_are_reported_together() {
    let _alone = alone();
    let Some(method) = some_method() else { return skip("no method works here") };
    let node = Node::create("one", &format!("--speed 30% --method {method}"));
    let (child, looping) = node.begin(LOOP);
    eventually("what is delivered is told", || !node.shown()["status"]["delivered"].is_null());
    let dir = tempfile::tempdir().unwrap();
    let listed = emu_node("list --json").stdout;
    for host in ["east", "west"] {
        fs::write(dir.path().join(format!("{host}.json")), &listed).unwrap();
    }
    assert_refused(&emu_node("remove --all"), 2, "processes");
    assert_eq!(emu_node("remove --all --kill").code(), Some(0));
    assert!(node.shown().is_null() && looping != 0);
    finish(child);
    let report = |options: &[&str]| run(emu(["report"]).arg(dir.path()).args(options), "");
    let table = report(&[]).stdout;
    for host in ["east", "west"] {
        let row = table.lines().find(|line| line.starts_with(host)).unwrap_or_else(|| panic!("{table}"));
        assert!(row.contains("30%") && row.contains('±'), "{table}");
    }
    let told = as_written("report-hosts", &report(&["--json"]).stdout);
    assert_eq!(told["nodes"].as_array().map(Vec::len), Some(2), "{told}");
    let north = dir.path().join("north.json");
    fs::write(&north, emu_node("list --json").stdout).unwrap();
    assert!(report(&[]).stdout.contains("north: no nodes"));
    for (text, told) in [
        ("{}".to_owned(), "is no JSON of `emu node list`"),
        ("{\"schema\": 3}".to_owned(), "is no JSON of `emu node list`"),
        ("{\"schema\": 9, \"nodes\": []}".to_owned(), "is of form 9"),
        (listed.replace("\"one\"", "\"\\u001b[2J\""), "is not a name for a node"),
    ] {
        fs::write(&north, text).unwrap();
        assert_refused(&report(&[]), 2, told);
    }
}

#[test]
fn what_runs_on_a_node_is_free_when_its_emu_ends_or_is_killed() {
    let _alone = alone();
    let own = place_of(std::process::id());
    for method in methods() {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let node = Node::create("one", &format!("--speed 30% --method {method}"));
            let (child, looping) = node.begin(LOOP);
            kill(Pid::from_raw(node.keeper as i32), signal).unwrap();
            eventually("the command is free", || place_of(looping) == own);
            assert_free(looping as i32, &format!("{method} after {signal}"));
            kill(Pid::from_raw(looping as i32), Signal::SIGKILL).unwrap();
            finish(child);
            assert_eq!(node.shown(), Value::Null, "{method}");
            let is_told = emu_node("list").stdout.contains("has died");
            assert_eq!(is_told, signal == Signal::SIGKILL, "{method} after {signal}");
            let gone = emu_node("exec one -- true");
            assert_refused(&gone, if is_told { 3 } else { 2 }, "a node that is gone");
            assert_eq!(emu_node("remove one").code(), Some(if is_told { 0 } else { 2 }), "{method}");
            assert_eq!(emu_node("list").stdout, "There is no node of yours here.\n");
            assert_nothing_left(node.keeper);
        }
    }
}

#[test]
fn a_create_that_is_interrupted_leaves_neither_node_nor_mark() {
    let _alone = alone();
    if !can_emulate_by(&["cpu-freeze"]) {
        return;
    }
    for (after_ms, signal) in [
        (20, Signal::SIGINT),
        (60, Signal::SIGTERM),
        (100, Signal::SIGHUP),
        (140, Signal::SIGINT),
        (60, Signal::SIGKILL),
        (120, Signal::SIGKILL),
    ] {
        let creating = start(&mut emu(words("node create one -q -c 0 -s 50% -m cpu-freeze")));
        sleep(Duration::from_millis(after_ms));
        let _ = kill(Pid::from_raw(creating.id() as i32), signal);
        if finish(creating).code() == Some(0) {
            // It was there before the signal.
            assert_eq!(emu_node("remove one").code(), Some(0));
        }
        // A keeper that nobody waits for any more ends by itself; a mark would stay.
        let is_gone = || emu_node("list").stdout == "There is no node of yours here.\n";
        eventually(&format!("no node is left by {signal} after {after_ms} ms"), is_gone);
    }
}

#[test]
fn of_two_nodes_of_one_name_at_once_there_is_one() {
    let _alone = alone();
    if !can_emulate_by(&["cpu-freeze"]) || !has_cpus(2) {
        return;
    }
    for _ in 0..3 {
        let create =
            |cpu| start(&mut emu(words(&format!("node create one -q -c {cpu} -s 50% -m cpu-freeze"))));
        let ended = [create(0), create(1)].map(finish);
        let mut codes = ended.each_ref().map(Ended::code);
        codes.sort_unstable();
        assert_eq!(codes, [Some(0), Some(2)], "{} {}", ended[0].stderr, ended[1].stderr);
        assert_eq!(emu_node("remove one").code(), Some(0));
        assert_eq!(emu_node("list").stdout, "There is no node of yours here.\n");
    }
}

#[test]
fn a_node_leaves_what_it_delivered_at_each_step() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let create =
        |line: &str| run(emu(words(&format!("node create {line} -q --cpus 0"))).current_dir(dir.path()), "");
    std::fs::write(dir.path().join("trace"), "time_s,cpu,speed\n0,*,60%\n0.5,*,30%\n").unwrap();
    let ended = create("one --trace trace --json one.json");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let node = Node { name: "one", keeper: 0 };
    let (child, _) = node.begin(LOOP);
    // Its emu is in another folder when it takes the file back.
    assert_refused(&create("two --speed 50% --json two.json"), 3, "the CPU of another node");
    assert!(!dir.path().join("two.json").exists());
    sleep(Duration::from_millis(800));
    assert_eq!(emu_node("remove one --kill").code(), Some(0));
    finish(child);
    let record = as_written("run", &std::fs::read_to_string(dir.path().join("one.json")).unwrap());
    assert_eq!((&record["node"], &record["exit"]), (&"one".into(), &Value::Null), "{record}");
    let shares: Vec<_> =
        record["steps"].as_array().unwrap().iter().map(|step| &step["cpus"][0]["asked_share"]).collect();
    assert_eq!(shares, [0.6, 0.3], "{record}");
}

#[test]
fn a_shell_sees_no_stop_of_a_command_on_a_node() {
    let _alone = alone();
    for method in methods() {
        let node = Node::create("one", &format!("--speed 30% --method {method}"));
        let (child, _) = node.begin(LOOP);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(300) {
            let news = waitpid(
                Pid::from_raw(child.id() as i32),
                Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG),
            );
            assert_eq!(news, Ok(WaitStatus::StillAlive), "{method}");
            sleep(Duration::from_millis(1));
        }
        assert_eq!(emu_node("remove one --kill").code(), Some(0), "{method}");
        finish(child);
        drop(node);
    }
}

#[test]
fn a_node_is_found_at_once_beside_an_emu_that_is_stopped() {
    let _alone = alone();
    if !can_emulate() || !has_cpus(2) {
        return;
    }
    let node = Node::create("one", "--speed 50%");
    let other = start(&mut emu(words("run --cpus 1 --speed 50% -- sleep 60")));
    until_it_acts(other.id());
    let signal = |signal| kill(Pid::from_raw(other.id() as i32), signal).unwrap();
    signal(Signal::SIGSTOP);
    let begin = Instant::now();
    let ended = [emu_node("exec one -- true"), emu_node("set one --speed 40%"), emu_node("remove one")];
    let took = begin.elapsed();
    signal(Signal::SIGCONT);
    signal(Signal::SIGTERM);
    finish(other);
    assert_eq!(ended.map(|one| one.code()), [Some(0); 3]);
    // The emu would have had three seconds to answer each of them.
    assert!(took < Duration::from_secs(3), "{took:?}");
    drop(node);
}

#[test]
fn what_one_node_slows_joins_another_wholly_or_not_at_all() {
    let _alone = alone();
    if !can_emulate_by(&["cpu-freeze", "fracas"]) || !has_cpus(2) {
        return;
    }
    let one = Node::create("one", "--speed 50% --method cpu-freeze");
    for (method, codes) in [("cpu-freeze", [0].as_slice()), ("fracas", [0, 3].as_slice())] {
        let created = emu_node(&format!("create two --cpus 1 --speed 50% --method {method}"));
        assert_eq!(created.code(), Some(0), "{}", created.stderr);
        let places = "cat␣/proc/self/cgroup";
        let moved = emu_node(&format!("exec one -- {EMU} node exec two -- sh -c {places}"));
        assert!(moved.code().is_some_and(|code| codes.contains(&code)), "{}", moved.stderr);
        let is_on_one = moved.stdout.contains(&format!("emu-{}-", one.keeper));
        assert!(!is_on_one, "{method}: {}", moved.stdout);
        assert_eq!(emu_node("remove two").code(), Some(0), "{method}");
    }
}

#[test]
fn a_command_on_a_node_has_its_streams_and_its_exit_code() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let node = Node::create("create", "--speed 50%");
    let ended = run(&mut emu(words("node exec create -- sh -c cat;␣exit␣7")), "words");
    assert_eq!((ended.code(), &*ended.stdout, &*ended.stderr), (Some(7), "words", ""));
    // Children are there with it, also after its end.
    let ended = emu_node("exec create -- sh -c sleep␣60␣>/dev/null␣2>&1␣&");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(node.shown()["members"].as_array().unwrap().len(), 1);
    drop(node);
}

#[test]
fn nodes_that_cannot_be_are_refused_and_nothing_is_changed() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let node = Node::create("one", "--speed 50%");
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/nowhere/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for (line, code) in [
        (&*format!("exec one -- {}", script.display()), 127),
        ("create one --cpus 0 --speed 25%", 2),
        ("create two --cpus 0 --speed 25%", 3),
        ("create two --cpus 900 --speed 25%", 2),
        ("exec two -- true", 2),
        ("exec one -- emu-test-no-such-program", 127),
        ("set two --speed 25%", 2),
        ("set one --speed 900=25%", 2),
        ("remove two", 2),
    ] {
        assert_refused(&emu_node(line), code, line);
    }
    let shown = node.shown();
    assert_eq!(shown["members"], serde_json::json!([]));
    assert!((shown["status"]["cpus"][0]["asked_share"].as_f64().unwrap() - 0.5).abs() < 1e-9);
}

#[test]
fn nothing_joins_a_node_whose_cgroup_was_removed() {
    let _alone = alone();
    if !can_emulate_by(&["cpu-freeze"]) {
        return;
    }
    let node = Node::create("one", "--speed 50% --method cpu-freeze");
    let name = format!("emu-{}-", node.keeper);
    let host = emu_core::Host::detect(&emu_core::Roots::system()).unwrap();
    for hierarchy in &host.cgroups.hierarchies {
        for group in std::fs::read_dir(&hierarchy.own).unwrap().flatten().map(|entry| entry.path()) {
            if group.file_name().is_some_and(|found| found.to_string_lossy().starts_with(&name)) {
                for pid in std::fs::read_to_string(group.join("cgroup.procs")).unwrap().lines() {
                    std::fs::write(hierarchy.own.join("cgroup.procs"), pid).unwrap();
                }
                eventually("it is removed", || std::fs::remove_dir(&group).is_ok());
            }
        }
    }
    assert_refused(&emu_node("exec one -- true"), 3, "a node without its cgroups");
    assert_eq!(node.shown()["status"]["health"], "degraded");
    assert_eq!(emu_node("remove one").code(), Some(0));
    assert_nothing_left(node.keeper);
}
