//! emu, its guardian, or both are killed at random moments of a run: nothing may be left stopped, frozen,
//! throttled, real-time or in the way, after one further command where both died.
//!
//! `tests/campaign kills` tries more deaths, of each kind with each method: after a change of how things are undone.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::campaign::{Random, Table, Wanted, kill_marked, left_of};
use crate::common::{
    self, PATIENCE, alone, as_nobody, can_emulate_by, child_called, emu, eventually, groups_of, has_cpus,
    is_alive, is_real_time, is_root, marked, methods, place_of, run, skip, words,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often each death comes with each method: a multiple of the three moments.
const ROUNDS: u32 = 6;

/// The programs that are slowed: a busy one with a busy and a sleeping child, and one that forks all the time. They end
/// by themselves.
const PROGRAMS: [&str; 2] = [
    "timeout 20 sh -c 'while :; do :; done' & sleep 20 & exec timeout 20 sh -c 'while :; do :; done'",
    "exec timeout 20 sh -c 'while :; do sh -c \"sleep 0.01 & :\"; done'",
];

/// Who is killed.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Emu,
    Guardian,
    Both,
}

const VICTIMS: [Victim; 3] = [Victim::Emu, Victim::Guardian, Victim::Both];

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
    let (methods, mut all) = (methods(), Vec::new());
    for method in &methods {
        for victim in VICTIMS {
            all.extend((0..ROUNDS).map(|round| (method.clone(), victim, round)));
        }
    }
    deaths(Wanted::short(0).seed, &methods, all);
}

#[test]
#[ignore = "a campaign of minutes: tests/campaign kills"]
fn nothing_is_left_however_often_emu_is_killed() {
    let (methods, Wanted { count, seed }) = (methods(), Wanted::from_environment());
    let mut random = Random(seed ^ 1);
    let any = |round| (random.pick(&methods).clone(), *random.pick(&VICTIMS), round);
    let all = (0..count as u32).filter(|_| !methods.is_empty()).map(any).collect();
    deaths(seed, &methods, all);
}

/// Has these die, and tells how often which.
fn deaths(seed: u64, methods: &[String], all: Vec<(String, Victim, u32)>) {
    let _alone = alone();
    if methods.is_empty() {
        skip("no method works here");
        return;
    }
    let mut random = Random(seed);
    let group = Group::new();
    let real_time = real_time_limit();
    let mut counts = vec![[0; 4]; methods.len()];
    let mut wrong = Vec::new();
    for (method, victim, round) in all {
        wait_for_init();
        let counts = &mut counts[methods.iter().position(|one| *one == method).expect("one of them")];
        counts[victim as usize] += 1;
        let mut left = one_death(&method, victim, round, &group, &mut random);
        if real_time_limit() != real_time {
            left.push(format!("the limit for real-time tasks is {:?}", real_time_limit()));
        }
        if !left.is_empty() {
            counts[VICTIMS.len()] += 1;
            wrong.push(format!("{method}, {victim:?}, round {round}: {}", left.join("; ")));
        }
    }
    let mut table = Table::new(&["method", "emu", "guardian", "both", "wrong"]);
    for (method, counts) in methods.iter().zip(counts) {
        table.row([method.clone()].into_iter().chain(counts.map(|count| count.to_string())));
    }
    println!("seed {seed}\n{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn real_time_limit() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").ok()
}

/// What has ended of a program that forks all the time stays until init takes it. Where init is slow, no process could be made any
/// more.
fn wait_for_init() {
    const MANY: usize = 8_000;
    let begin = Instant::now();
    while fs::read_dir("/proc").expect("/proc").count() > MANY && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Starts emu, kills at a random moment, and returns what is left after the guardian, or one further command where that
/// died, too.
fn one_death(method: &str, victim: Victim, round: u32, group: &Group, random: &mut Random) -> Vec<String> {
    let mark = format!("EMU_CRASH_MARK={}-{round}-{}", std::process::id(), random.below(1 << 30));
    let (name, value) = mark.split_once('=').expect("a mark");
    let (program, cpus) = (*random.pick(&PROGRAMS), *random.pick(&["", "--cpus 0"]));
    let mut command =
        emu(words(&format!("run --quiet --speed 30% --period 10ms {cpus} --method {method} -- sh -c")));
    let words_file = tempfile::NamedTempFile::new().expect("a file for what emu and its guardian say");
    let stderr = words_file.reopen().expect("the file to be opened again");
    command.arg(program).env(name, value).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
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
    if guardian.is_none() {
        // emu died before it had a guardian, and so before it had changed anything; only its journal may lie there.
        eventually("nothing is changed without a guardian", || groups_of(pid).is_empty());
    }
    let mut left = Vec::new();
    if matches!(victim, Victim::Both) || guardian.is_none() {
        let restored = run(&mut emu(["restore"]), "");
        if restored.code() != Some(0) {
            left.push(format!("restore ended with {:?}: {}", restored.code(), restored.stderr));
        }
    }
    left.extend(left_of(pid, &mark));
    if !left.is_empty() {
        left.push(format!("{moment} µs, {cpus}, {program}"));
        left.push(fs::read_to_string(words_file.path()).unwrap_or_default());
    }
    kill_marked(&mark);
    left
}

fn end(child: &mut Child) {
    let begin = Instant::now();
    while child.try_wait().expect("to wait for emu").is_none() {
        assert!(begin.elapsed() < PATIENCE, "emu has not ended");
        std::thread::sleep(Duration::from_millis(1));
    }
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

#[test]
fn orphans_that_a_subreaper_takes_over_may_run_anywhere_again() {
    let _alone = alone();
    if !is_root() || !can_emulate_by(&["cpu-lim"]) || !has_cpus(2) {
        return;
    }
    let (_folder, mut command) = as_nobody(&[]);
    // The orphan is emu's as long as emu lives, and then this process's, whose session is that of emu.
    command.args(words("run -q -s 30% -c 0 -m cpu-lim -- sh -c"));
    command.arg("(sleep 20 >/dev/null 2>&1 & echo $!); exec sleep 20").stdout(Stdio::piped());
    nix::sys::prctl::set_child_subreaper(true).expect("to be a subreaper");
    let mut emu = command.spawn().expect("emu to start");
    let mut line = String::new();
    let told = emu.stdout.take().map(|pipe| BufReader::new(pipe).read_line(&mut line));
    let orphan = line.trim().parse().expect("the orphan's number");
    let [here, slowed] = [std::process::id(), orphan].map(|pid| place_of(pid).1);
    emu.kill().and_then(|()| emu.wait()).expect("to kill emu");
    eventually("the orphan may run anywhere", || place_of(orphan).1 == here);
    nix::sys::prctl::set_child_subreaper(false).expect("to be none any more");
    let _ = kill(Pid::from_raw(orphan as i32), Signal::SIGKILL);
    assert!(told.is_some_and(|told| told.is_ok()) && slowed != here, "{line}: {slowed}");
    common::assert_nothing_left(emu.id());
}
