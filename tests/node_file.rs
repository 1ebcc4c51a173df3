//! `emu node apply`: the nodes of a file, what is on them, and the second time nothing.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{
    alone, as_written, assert_refused, can_emulate, emu, eventually, finish, has_cpus, place_of, start,
    state, state_folder, unwrapped, words,
};
use crate::node::{LOOP, Node, apply, emu_node};

#[test]
fn a_file_of_nodes_is_applied_wholly_or_not_at_all() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let file = |speed: &str| format!("[node.one]\ncpus = \"0\"\nspeed = \"{speed}\"\n");
    let node = Node { name: "one", keeper: 0 };
    let asked = || node.shown()["status"]["cpus"][0]["asked_share"].as_f64();
    let planned = apply(&file("50%"), "--dry-run");
    assert_eq!(
        (&*planned.stdout, asked()),
        ("create one --speed=50% --cpus=0\n", None),
        "{}",
        planned.stderr
    );
    let changes = |options: &str| {
        let told = as_written("node-apply", &apply(&file("50%"), options).stdout);
        told["changes"].as_array().unwrap().iter().map(|one| one["action"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((changes("--dry-run --json"), asked()), (vec!["create".into()], None));
    assert_eq!((changes("--quiet --json"), asked()), (vec!["create".into()], Some(0.5)));
    assert_eq!(changes("--quiet --json"), Vec::<serde_json::Value>::new());
    let again = apply(&file("50%"), "--dry-run");
    assert_eq!((again.code(), &*again.stdout), (Some(0), "Nothing is to be changed.\n"), "{}", again.stderr);

    let keeper = node.shown()["pid"].clone();
    assert_eq!(apply(&file("25%"), "").code(), Some(0));
    assert_eq!((asked(), &node.shown()["pid"]), (Some(0.25), &keeper));
    // What is set is what the file has, to the last digit.
    assert_eq!(apply(&file("33.333333%"), "").code(), Some(0));
    let again = apply(&file("33.333333%"), "--dry-run");
    assert_eq!(&*again.stdout, "Nothing is to be changed.\n", "{}", again.stderr);
    assert_eq!(apply(&file("25%"), "").code(), Some(0));
    let dumped = emu_node("dump").stdout;
    let same = apply(&dumped, "--dry-run");
    assert_eq!(&*same.stdout, "Nothing is to be changed.\n", "{dumped}{}", same.stderr);

    let (child, _) = node.begin(LOOP);
    for (text, code, why) in [
        (file("25%") + "[node.two]\ncpus = \"0\"\nspeed = \"50%\"\n", 3, "has them, too"),
        (file("30%") + "[node.two]\ncpus = \"900\"\nspeed = \"50%\"\n", 2, "900"),
        (file("140%"), 2, "node `one`"),
        (file("30%") + "sped = \"3\"\n", 2, "line 4"),
        (file("30%") + "period = \"77ms\"\n", 2, "is another one"),
        (file("30%") + "no-hold-clock = true\n", 2, "is another one"),
        (String::new(), 2, "is not in the file"),
        ("[node".into(), 2, "line 1"),
    ] {
        let refused = apply(&text, "");
        assert_refused(&refused, code, &text);
        let said = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(why), "{text}: {said}");
        assert_eq!((asked(), &node.shown()["pid"]), (Some(0.25), &keeper), "{text}");
    }
    assert_eq!(emu_node("remove one --kill").code(), Some(0));
    finish(child);
    let with_options = file("50%") + "period = \"20ms\"\nlift-rt-limit = true\nno-hold-clock = true\n";
    assert_eq!(apply(&with_options, "-q").code(), Some(0));
    for text in [with_options, emu_node("dump").stdout] {
        let same = apply(&text, "--dry-run");
        assert_eq!(&*same.stdout, "Nothing is to be changed.\n", "{text}{}", same.stderr);
    }
    assert_eq!(apply("", "-q").code(), Some(0));
    assert_eq!(node.shown(), Value::Null);
}

#[test]
fn members_of_a_file_join_once_and_those_that_are_gone_are_told() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let file = |members: &str| format!("[node.one]\ncpus = \"0\"\nspeed = \"50%\"\n{members}\n");
    let place = place_of(sleeper.id());
    let own = format!("pids = [{}]\n", sleeper.id());
    let all = file(&format!("{own}run = [\"sleep\", \"60\"]"));
    let node = Node { name: "one", keeper: 0 };
    for (text, code, why) in [
        (file("unit = [\"x\"]"), 2, "did you mean `units`?"),
        (file("pids = [0]"), 2, "there can be no process 0"),
        (file("units = [\"../x\"]"), 2, "there can be no unit ../x"),
        (file("cgroups = [\"/a/../b\"]"), 2, "there can be no cgroup /a/../b"),
        (file("run = [\"emu-test-no-such-program\"]"), 127, "emu-test-no-such-program"),
        (file(&format!("pids = [{}]", std::process::id())), 2, "emu itself"),
        (file(&format!("{own}[node.two]\ncpus = \"1\"\nspeed = \"50%\"\n{own}")), 2, "on nodes one and two"),
    ] {
        let refused = apply(&text, "");
        assert_refused(&refused, code, &text);
        assert!(refused.stderr.contains(why), "{text}: {}", refused.stderr);
        assert_eq!(node.shown(), Value::Null, "{text}");
    }
    // What emu itself descends from is not meant.
    let own_name = std::env::current_exe().unwrap().file_name().unwrap().display().to_string();
    let others = apply(&file(&format!("names = [\"{own_name}\"]")), "--dry-run");
    assert_eq!(others.code(), Some(0), "{}", others.stderr);
    let applied = apply(&all, "");
    assert_eq!(applied.code(), Some(0), "{}", applied.stderr);
    let members = || node.shown()["members"].as_array().unwrap().clone();
    assert!(members().len() == 2 && members().contains(&sleeper.id().into()), "{:?}", members());
    assert_eq!(apply(&all, "").stderr, "", "the second time nothing is changed");
    let dumped = emu_node("dump").stdout;
    let same = apply(&dumped, "--dry-run");
    assert_eq!(&*same.stdout, "Nothing is to be changed.\n", "{dumped}{}", same.stderr);

    // Whoever has joined is as before, and joins again.
    assert_ne!(place_of(sleeper.id()), place);
    assert_eq!(emu_node("remove one").code(), Some(2));
    assert_eq!(emu_node("remove one --free").code(), Some(0));
    assert_eq!(place_of(sleeper.id()), place);
    assert_eq!(apply(&all, "-q").code(), Some(0));

    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    eventually("it has left", || members().len() == 1);
    let without = apply(&all, "");
    let told = without.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(without.code() == Some(0) && told.contains("goes without process"), "{told}");
    assert_eq!(emu_node("remove one --kill").code(), Some(0));
}

/// One method sends signals, one freezes, one has groups within groups.
#[test]
fn what_a_file_no_longer_has_leaves_with_its_children() {
    let _alone = alone();
    if !can_emulate() || !has_cpus(2) {
        return;
    }
    let script = "sleep 60 & echo $!; while :; do sleep 0.01; done";
    let mut shell = std::process::Command::new("sh");
    let mut shell = shell.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = shell.id();
    let mut child = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut child).unwrap();
    let child: u32 = child.trim().parse().unwrap();
    let place = place_of(pid);
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/no/such/program\n").unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o700)).unwrap();
    let fails = format!("run = [\"{}\"]\n", script.display());
    let [own, its] = [pid, child].map(|pid| format!("pids = [{pid}]\n"));
    let nodes = |method: &str, [one, two]: [&str; 2]| {
        let node = |name: &str, cpu: u32, members: &str| {
            format!("[node.{name}]\ncpus = \"{cpu}\"\nspeed = \"50%\"\nmethod = \"{method}\"\n{members}\n")
        };
        node("one", 0, one) + &node("two", 1, two)
    };
    let [one, two] = ["one", "two"].map(|name| Node { name, keeper: 0 });
    let has_of = |node: &Node, pid: u32| {
        node.shown()["members"].as_array().is_some_and(|all| all.contains(&pid.into()))
    };
    let has = |node: &Node| has_of(node, pid);
    for method in ["cpu-lim", "cpu-freeze", "fracas"] {
        let applied = |members: [&str; 2]| {
            let applied = apply(&nodes(method, members), "");
            assert_eq!(applied.code(), Some(0), "{method}: {}", applied.stderr);
            applied.stderr
        };
        let refused = |members: [&str; 2]| {
            let refused = apply(&nodes(method, members), "-q");
            assert_refused(&refused, 127, method);
        };
        applied(["", ""]);
        refused([&format!("{own}{fails}"), ""]);
        assert!(!has(&one) && place_of(pid) == place, "{method}");
        applied([&own, ""]);
        assert!(has(&one) && place_of(pid) != place, "{method}");
        applied(["", &own]);
        assert!(!has(&one) && has(&two), "{method}");
        refused([&fails, ""]);
        assert!(has(&two) && has_of(&two, child), "{method}");
        // A child that is to stay.
        applied(["", &its]);
        assert!(!has(&two) && has_of(&two, child), "{method}");
        assert_eq!(applied(["", &its]), "", "{method}");
        refused(["", &format!("pids = [{child}, {pid}]\n{fails}")]);
        assert!(!has(&two) && has_of(&two, child), "{method}");
        applied(["", &own]);
        let told = applied(["", ""]);
        assert!(told.contains(&format!("leave two: process {pid}")), "{told}");
        assert_eq!(place_of(pid), place, "{method}");
        assert_eq!(two.shown()["members"].as_array().map(Vec::len), Some(0), "{method}");
        assert_eq!(applied(["", ""]), "", "{method}");
        // Longer than a window of the account lasts. What leaves by the file has not escaped.
        std::thread::sleep(Duration::from_millis(1200));
        let problems = two.shown()["status"]["problems"].to_string();
        assert!(!problems.contains("has left"), "{method}: {problems}");
        assert_eq!(apply("", "-q").code(), Some(0), "{method}");
        assert!(place_of(pid) == place && state(pid as i32) != Some('T'), "{method}");
    }
    kill(Pid::from_raw(child as i32), Signal::SIGKILL).unwrap();
    shell.kill().unwrap();
    shell.wait().unwrap();
}

#[test]
fn a_daemon_that_stays_when_its_member_leaves_is_told() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "read go; (sleep 60 & echo $!); read end"]).stdin(Stdio::piped());
    let mut shell = shell.stdout(Stdio::piped()).spawn().unwrap();
    let node = |members: &str| format!("[node.one]\ncpus = \"0\"\nspeed = \"50%\"\n{members}\n");
    assert_eq!(apply(&node(&format!("pids = [{}]", shell.id())), "-q").code(), Some(0));
    shell.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let mut daemon = String::new();
    BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut daemon).unwrap();
    let daemon = daemon.trim();
    let told = unwrapped(&apply(&node(""), "").stderr);
    let keeps = format!("node one keeps what descends from no member, such as their daemons: {daemon}");
    assert!(told.contains(&keeps), "{told}");
    assert_eq!(apply(&node(""), "").stderr, "", "it is told once");
    shell.kill().unwrap();
    shell.wait().unwrap();
    assert_eq!(emu_node("remove one --kill").code(), Some(0));
}

#[test]
fn what_a_node_waits_for_is_kept_where_it_is_made_anew() {
    let _alone = alone();
    if !can_emulate() || !has_cpus(2) {
        return;
    }
    let unit = format!("units = [\"emu-test-{}.service\"]", std::process::id());
    let file = |cpu| format!("[node.one]\ncpus = \"{cpu}\"\nspeed = \"50%\"\n{unit}\n");
    let node = Node { name: "one", keeper: 0 };
    for cpu in [0, 1] {
        let applied = apply(&file(cpu), "-q");
        assert_eq!(applied.code(), Some(0), "{}", applied.stderr);
        let dumped = emu_node("dump").stdout;
        assert!(dumped.contains(&unit) && dumped.contains(&format!("cpus = \"{cpu}\"")), "{dumped}");
    }
    // What fails when node one has been removed.
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/nowhere/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let run = format!("run = [\"{}\"]", script.display());
    let failed = apply(&format!("[node.two]\ncpus = \"0\"\nspeed = \"50%\"\n{run}\n"), "-q");
    assert_eq!(failed.code(), Some(127), "{}", failed.stderr);
    let dumped = emu_node("dump").stdout;
    assert!(dumped.contains(&unit) && dumped.contains("cpus = \"1\""), "{dumped}");
    drop(node);
}

#[test]
fn an_apply_that_is_interrupted_leaves_all_nodes_or_none() {
    let _alone = alone();
    if !can_emulate() || !has_cpus(2) {
        return;
    }
    let all = "[node.one]\ncpus = \"0\"\nspeed = \"50%\"\n[node.two]\ncpus = \"1\"\nspeed = \"50%\"\n";
    let names = || {
        let listed = as_written("node-list", &emu_node("list --json").stdout);
        let mut names: Vec<_> =
            listed["nodes"].as_array().unwrap().iter().map(|node| node["name"].to_string()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(apply(all, "-q").code(), Some(0));
    let ended = finish(
        emu(words("node apply -"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    assert_eq!((ended.code(), names().len()), (Some(2), 2), "{}", ended.stderr);
    let mut applying = start(&mut emu(words("node apply -")));
    drop(applying.stdin.take());
    // It begins to end, which takes some 10 ms.
    let (mark, begin) = (state_folder().join("node-one"), Instant::now());
    while mark.exists() && begin.elapsed() < Duration::from_secs(10) {}
    kill(Pid::from_raw(applying.id() as i32), Signal::SIGINT).unwrap();
    let ended = finish(applying);
    // It may have come when all was done.
    let left: &[&str] = if ended.code() == Some(0) { &[] } else { &["\"one\"", "\"two\""] };
    assert_eq!(names(), left, "{}", ended.stderr);
    assert_eq!(apply("", "-q").code(), Some(0));
}

#[test]
fn of_two_applies_at_once_one_at_least_is_done() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let text = "[node.one]\ncpus = \"0\"\nspeed = \"50%\"\n";
    let path = std::env::temp_dir().join(format!("emu-nodes-{}.toml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let line = format!("node apply {}", path.display());
    let both = [(); 2].map(|()| start(&mut emu(words(&line))));
    let codes = both.map(|child| finish(child).code());
    std::fs::remove_file(&path).unwrap();
    assert!(
        codes.contains(&Some(0)) && codes.iter().all(|code| [Some(0), Some(3)].contains(code)),
        "{codes:?}"
    );
    let again = apply(text, "--dry-run");
    assert_eq!(&*again.stdout, "Nothing is to be changed.\n", "{}", again.stderr);
    assert_eq!(apply("", "-q").code(), Some(0));
}

/// As many nodes as the host has cores fit, each on one that it keeps.
#[test]
fn nodes_of_a_class_find_cpus_and_keep_them() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let file = |count: usize| {
        format!("[class.slow]\nspeed = \"30%\"\n\n[node.w]\nclass = \"slow\"\ncount = {count}\n")
    };
    let refused = apply(&file(1000), "");
    assert_refused(&refused, 3, "there is no place for node w");
    assert_eq!(apply(&file(1), "-q").code(), Some(0));
    let json = as_written("node-list", &emu_node("list --json").stdout);
    assert_eq!(json["nodes"][0]["name"], "w1", "{json}");
    assert_eq!(apply(&file(1), "").stderr, "", "the second time nothing is changed");
    if has_cpus(2) {
        let planned = apply(&file(2), "--dry-run");
        let is_planned = planned.stdout.contains("create w2 --speed=30%") && !planned.stdout.contains("w1");
        let shares = planned.stderr.contains("shares its");
        assert!(is_planned || shares, "{} {}", planned.stdout, planned.stderr);
    }
    let typo = apply("[node.a]\nclass = \"slow\"\n", "");
    assert_refused(&typo, 2, "class `slow`");
    let unknown = emu_node("set w11 --speed 20%");
    assert!(unknown.stderr.contains("did you mean `w1`?"), "{}", unknown.stderr);
    assert_eq!(apply("", "-q").code(), Some(0));
    assert_eq!(emu_node("list --json").stdout.matches("\"w1\"").count(), 0);
}
