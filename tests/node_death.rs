//! The keeper of a node, its guardian, or both are killed at random moments: the program runs on freely, nothing is left, and
//! what `list` and `apply` tell next is true.
//!
//! `tests/campaign nodes` tries more deaths.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::campaign::{Random, Table, Wanted, kill_marked, left_of};
use crate::common::{
    alone, child_called, comm, emu, eventually, finish, is_alive, marked, methods, run, skip, start, words,
};
use crate::node::{LOOP, Node, apply, emu_node};

/// What is being done to the node when the death comes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    Create,
    Set,
    Nothing,
    Remove,
}

const MOMENTS: [Moment; 4] = [Moment::Create, Moment::Set, Moment::Nothing, Moment::Remove];

/// Who dies.
#[derive(Debug, Clone, Copy)]
struct Dies {
    keeper: bool,
    guardian: bool,
}

const VICTIMS: [Dies; 3] = [
    Dies { keeper: true, guardian: false },
    Dies { keeper: false, guardian: true },
    Dies { keeper: true, guardian: true },
];

impl Dies {
    /// Kills the process if it is one that dies.
    fn strike(self, pid: i32) {
        let dies = match comm(pid).as_deref() {
            Some("emu") => self.keeper,
            Some("emu-guardian") => self.guardian,
            _ => false,
        };
        if dies {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

#[test]
fn a_node_whose_keeper_is_killed_leaves_nothing() {
    deaths(Wanted::short(8));
}

#[test]
#[ignore = "a campaign of minutes: tests/campaign nodes"]
fn nodes_leave_nothing_however_often_they_are_killed() {
    deaths(Wanted::from_environment());
}

fn deaths(Wanted { count, seed }: Wanted) {
    let _alone = alone();
    let methods = methods();
    if methods.is_empty() {
        skip("no method works here");
        return;
    }
    let (mut random, mut wrong) = (Random(seed), Vec::new());
    let mut counts = [[0; MOMENTS.len()]; VICTIMS.len()];
    for round in 0..count {
        let (method, victim) = (random.pick(&methods).clone(), random.below(VICTIMS.len() as u64) as usize);
        let moment = MOMENTS[round as usize % MOMENTS.len()];
        counts[victim][moment as usize] += 1;
        let left = one_death(&method, VICTIMS[victim], moment, &mut random);
        if !left.is_empty() {
            wrong.push(format!("{method}, {:?}, {moment:?}: {}", VICTIMS[victim], left.join("; ")));
        }
    }
    let mut table = Table::new(&["killed", "create", "set", "nothing", "remove"]);
    for (victim, counts) in ["keeper", "guardian", "both"].into_iter().zip(counts) {
        table.row([victim.to_owned()].into_iter().chain(counts.map(|count| count.to_string())));
    }
    println!("seed {seed}, {} wrong\n{table}", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Makes a node with a loop, kills at a random moment, and returns what is not as it should be.
fn one_death(method: &str, dies: Dies, moment: Moment, random: &mut Random) -> Vec<String> {
    let mark = format!("EMU_CRASH_MARK=node-{}-{}", std::process::id(), random.below(1 << 30));
    let (name, value) = mark.split_once('=').expect("a mark");
    let marked_emu = |line: &str| {
        let mut command = emu(words(line));
        command.env(name, value);
        command
    };
    let create = format!("node create one --cpus 0 --speed 30% --method {method} -q");
    let mut node = Node { name: "one", keeper: 0 };
    let mut left = Vec::new();
    let mut looping = None;
    let mut emus = Vec::new();
    let doing = if moment == Moment::Create {
        let creating = start(&mut marked_emu(&create));
        sleep(Duration::from_micros(random.below(60_000)));
        emus = marked(&mark);
        for pid in &emus {
            dies.strike(*pid);
        }
        Some(creating)
    } else {
        let created = run(&mut marked_emu(&create), "");
        assert_eq!(created.code(), Some(0), "{}", created.stderr);
        node.keeper = node.shown()["pid"].as_u64().expect("a keeper") as u32;
        emus.push(node.keeper as i32);
        // The emu that may stay its parent ends with it, and is not waited for.
        let child = start(&mut emu(words(&format!("node exec one -- env {mark} timeout 60 sh -c {LOOP}"))));
        let mut pid = 0;
        eventually("the command has joined", || {
            pid = node.shown()["members"][0].as_i64().unwrap_or(0) as i32;
            pid != 0
        });
        looping = Some((child, pid));
        let guardian = child_called(node.keeper, "emu-guardian");
        let doing = match moment {
            Moment::Set => Some(start(&mut emu(words("node set one --speed 60% -q")))),
            Moment::Remove => Some(start(&mut emu(words("node remove one --free")))),
            Moment::Create | Moment::Nothing => None,
        };
        sleep(Duration::from_micros(random.below(30_000)));
        for pid in guardian.into_iter().chain([node.keeper as i32]) {
            dies.strike(pid);
        }
        doing
    };
    let _ = doing.map(finish);
    if dies.keeper {
        eventually("the keeper has ended", || !is_alive(node.keeper as i32));
    }
    // One that was begun just after the blow lives, or ends for want of whoever began it.
    let mut shown = Value::Null;
    eventually("what is shown lives", || {
        shown = node.shown();
        shown.is_null() || is_alive(shown["pid"].as_i64().unwrap_or(0) as i32)
    });
    if !shown.is_null() {
        let removed = emu_node("remove one --free");
        if removed.code() != Some(0) && !node.shown().is_null() {
            left.push(format!("remove: {:?} {}", removed.code(), removed.stderr));
        }
    }
    // The first one may tell of the death, or remove what was begun after the look; the next one knows nothing of it.
    for is_first in [true, false] {
        let applied = apply("", "");
        let is_told = is_first && ["has died", "remove one"].iter().any(|told| applied.stderr.contains(told));
        if applied.code() != Some(0) || !(is_told || applied.stderr.is_empty()) {
            left.push(format!("apply: {:?} {}", applied.code(), applied.stderr));
        }
    }
    if looping.as_ref().is_some_and(|(_, pid)| !is_alive(*pid)) {
        left.push("the program has ended with the node".to_owned());
    }
    for emu in emus {
        left.extend(left_of(emu as u32, &mark));
    }
    kill_marked(&mark);
    let _ = looping.map(|(child, _)| finish(child));
    left
}
