//! emu, its guardian, or both are killed at random moments of a run: nothing may be left stopped, frozen,
//! throttled, real-time or in the way, after one further command where both died.
//!
//! `EMU_CRASH_ROUNDS` sets how often each death is tried with each method: raise it after a change of how things are
//! undone. The seed is printed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{
    self, PATIENCE, alone, child_called, emu, eventually, groups_of, inside, is_root, methods, run, skip,
    words,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A multiple of the three moments at which deaths come.
const ROUNDS: u32 = 6;

/// The program that is slowed: a busy one with a busy and a sleeping child. It ends by itself.
const PROGRAM: &str =
    "timeout 20 sh -c 'while :; do :; done' & sleep 20 & exec timeout 20 sh -c 'while :; do :; done'";

/// Who is killed.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Emu,
    Guardian,
    Both,
}

/// Numbers that look random and come again with the same seed (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A process group that the kernel never takes for orphaned, however this test was started: one in it, its leader, has
/// its parent in another group of the session. The kernel hangs up all of an orphaned one while `cpu-lim` stops one of it.
struct Group(Child);

impl Group {
    fn new() -> Self {
        Self(Command::new("sleep").arg("3600").process_group(0).spawn().expect("sleep to start"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nothing_is_left_whoever_is_killed_at_whatever_moment() {
    let _alone = alone();
    let methods = methods();
    if methods.is_empty() {
        skip("no method works here");
        return;
    }
    let rounds = std::env::var("EMU_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    println!("seed {seed}, {rounds} rounds of each death with each of {}", methods.join(", "));
    let mut random = Random(seed);
    let group = Group::new();
    let real_time = real_time_limit();
    for method in &methods {
        for victim in [Victim::Emu, Victim::Guardian, Victim::Both] {
            for round in 0..rounds {
                one_death(method, victim, round, &group, &mut random);
                assert_eq!(real_time_limit(), real_time, "{method}, {victim:?}, round {round}");
            }
        }
    }
}

fn real_time_limit() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").ok()
}

/// Starts emu, kills at a random moment, and looks at what is left.
fn one_death(method: &str, victim: Victim, round: u32, group: &Group, random: &mut Random) {
    let mark = format!("EMU_CRASH_MARK={}-{round}-{}", std::process::id(), random.below(1 << 30));
    let (name, value) = mark.split_once('=').expect("a mark");
    let mut command =
        emu(words(&format!("run --quiet --speed 30% --period 10ms --method {method} -- sh -c")));
    let words_file = tempfile::NamedTempFile::new().expect("a file for what emu and its guardian say");
    let stderr = words_file.reopen().expect("the file to be opened again");
    command.arg(PROGRAM).env(name, value).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let mut child = command.process_group(group.0.id() as i32).spawn().expect("emu to start");
    let pid = child.id();
    // A third of the deaths fall into the start, a third into the release, the rest in between.
    let moment = match round % 3 {
        0 => random.below(30_000),
        1 => random.below(150_000),
        _ => {
            std::thread::sleep(Duration::from_micros(40_000 + random.below(40_000)));
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGTERM);
            random.below(10_000)
        }
    };
    std::thread::sleep(Duration::from_micros(moment));
    let guardian = child_called(pid, "emu-guardian");
    if let (Victim::Guardian | Victim::Both, Some(guardian)) = (victim, guardian) {
        let _ = kill(Pid::from_raw(guardian), Signal::SIGKILL);
    }
    if matches!(victim, Victim::Emu | Victim::Both) {
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
    } else {
        // emu lives on without its guardian, and must still undo everything itself.
        std::thread::sleep(Duration::from_micros(random.below(50_000)));
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGTERM);
    }
    end(&mut child);
    eventually("the guardian has done its work", || guardian.is_none_or(|pid| !is_alive(pid)));
    let what = format!("{method}, {victim:?}, round {round}, {moment} µs");
    if guardian.is_none() {
        // emu died before it had a guardian, and so before it had changed anything; only its journal may lie there.
        eventually("nothing is changed without a guardian", || groups_of(pid).is_empty());
    }
    if matches!(victim, Victim::Both) || guardian.is_none() {
        let restored = run(&mut emu(["restore"]), "");
        assert_eq!(restored.code(), Some(0), "{what}: {}", restored.stderr);
    }
    assert_eq!(groups_of(pid), Vec::<std::path::PathBuf>::new(), "{what}: groups are left");
    for left in marked(&mark) {
        let state = common::state(left).unwrap_or('-');
        assert_ne!(state, 'T', "{what}: process {left} is left stopped");
        assert!(!is_real_time(left), "{what}: process {left} is left real-time");
    }
    let journals = run(&mut inside("ls /run/emu", "true"), "");
    let said = fs::read_to_string(words_file.path()).unwrap_or_default();
    let ours = journals.stdout.lines().find(|name| name.starts_with(&format!("{pid}-")));
    assert_eq!(ours, None, "{what}: the journal is left: {said}");
    for left in marked(&mark) {
        let _ = kill(Pid::from_raw(left), Signal::SIGKILL);
    }
    eventually("the program is gone, which a frozen one could not be", || marked(&mark).is_empty());
}

fn end(child: &mut Child) {
    let begin = Instant::now();
    while child.try_wait().expect("to wait for emu").is_none() {
        assert!(begin.elapsed() < PATIENCE, "emu has not ended");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_alive(pid: i32) -> bool {
    common::state(pid).is_some_and(|state| state != 'Z')
}

/// Living processes that have the mark in their environment: the slowed program and its children.
fn marked(mark: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) && is_alive(*pid)
    })
    .collect()
}

/// Field 41 of `/proc/PID/stat`: the scheduling policy; 1 and 2 are the real-time ones.
fn is_real_time(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let policy = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(38));
    matches!(policy, Some("1" | "2"))
}

/// The checks above must be able to fail: a stopped process is seen, and a real-time one.
#[test]
fn what_the_crash_test_looks_for_would_be_seen() {
    let mark = format!("EMU_CRASH_MARK=seen-{}", std::process::id());
    let (name, value) = mark.split_once('=').expect("a mark");
    let mut child = Command::new("sleep").arg("20").env(name, value).spawn().expect("sleep to start");
    let pid = child.id() as i32;
    eventually("the process is found by its mark", || marked(&mark) == [pid]);
    kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("to stop it");
    eventually("it is seen to be stopped", || common::state(pid) == Some('T'));
    assert!(!is_real_time(pid));
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("to kill it");
    child.wait().expect("it to end");
}

/// Makes groups in those of emu, and leaves a process in each.
const NESTING: &str = "for group in $(find /sys/fs/cgroup -type d -name \"emu-$PPID-*\"); do
  mkdir -p $group/sub/inner || continue
  for file in cpuset.mems cpuset.cpus; do
    [ ! -e $group/$file ] || { cat $group/$file >$group/sub/$file; cat $group/$file >$group/sub/inner/$file; } 2>/dev/null
  done
  echo $$ >$group/sub/inner/cgroup.procs && made=y
done
[ \"$made\" ] || exit 7
sleep 20 >/dev/null 2>&1 &
exit 9";

#[test]
fn groups_that_the_program_has_made_go_with_those_of_emu() {
    let _alone = alone();
    let of_groups = ["cpu-freeze", "fracas"].map(str::to_owned);
    for method in methods().into_iter().filter(|method| is_root() && of_groups.contains(method)) {
        let begin = Instant::now();
        let mark = format!("EMU_CRASH_MARK=nesting-{}-{method}", std::process::id());
        let line = format!("run --speed 50% --cpus 0 --quiet -m {method} -- sh -c");
        let mut command = emu(words(&line));
        let ended =
            run(command.arg(NESTING).env("EMU_CRASH_MARK", mark.split_once('=').expect("a mark").1), "");
        let (took, mut left) = (begin.elapsed(), Vec::new());
        // One that is just beginning its program has no environment yet.
        eventually("what was left behind is found", || {
            left = marked(&mark);
            !left.is_empty()
        });
        for pid in &left {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        assert_eq!((ended.code(), left.len()), (Some(9), 1), "{method}: {}", ended.stderr);
        assert!(took < Duration::from_secs(4), "{method}: it has waited for what it could remove");
        common::assert_nothing_left(ended.pid);
    }
}
