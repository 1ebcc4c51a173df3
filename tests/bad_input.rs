//! Bad input, and hosts that lack something: one clear error with a hint, the documented exit code, and nothing
//! changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::common::{
    EMU, alone, as_nobody, as_written, assert_nothing_left, assert_refused, emu, eventually, finish, half,
    inside, is_root, leave_out, methods, run, skip, some_method, start, until_child, unwrapped, words,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn a_fifo_and_an_endless_file_end_emu_at_once() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = fifo.display();
    for line in [
        format!("run --trace {fifo} -- true"),
        format!("run --like {fifo} -- true"),
        format!("run --speed 50% --json {fifo} -- true"),
        format!("node create a --trace {fifo}"),
        "run --trace /dev/zero -- true".to_owned(),
        "run --like /dev/zero -- true".to_owned(),
        "trace show /dev/zero".to_owned(),
        "node apply /dev/zero".to_owned(),
    ] {
        assert_refused(&run(&mut emu(words(&line)), ""), 2, &line);
    }
}

#[test]
fn what_only_looks_works_with_a_read_only_run() {
    let _alone = alone();
    if !is_root() {
        skip("mounting needs root");
        return;
    }
    for line in ["info", "node list", "node dump", "top --once"] {
        let mut command = inside("mount -o remount,bind,ro /run/emu", EMU);
        let ended = run(command.args(words(line)), "");
        assert_eq!(ended.code(), Some(0), "{line}: {}", ended.stderr);
        assert!(!ended.stdout.is_empty(), "{line}");
    }
    let mut command = inside("mount -o remount,bind,ro /run/emu", EMU);
    let ended = run(command.args(words("run -s 50% -c 0 -- true")), "");
    assert_eq!(ended.code(), Some(4), "{}", ended.stderr);
}

#[test]
fn bad_input_is_refused_with_a_hint_and_changes_nothing() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let (own, mark_path) = (std::process::id(), mark.display());
    for (line, code) in [
        ("run --speed 0", 2),
        ("run --speed -5%", 2),
        ("run --speed 140%", 2),
        ("run --speed 1.2␣parsecs", 2),
        ("run --speed NaN", 2),
        ("run --speed ␣", 2),
        ("run --speed 5GHz --method cpu-lim", 3),
        ("run --speed 50% --cpus ␣", 2),
        ("run --speed 50% --cpus 3-1", 2),
        ("run --speed 50% --cpus 8191", 2),
        ("run --speed 50% --cpus 0,x", 2),
        ("run --speed 0=50%,8191=50%", 2),
        ("run --speed 0=50% --cpus 0,1", 2),
        ("run --speed 0=50%,0=60%", 2),
        ("run --speed 50% --period 0", 2),
        ("run --speed 50% --period 1␣ns", 2),
        ("run --speed 50% --period 1␣h", 2),
        ("run --speed 50% --period -1ms", 2),
        ("run --speed 50% --method cpu-hog", 2),
        ("run --speed 50% --method fracas --variant shares", 2),
        ("run --speed 50% --spare-others", 2),
        ("run --speed 50% --json -", 2),
        ("run --speed 50% --json /no/such/folder/x", 2),
    ] {
        let mut command = emu(words(line));
        let ended = run(command.args(["--", "touch"]).arg(&mark), "");
        assert_refused(&ended, code, line);
        assert!(!mark.exists(), "{line} ran the command");
    }
    for (line, code) in [
        (format!("attach --speed 50% --pid {own}"), 2),
        ("attach --speed 50% --pid 0".into(), 2),
        ("attach --speed 50% --pid -1".into(), 2),
        ("attach --speed 50% --pid 4194303".into(), 2),
        ("attach --speed 50% --cgroup /no/such/group".into(), 2),
        ("attach --speed 50% --cgroup /../../tmp".into(), 2),
        ("attach --speed 50% --cgroup /tmp".into(), 2),
        (format!("attach --speed 50% --pid {own} --json {mark_path} --for -1s"), 2),
    ] {
        assert_refused(&run(&mut emu(words(&line)), ""), code, &line);
    }
    assert!(!mark.exists());
}

#[test]
fn a_method_that_cannot_work_here_is_refused_with_the_reason() {
    let _alone = alone();
    let listed = run(&mut emu(["methods", "--json"]), "");
    let json = as_written("methods", &listed.stdout);
    for method in json["methods"].as_array().unwrap().iter().filter(|method| method["works"] == false) {
        let name = method["method"].as_str().unwrap();
        let code = if method["unavailable"]["reason"] == "no-privilege" { 4 } else { 3 };
        let ended = run(&mut half(&format!("--method {name} -- true")), "");
        assert_refused(&ended, code, name);
        let detail = method["unavailable"]["detail"].as_str().unwrap();
        assert!(unwrapped(&ended.stderr).contains(&unwrapped(detail)), "{}", ended.stderr);
    }
}

#[test]
fn an_offline_cpu_is_refused() {
    let _alone = alone();
    let offline = fs::read_to_string("/sys/devices/system/cpu/offline").unwrap_or_default();
    let Some(cpu) = offline.trim().split([',', '-']).next().filter(|cpu| !cpu.is_empty()) else {
        leave_out("every CPU of this host is online");
        return;
    };
    assert_refused(&run(&mut half(&format!("--cpus {cpu} -- true")), ""), 2, "an offline CPU");
}

#[test]
fn another_users_process_is_not_permitted() {
    let _alone = alone();
    if !is_root() {
        // Process 1 is root's on every host.
        assert_refused(&run(&mut emu(words("attach --speed 50% --pid 1 --for 1s")), ""), 4, "process 1");
        return;
    }
    let mut sleeper = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let (_dir, mut command) = as_nobody(&[]);
    command.args(words(&format!("attach --speed 50% --method cpu-lim --pid {} --for 1s", sleeper.id())));
    let ended = run(&mut command, "");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_refused(&ended, 4, "a process of root");
}

/// As `su` does, the command becomes another user, whose processes take no signals from emu.
#[test]
fn the_json_is_written_even_for_an_unwatchable_command() {
    let _alone = alone();
    if !is_root() {
        skip("it needs root to make such a program");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = |from: &str, name: &str, mode: u32| {
        let to = dir.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
        to
    };
    let setpriv = run(Command::new("sh").args(["-c", "command -v setpriv"]), "").stdout;
    let (program, emu) = (copy(setpriv.trim(), "becomes", 0o4755), copy(EMU, "slower", 0o755));
    let json = dir.path().join("json");
    let mut command = inside(":", "setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(emu);
    command
        .args(words("run --speed 99% --method cpu-lim --json"))
        .arg(&json)
        .arg("--")
        .arg(program)
        .args(words("--reuid 0 --regid 0 --clear-groups sleep 600"));
    let mut child = start(command.env("XDG_RUNTIME_DIR", dir.path()));
    let emu = child.id();
    let sleeper = until_child(emu, "sleep");
    kill(Pid::from_raw(emu as i32), Signal::SIGUSR1).unwrap();
    eventually("emu has ended", || child.try_wait().unwrap().is_some());
    // It has the pipes, too.
    kill(Pid::from_raw(sleeper), Signal::SIGKILL).unwrap();
    let ended = finish(child);
    assert_eq!(ended.code(), Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot pass SIGUSR1 on"), "{}", ended.stderr);
    let record = as_written("run", &fs::read_to_string(&json).unwrap());
    assert_eq!((&record["asked"]["speed"], &record["exit"]), (&"99%".into(), &serde_json::Value::Null));
}

#[test]
fn a_host_without_proc_sys_or_room_for_state_is_refused() {
    let _alone = alone();
    if !is_root() {
        skip("it needs root for a mount namespace");
        return;
    }
    let refused = |setup: &str, arguments: &str, code: i32| {
        let mut command = inside(setup, EMU);
        command.args(words(arguments));
        assert_refused(&run(&mut command, ""), code, setup);
    };
    refused("mount -t tmpfs none /proc", "run --speed 50% -- true", 3);
    for method in methods() {
        let line = format!("run --speed 50% --method {method} -- true");
        refused("mount -t tmpfs -o size=4k,nr_inodes=2,mode=700 none /run/emu", &line, 125);
    }
    for method in methods().iter().filter(|method| matches!(method.as_str(), "fracas" | "cpu-freeze")) {
        let line = format!("run --speed 50% --method {method} -- true");
        let setup =
            "for m in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do mount -o remount,ro,bind $m; done";
        refused(setup, &line, 4);
    }
}

#[test]
fn a_journal_that_cannot_be_trusted_is_reported_and_left() {
    let _alone = alone();
    if !is_root() {
        skip("it needs root for a state folder of its own");
        return;
    }
    let state = "mount -t tmpfs -o mode=700 none /run/emu && cd /run/emu";
    let hostile = "printf 'emu-journal 1 1 1 0 cpu-lim x\\nFile\\t/etc/passwd\\told\\tnew\\n' > 1-1.journal";
    for (make, what) in [
        (hostile, "a journal by hand"),
        ("head -c 100 /dev/urandom > 2-2.journal", "noise"),
        ("mkdir 3-3.journal", "a folder"),
        ("printf 'emu-journal 99 x\\n' > 4-4.journal", "a later version"),
    ] {
        let setup = format!("{state} && {make} && chmod 600 *.journal");
        let mut command = inside(&setup, EMU);
        let ended = run(command.arg("restore"), "");
        assert_eq!(ended.code(), Some(6), "{what}: {ended:?}");
        assert!(
            ended.stdout.contains("not restored: ") && ended.stderr.contains("hint: "),
            "{what}: {ended:?}"
        );
    }
    let mut command = inside(&format!("{state} && {hostile} && chmod 600 *.journal"), EMU);
    let ended = run(command.args(["restore", "--json"]), "");
    let json = as_written("restore", &ended.stdout);
    assert_eq!((ended.code(), json["problems"].as_array().map(Vec::len)), (Some(6), Some(1)), "{ended:?}");
    let mut command = inside(&format!("{state} && : > 5-5.journal && chmod 600 *.journal"), EMU);
    let ended = run(command.arg("restore"), "");
    assert_eq!((ended.code(), ended.stdout.as_str()), (Some(0), "nothing to restore\n"), "an empty journal");
}

#[test]
fn a_bench_that_makes_no_sense_is_refused() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let existing = dir.path().join("existing");
    fs::create_dir(&existing).unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "text").unwrap();
    for (line, code) in [
        ("--methods cpu-hog".to_owned(), 2),
        ("--workloads cpu-lop".to_owned(), 2),
        ("--speeds 140%".to_owned(), 2),
        ("--speeds ␣".to_owned(), 2),
        ("--reps 0".to_owned(), 2),
        ("--cores 0".to_owned(), 2),
        ("--cores 60000".to_owned(), 3),
        ("--time 1ms --workloads cpu-loop --methods none".to_owned(), 2),
        (format!("--quick --out {}", existing.display()), 2),
        (format!("--quick --out {}", file.display()), 2),
        (format!("--methods none --workloads cpu-loop --reps 2 --out {}/x", file.display()), 2),
        ("--methods none --workloads cpu-loop --reps 2 --out /proc/x".to_owned(), 2),
    ] {
        let ended = run(&mut emu(words(&format!("bench {line}"))), "");
        assert_refused(&ended, code, &line);
    }
    assert_eq!(fs::read_dir(&existing).unwrap().count(), 0);
}

#[test]
fn a_record_that_cannot_be_trusted_is_refused() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    let mut command = emu(words("bench --methods none --workloads cpu-loop --cores 1 --reps 2 --out"));
    let ended = run(command.arg(&good), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let read = |name: &str| fs::read_to_string(good.join(name)).unwrap();
    let (about, samples) = (read("record.json"), read("samples.jsonl"));
    let first = samples.lines().next().unwrap();
    // A sample that was disturbed and taken again is in the record twice by right.
    let counts = |line: &&str| line.contains("\"row\":\"pair\"") && line.contains("\"kept\":true");
    let kept = samples.lines().find(counts).unwrap();
    let quantum = first.split("\"quantum_ns\":").nth(1).unwrap().split(',').next().unwrap();
    let refusal =
        r#""unavailable": [{"contender": "cpu-freq", "wanted": "", "why": "no cpufreq", "hint": null}]"#;
    let without_a_method = about.replace("\"unavailable\": []", refusal);
    assert_ne!(without_a_method, about);
    let changed = |from: &str, to: &str| samples.replacen(from, to, 1);
    let quantum_is =
        |value: &str| changed(&format!("\"quantum_ns\":{quantum}"), &format!("\"quantum_ns\":{value}"));
    let host = std::process::Command::new("hostname").output().ok();
    let host = host.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if let Some(host) = host.filter(|host| host.len() > 3) {
        assert!(!about.contains(&host) && !samples.contains(&host), "the name of the host is in the record");
    }
    assert!(!about.contains(&*dir.path().to_string_lossy()), "a path is in the record");
    for (number, (what, about, samples)) in [
        ("truncated about", about[..about.len() / 2].to_owned(), samples.clone()),
        ("later form", about.replace("\"schema\": 2", "\"schema\": 99"), samples.clone()),
        ("NaN", about.clone(), quantum_is("NaN")),
        ("negative", about.clone(), quantum_is("-1.0")),
        ("too large", about.clone(), quantum_is("1e999")),
        ("null", about.clone(), quantum_is("null")),
        ("twice", about.clone(), format!("{kept}\n{samples}")),
        ("unknown cell", about.clone(), changed("\"cell\":0", "\"cell\":7")),
        ("unknown row", about.clone(), changed("\"row\":\"pair\"", "\"row\":\"pear\"")),
        ("foreign", "{\"name\": \"else\"}".to_owned(), samples.clone()),
        ("noise", about.clone(), "noise\n".to_owned()),
        ("nothing", about.clone(), String::new()),
        ("nothing, and a method is not available", without_a_method, String::new()),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = dir.path().join(number.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("record.json"), about).unwrap();
        fs::write(folder.join("samples.jsonl"), samples).unwrap();
        assert_refused(&run(emu(["report"]).arg(&folder), ""), 2, what);
    }
    // A run that was killed has lost its last line alone, and the rest is shown.
    let torn = dir.path().join("torn");
    fs::create_dir(&torn).unwrap();
    fs::write(torn.join("record.json"), &about).unwrap();
    fs::write(torn.join("samples.jsonl"), &samples[..samples.len() - 20]).unwrap();
    let shown = run(emu(["report"]).arg(&torn), "");
    assert_eq!(shown.code(), Some(0), "{}", shown.stderr);
    assert!(shown.stdout.contains("not complete"), "{}", shown.stdout);
    assert_refused(&run(emu(["report"]).arg(dir.path()), ""), 2, "a folder that is no record");
    assert_refused(&run(emu(["report"]).arg(dir.path().join("missing")), ""), 2, "no folder");
    assert_refused(&run(emu(["report"]).arg(&good).arg(&good), ""), 2, "several records without --out");
    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("report.html"), "precious").unwrap();
    let over = run(emu(["report"]).arg(&good).arg("--out").arg(&foreign), "");
    assert_refused(&over, 2, "a page of something else");
    assert_eq!(fs::read_to_string(foreign.join("report.html")).unwrap(), "precious");
    let own = dir.path().join("own");
    for _ in 0..2 {
        let made = run(emu(["report"]).arg(&good).arg("--out").arg(&own), "");
        assert_eq!(made.code(), Some(0), "a new folder, and one with the same report: {}", made.stderr);
    }
    // Records of different machines or versions are not mixed, nor continued.
    let other = dir.path().join("other");
    for (what, from) in [("machine", "\"kernel\": \""), ("version", "\"version\": \"")] {
        let _ = fs::remove_dir_all(&other);
        fs::create_dir(&other).unwrap();
        fs::write(other.join("record.json"), about.replacen(from, &format!("{from}9"), 1)).unwrap();
        fs::write(other.join("samples.jsonl"), &samples).unwrap();
        assert_refused(&run(emu(["bench", "--resume"]).arg(&other), ""), 2, what);
        let out = dir.path().join("mixed");
        assert_refused(&run(emu(["report"]).args([&good, &other]).arg("--out").arg(&out), ""), 2, what);
        assert!(!out.exists());
    }
}

#[test]
fn a_full_disk_ends_a_bench_and_the_record_can_be_completed() {
    let _alone = alone();
    if !is_root() {
        skip("it needs root for a small file system");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().display();
    let script = format!(
        "mount -t tmpfs -o size=16k none {small} && {{ \"$@\" --out {small}/r; code=$?; tail -c1 {small}/r/samples.jsonl | \
         od -An -c >&2; mount -o remount,size=1m {small}; $1 bench --resume {small}/r >/dev/null || exit 99; exit $code; }}"
    );
    let mut command = inside(":", "sh");
    command.args(["-c", &script, "sh", EMU]);
    command.args(words("bench --methods none --workloads cpu-loop --cores 1 --reps 9"));
    let ended = run(&mut command, "");
    assert_eq!(ended.code(), Some(125), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: "), "{}", ended.stderr);
}

/// Moves the cgroups out of `/sys`.
const CGROUPS_ELSEWHERE: &str = "
for mount in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts); do umount -l $mount; done
mkdir /run/cgroups
mount -t cgroup -o freezer none /run/cgroups || mount -t cgroup2 none /run/cgroups";

#[test]
fn cgroups_outside_of_sys_are_not_used_and_not_fatal() {
    let _alone = alone();
    if !is_root() {
        skip("it needs root");
        return;
    }
    for method in methods() {
        let line = format!("run -q -s 40% -c 0 -m {method} -- true");
        let ended = run(inside(CGROUPS_ELSEWHERE, EMU).args(words(&line)), "");
        if ["cpu-hogs", "cpu-lim"].contains(&method.as_str()) {
            assert_eq!(ended.code(), Some(0), "{method}: {}", ended.stderr);
        } else {
            assert_refused(&ended, 3, &method);
        }
    }
}

#[test]
fn an_emu_with_the_rights_of_its_file_is_refused() {
    let _alone = alone();
    if !is_root() {
        skip("it needs root to make such a file");
        return;
    }
    for (mode, bit) in [(0o4755, "chmod u-s"), (0o2755, "chmod g-s")] {
        let (dir, mut nobody) = as_nobody(&[]);
        fs::set_permissions(dir.path().join("emu"), fs::Permissions::from_mode(mode)).unwrap();
        let ended = run(nobody.arg("methods"), "");
        assert_refused(&ended, 4, bit);
        assert!(unwrapped(&ended.stderr).contains(bit), "{}", ended.stderr);
    }
}

#[test]
fn limits_and_odd_places_have_an_end_with_the_right_advice() {
    let _alone = alone();
    let Some(method) = some_method() else { return };
    let run_line = format!("run -s 40% -c 0 -m {method} -- true");
    if is_root() && methods().contains(&"cpu-hogs".to_owned()) {
        let mut limited = inside(":", "prlimit");
        limited
            .arg("--rttime=200000:200000")
            .arg(EMU)
            .args(words("run -s 20% -p 1s -c 0 -m cpu-hogs -- true"));
        assert_refused(&run(&mut limited, ""), 3, "RLIMIT_RTTIME");
    }
    if is_root() {
        let mut elsewhere = inside(":", "unshare");
        elsewhere.args(["--pid", "--fork"]).arg(EMU).args(words(&run_line));
        assert_refused(&run(&mut elsewhere, ""), 3, "another PID namespace");
        let (_dir, mut nobody) = as_nobody(&["env", "XDG_RUNTIME_DIR=/nowhere"]);
        let ended = run(nobody.args(words("run -s 40% -c 0 -m cpu-lim -- true")), "");
        assert_refused(&ended, 4, "/nowhere");
        assert!(ended.stderr.contains("XDG_RUNTIME_DIR names"), "{}", ended.stderr);
        let (_dir, mut nobody) = as_nobody(&["env", "XDG_RUNTIME_DIR=/sys"]);
        let ended = run(nobody.args(words("run -s 40% -c 0 -m cpu-lim -- true")), "");
        assert_refused(&ended, 4, "/sys");
        assert!(ended.stderr.contains("XDG_RUNTIME_DIR=FOLDER"), "{}", ended.stderr);
    }
    let mut shallow = inside(":", "prlimit");
    let ended = run(shallow.arg("--stack=65536:65536").arg(EMU).args(words(&run_line)), "");
    assert_refused(&ended, 3, "ulimit -s");
    for files in 8..=16 {
        let mut few = inside(":", "prlimit");
        let ended = run(few.arg(format!("--nofile={files}:{files}")).arg(EMU).args(words(&run_line)), "");
        assert_ne!(ended.code(), Some(0));
        assert!(ended.stderr.contains("ulimit -n"), "{}", ended.stderr);
        assert_nothing_left(ended.pid);
    }
}
