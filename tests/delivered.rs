//! What `run` tells of what a program was given, against the program's own count.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{
    EMU, Ended, alone, as_nobody, as_written, can_emulate_by, emu, has_cpus, in_some_attempt, inside,
    is_root, methods, run, skip, unwrapped, words,
};

/// `emu run` with these words; returns how it ended, and its JSON.
fn told(line: &str) -> (Ended, Value) {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("json");
    let ended = run(&mut emu(words(&format!("run --json {} {line}", json.display()))), "");
    let text = fs::read_to_string(&json).unwrap_or_else(|e| panic!("{e}: {}", ended.stderr));
    (ended, as_written("run", &text))
}

/// Computes for about 1.5 s, in the shell alone; then writes its CPU time in nanoseconds and the wall time in hundredths of
/// a second.
const LOOP: &str = "now()␣{␣read␣now␣rest␣</proc/uptime;␣now=${now%.*}${now#*.};␣};␣now;␣begin=$now;\
    while␣[␣$((now-begin))␣-lt␣150␣];␣do␣\
    i=0;␣while␣[␣$i␣-lt␣5000␣];␣do␣i=$((i+1));␣done;␣now;␣done;\
    read␣cpu␣rest␣</proc/$$/schedstat;␣echo␣$cpu␣$((now-begin))";

/// A number that does not change, as where something else than the kernel makes the file.
const FIXED_LOADAVG: &str =
    "echo '0.00 0.00 0.00 1/100 4711' >/run/loadavg && mount --bind /run/loadavg /proc/loadavg";

#[test]
fn new_processes_are_found_where_loadavg_is_not_the_kernels() {
    let _alone = alone();
    if !is_root() || !can_emulate_by(&["cpu-lim"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("run.json");
    // Each job is over before a list that comes now and then would have it.
    let jobs =
        "for job in 1 2 3 4 5 6 7 8; do sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'; done";
    let mut command = inside(FIXED_LOADAVG, EMU);
    command.args(words("run -q -m cpu-lim -s 30% -c 0 --json")).arg(&kept).args(["--", "sh", "-c", jobs]);
    let ended = run(&mut command, "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let kept = as_written("run", &fs::read_to_string(kept).unwrap());
    let used = kept["status"]["used_cpus"].as_f64().unwrap();
    assert!(used < 0.38, "{kept}");
}

#[test]
fn what_a_loop_was_given_agrees_with_its_own_count() {
    let _alone = alone();
    for method in methods() {
        in_some_attempt(|| {
            let (ended, json) = told(&format!("-s 30% --cpus 0 -m {method} -- sh -c {LOOP}"));
            let numbers = ended.stdout.split_whitespace().map(|word| word.parse().unwrap());
            let [cpu, wall]: [f64; 2] = numbers.collect::<Vec<_>>().try_into().unwrap();
            let own = cpu / wall / 1e7;
            let seen = &json["delivered"];
            let Some(share) = seen["share"].as_f64() else {
                return Err(format!("{method} tells nothing: {json}"));
            };
            let [low, high] = ["low", "high"].map(|key| seen[key].as_f64().unwrap());
            assert!(low <= share && share <= high, "{method}: {seen}");
            // The last window ends with the program and is not counted; the kernel's tick is 4 to 10 ms.
            if (share - own).abs() < 0.03 { Ok(()) } else { Err(format!("{method}: {own}, and {seen}")) }
        });
    }
}

#[test]
fn a_program_that_leaves_its_group_is_told_of() {
    let _alone = alone();
    let stopping = ["cpu-freeze", "fracas"].map(String::from);
    let methods: Vec<_> = methods().into_iter().filter(|method| stopping.contains(method)).collect();
    if methods.is_empty() || !is_root() {
        skip("no method with a group works here, or this is not root");
        return;
    }
    let leave = "for␣f␣in␣$(find␣/sys/fs/cgroup␣-maxdepth␣2␣-name␣cgroup.procs);␣do␣\
                 echo␣$$␣>$f;␣done␣2>/dev/null;";
    for method in methods {
        in_some_attempt(|| {
            let (_, json) = told(&format!("-s 30% --cpus 0 -m {method} -- sh -c {leave}{LOOP}"));
            let is_free = json["delivered"]["share"].as_f64().is_some_and(|share| share > 0.5);
            let problems = json["status"]["problems"].to_string();
            let is_told =
                problems.contains("too fast") && problems.contains("(sh) has left the zone's cgroup");
            let is_degraded = json["status"]["health"] == "degraded";
            if is_free && is_told && is_degraded { Ok(()) } else { Err(format!("{method}: {json}")) }
        });
    }
}

#[test]
fn what_other_programs_take_is_told() {
    let _alone = alone();
    if !can_emulate_by(&["cpu-freeze"]) {
        return;
    }
    let burn = words("timeout 20 sh -c while␣:;␣do␣:;␣done");
    let mut others: Vec<_> =
        (0..3).map(|_| Command::new("taskset").args(["-c", "0"]).args(&burn).spawn().unwrap()).collect();
    let (_, json) = told(&format!("-s 60% --cpus 0 -m cpu-freeze -- sh -c {LOOP};␣{LOOP}"));
    for other in &mut others {
        kill(Pid::from_raw(other.id() as i32), Signal::SIGTERM).unwrap();
        other.wait().unwrap();
    }
    let problems = json["status"]["problems"].to_string();
    assert!(problems.contains("too slow") && problems.contains("other programs took"), "{json}");
}

#[test]
fn a_daemon_that_leaves_every_group_is_named() {
    let _alone = alone();
    let wanted = ["cpu-freeze", "cpu-lim"];
    if !is_root() || !can_emulate_by(&wanted) {
        return;
    }
    // Parent and child come and go before anybody has looked; the daemon sleeps, so that it is not seen by what it uses.
    let leave =
        "for f in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs); do echo $$ >$f; done 2>/dev/null";
    let daemon = format!("(setsid sh -c '{leave}; exec sleep 2' &) ; sleep 1.9");
    for method in wanted {
        let dir = tempfile::tempdir().unwrap();
        let json = dir.path().join("json");
        let mut command = emu(words(&format!("run --cpus 0 -s 30% -m {method} --json")));
        let ended = run(command.arg(&json).args(["--", "sh", "-c", &daemon]), "");
        let told = as_written("run", &fs::read_to_string(&json).unwrap());
        let problems = told["status"]["problems"].to_string();
        assert!(problems.contains("(sleep) has left the zone's cgroup"), "{method}: {told}");
        assert!(unwrapped(&ended.stderr).contains("(sleep) outlives the command"), "{}", ended.stderr);
    }
}

#[test]
fn an_orphan_of_an_ordinary_user_is_slowed() {
    let _alone = alone();
    if !is_root() || !can_emulate_by(&["cpu-lim"]) {
        return;
    }
    let (_folder, mut command) = as_nobody(&[]);
    command.args(words("run -s 30% -c 0 -m cpu-lim -- sh -c"));
    // Its parent has ended before anybody has looked.
    let ended = run(command.arg(format!("({} & ) ; sleep 2", LOOP.replace('␣', " "))), "");
    let numbers: Vec<f64> = ended.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [cpu, wall] = numbers[..] else { panic!("{ended:?}") };
    assert!(cpu / wall / 1e7 < 0.45, "{ended:?}");
}

#[test]
fn processes_that_hand_on_to_the_next_are_counted() {
    let _alone = alone();
    if !is_root() || !can_emulate_by(&["cpu-lim"]) {
        return;
    }
    let relay = "hop() { i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; \
        read now rest </proc/uptime; now=${now%.*}${now#*.}; [ $now -gt $end ] || hop & }; \
        read now rest </proc/uptime; end=$((${now%.*}${now#*.}+200)); (hop); sleep 2.1";
    let (folder, mut command) = as_nobody(&[]);
    let kept = folder.path().join("run.json");
    fs::write(&kept, "").unwrap();
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o666)).unwrap();
    command.args(words("run -s 30% -c 0 -m cpu-lim --json")).arg(&kept).args(["--", "sh", "-c", relay]);
    let ended = run(&mut command, "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let status = &as_written("run", &fs::read_to_string(kept).unwrap())["status"];
    let used = status["used_cpus"].as_f64().unwrap_or_else(|| panic!("{status}"));
    assert!(used > 0.1 && (used < 0.36 || status["health"] == "degraded"), "{status}");
}

#[test]
fn an_orphan_of_an_ordinary_user_may_run_anywhere_at_the_end() {
    let _alone = alone();
    if !is_root() || !can_emulate_by(&["cpu-lim"]) || !has_cpus(2) {
        return;
    }
    let allowed = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap().to_owned()
    };
    let (_folder, mut command) = as_nobody(&[]);
    command.args(words("run -q -s 30% -c 0 -m cpu-lim -- sh -c"));
    let ended = run(command.arg("(sleep 20 >/dev/null 2>&1 & echo $!) ; sleep 0.5"), "");
    let orphan = ended.stdout.trim();
    let its = allowed(orphan);
    kill(Pid::from_raw(orphan.parse().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(its, allowed("self"), "{}", ended.stderr);
}

#[test]
fn real_time_calls_work_in_every_method() {
    let _alone = alone();
    if !is_root() {
        skip("an ordinary user has no real-time tasks");
        return;
    }
    for method in methods() {
        // The groups of the one before are just being removed.
        for cpus in ["", "--cpus 0", "--cpus 0", "--cpus 0", "--cpus 0", "--cpus 0"] {
            let ended =
                run(&mut emu(words(&format!("run -q -s 60% {cpus} -m {method} -- chrt -f 5 true"))), "");
            assert_eq!(ended.code(), Some(0), "{method} {cpus}: {}", ended.stderr);
        }
    }
}

#[test]
fn nothing_is_claimed_of_a_program_that_sleeps() {
    let _alone = alone();
    for method in methods() {
        // On a busy machine a program waits while it begins, and a method may miss periods, of which it tells.
        in_some_attempt(|| {
            let (ended, json) = told(&format!("-s 30% -m {method} -- sleep 0.6"));
            let status = &json["status"];
            let holds = status["health"] == "holding" || status["missed"] != 0;
            let is_open = json["delivered"].is_null() && unwrapped(&ended.stderr).contains("cannot tell");
            if holds && is_open { Ok(()) } else { Err(format!("{method}: {json}")) }
        });
    }
}

#[test]
fn a_process_that_outlives_the_command_is_told_of() {
    let _alone = alone();
    let Some(method) = methods().into_iter().next() else {
        skip("no method works here for this user");
        return;
    };
    let script = "setsid␣sleep␣3␣&␣sleep␣0.3";
    let (ended, _) = told(&format!("-s 30% -m {method} -- sh -c {script}"));
    let said = unwrapped(&ended.stderr);
    assert!(said.contains("(sleep) outlives the command"), "{said}");
}
