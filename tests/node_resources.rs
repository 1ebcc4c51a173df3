//! What a node has of its own beside its speed: memory, and CPUs that the host keeps off.

use std::fs;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    alone, assert_nothing_left, assert_refused, can_emulate, emu, eventually, finish, has_cpus, place_of,
    run, skip, words,
};
use crate::node::{LOOP, Node, apply, emu_node};

/// Whether a node can have a limit of memory here.
fn has_memory_control() -> bool {
    let found = emu_core::Host::detect(&emu_core::Roots::system())
        .is_ok_and(|host| host.cgroups.with(emu_core::Controller::Memory).is_some_and(|it| it.writable));
    found || {
        skip("no cgroup with the memory controller can be made");
        false
    }
}

#[test]
fn what_runs_on_a_node_has_no_more_memory_than_the_node() {
    let _alone = alone();
    if !can_emulate() || !has_memory_control() {
        return;
    }
    for size in ["x", "0", "-1", "4k", "4KiB", "1.5G"] {
        assert_refused(&emu_node(&format!("create one --cpus 0 --speed 50% --memory {size}")), 2, size);
    }
    let absurd = emu_node("create one --cpus 0 --speed 50% --memory 9000000GiB");
    assert_refused(&absurd, 3, "more than the host has");
    let node = Node::create("one", "--speed 90% --memory 64MiB");
    let limit = || node.shown()["memory"]["limit"].as_u64();
    assert_eq!(limit(), Some(64 << 20));
    let eat = "head␣-c␣40M␣/dev/zero␣|␣tail␣-c␣40M␣|␣wc␣-c";
    let inside = emu_node(&format!("exec one -- sh -c {eat}"));
    assert_eq!((inside.code(), inside.stdout.trim()), (Some(0), "41943040"), "{}", inside.stderr);
    assert_eq!(emu_node("set one --memory 16MiB --speed 80%").code(), Some(0));
    assert_eq!(limit(), Some(16 << 20));
    // What is refused is refused wholly.
    assert_refused(&emu_node("set one --memory 32MiB --speed 900=80%"), 2, "a CPU elsewhere");
    assert_eq!(limit(), Some(16 << 20));
    // Where there is swap, it takes the rest.
    if fs::read_to_string("/proc/swaps").unwrap().lines().count() < 2 {
        let outside = emu_node(&format!("exec one -- sh -c {eat}"));
        assert!(!outside.stdout.contains("41943040"), "{}", outside.stdout);
        assert!(node.shown()["memory"]["killed"].as_u64().unwrap() > 0);
    }

    let dumped = emu_node("dump").stdout;
    assert!(dumped.contains("memory = \"16MiB\""), "{dumped}");
    assert_eq!(&*apply(&dumped, "--dry-run").stdout, "Nothing is to be changed.\n");
    let keeper = node.shown()["pid"].clone();
    assert_eq!(apply(&dumped.replace("16MiB", "32M"), "-q").code(), Some(0));
    assert_eq!((limit(), &node.shown()["pid"]), (Some(32 << 20), &keeper));
    let (child, _) = node.begin(LOOP);
    kill(Pid::from_raw(node.keeper as i32), Signal::SIGKILL).unwrap();
    finish_killed(child, node.keeper);
}

/// A loop on a node whose emu was killed is free, and nothing is left of the node.
fn finish_killed(mut child: Child, keeper: u32) {
    let own = place_of(std::process::id());
    eventually("the command is free", || place_of(child.id()) == own);
    child.kill().unwrap();
    finish(child);
    assert_nothing_left(keeper);
}

fn allowed(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

#[test]
fn an_exclusive_node_keeps_the_host_off_its_cpus_until_its_end() {
    let _alone = alone();
    if !can_emulate() || !has_cpus(2) {
        return;
    }
    let own = std::process::id();
    let before = allowed(own);
    for is_killed in [false, true] {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let node = Node::create("one", "--speed 50% --exclusive");
        let is_off = |pid: u32| !allowed(pid).starts_with('0');
        assert!(is_off(own) && is_off(sleeper.id()), "{}", allowed(own));
        assert!(node.shown()["exclusive"]["taken"].as_u64().unwrap() > 1);
        let there = emu_node("exec one -- grep Cpus_allowed_list /proc/self/status");
        assert!(there.stdout.trim().ends_with("\t0"), "{}", there.stdout);
        let mut late = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_off(late.id()));
        // What comes back is taken again.
        let bound = Command::new("taskset").args(["-cp", "0-1", &late.id().to_string()]).output();
        assert!(bound.unwrap().status.success());
        eventually("it is taken again", || is_off(late.id()));
        let dumped = emu_node("dump").stdout;
        assert!(dumped.contains("exclusive = true"), "{dumped}");
        let same = apply(&dumped, "--dry-run");
        assert_eq!(&*same.stdout, "Nothing is to be changed.\n", "{}", same.stderr);
        let second = emu_node("create two --cpus 1 --speed 50% --exclusive");
        assert_refused(&second, 3, "a second one");
        assert!(second.stderr.contains("node one"), "{}", second.stderr);
        if is_killed {
            kill(Pid::from_raw(node.keeper as i32), Signal::SIGKILL).unwrap();
            eventually("all is put back", || allowed(own) == before);
            // It waits until the guardian has done the rest.
            assert_eq!(run(&mut emu(words("restore")), "").code(), Some(0));
        } else {
            assert_eq!(emu_node("remove one").code(), Some(0));
        }
        assert_eq!([own, sleeper.id()].map(allowed), [before.clone(), before.clone()], "{is_killed}");
        for child in [&mut sleeper, &mut late] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_nothing_left(node.keeper);
    }
    assert_refused(&emu_node(&format!("create one --cpus {before} --speed 50% --exclusive")), 3, "all CPUs");
}
