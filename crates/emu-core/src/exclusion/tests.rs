//! On real tasks of the test's own: only these are taken.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use super::*;
use crate::cgroup::testing::{for_each_version, processes, zone};
use crate::cgroup::{TaskGroup, confine};
use crate::error::ErrorKind;
use crate::host::Controller;
use crate::node::Node;
use crate::prepared::choose;
use crate::process::Stat;
use crate::session::Session;
use crate::speed::Target;
use crate::sys::{Pid, affinity};
use crate::testing::{skip, wait_until};
use crate::undo::{Journal, TaskSet, give_back};
use crate::zone::Demand;

/// A process that ends with the test, and its children with it.
struct Program(Child);

impl Program {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(words[0]);
        Self(command.args(&words[1..]).stdin(Stdio::piped()).spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        self.0.id() as Pid
    }

    fn child(&self) -> Option<Pid> {
        let text = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid())).unwrap();
        text.split_whitespace().next().map(|pid| pid.parse().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = self.child() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), nix::sys::signal::SIGKILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two tests at a time would take each other's tasks: each undoes for all of the host.
static ALONE: Mutex<()> = Mutex::new(());

struct Bed {
    _dir: tempfile::TempDir,
    host: Host,
    journal: Journal,
    taker: Taker,
    /// All CPUs, the first, and the others.
    all: CpuList,
    first: CpuList,
    others: CpuList,
}

/// `None` where there is one CPU only.
fn bed() -> Option<Bed> {
    let all = affinity::get(0).unwrap();
    let first: CpuList = all.first().into_iter().collect();
    let others = all.difference(&first);
    if others.is_empty() {
        skip("there is one CPU only");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Host::detect(&Roots { state: dir.path().join("state"), ..Roots::system() }).unwrap();
    // Zones of the tests may have the CPUs.
    let journal = Journal::open(&host.roots, &"1000".parse().unwrap(), "test", "test").unwrap();
    let taker = Taker::new(&host, &first, Vec::new(), &journal);
    Some(Bed { _dir: dir, host, journal, taker, all, first, others })
}

fn cpus(pid: Pid) -> CpuList {
    affinity::get(pid).unwrap()
}

#[test]
fn tasks_and_their_later_children_keep_off_and_get_all_back() {
    let _alone = ALONE.lock();
    let Some(Bed { journal, mut taker, all, others, .. }) = bed() else { return };
    let mut shell = Program::start(&["sh", "-c", "read a; sleep 60 & wait"]);
    let pid = shell.pid();
    taker.take_all(&mut || Ok(vec![pid])).unwrap();
    assert_eq!((cpus(pid), taker.taken()), (others.clone(), 1));
    drop(shell.0.stdin.take());
    wait_until(|| shell.child().is_some());
    let child = shell.child().unwrap();
    assert_eq!(cpus(child), others);
    journal.undo_all().unwrap();
    assert_eq!([cpus(pid), cpus(child)], [all.clone(), all]);
    assert_eq!(journal.notes(), Vec::<String>::new());
}

#[test]
fn a_task_that_comes_back_is_taken_again_and_keeps_its_choice() {
    let _alone = ALONE.lock();
    let Some(Bed { journal, mut taker, all, first, others, .. }) = bed() else { return };
    let sleeper = Program::start(&["sleep", "60"]);
    let pid = sleeper.pid();
    taker.take(&[pid]).unwrap();
    affinity::set(pid, &all).unwrap();
    taker.take(&[pid]).unwrap();
    assert_eq!(cpus(pid), others);
    // It has no other CPU now.
    affinity::set(pid, &first).unwrap();
    taker.take(&[pid]).unwrap();
    assert_eq!(cpus(pid), first);
    let staying = taker.staying();
    assert!(staying.len() == 1 && staying[0].contains(&format!("task {pid} (sleep)")), "{staying:?}");
    journal.undo_all().unwrap();
    assert_eq!(cpus(pid), first);
}

#[test]
fn a_task_without_another_cpu_is_a_reason_to_refuse() {
    let _alone = ALONE.lock();
    let Some(Bed { journal, mut taker, first, .. }) = bed() else { return };
    let bound = Program::start(&["taskset", "-c", &first.to_string(), "sleep", "60"]);
    let pid = bound.pid();
    wait_until(|| cpus(pid) == first);
    let error = taker.take_all(&mut || Ok(vec![pid])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&format!("task {pid} ")), "{error}");
    journal.undo_all().unwrap();
    assert_eq!(cpus(pid), first);
}

#[test]
fn a_task_that_has_ended_is_no_reason_to_refuse() {
    let _alone = ALONE.lock();
    let Some(Bed { mut taker, first, .. }) = bed() else { return };
    let zombie = Program::start(&["taskset", "-c", &first.to_string(), "true"]);
    let pid = zombie.pid();
    wait_until(|| crate::process::Stat::read("/proc".as_ref(), pid).unwrap().state == b'Z');
    assert_eq!(cpus(pid), first);
    taker.take_all(&mut || Ok(vec![pid])).unwrap();
    assert!(taker.staying().is_empty() && taker.taken() == 0);
}

#[test]
fn what_joins_the_node_gets_back_what_was_taken_or_inherited() {
    let _alone = ALONE.lock();
    let Some(Bed { _dir, host, journal, mut taker, all, others, .. }) = bed() else { return };
    let chosen = Program::start(&["taskset", "-c", &others.to_string(), "sleep", "60"]);
    wait_until(|| cpus(chosen.pid()) == others);
    let mut shell = Program::start(&["sh", "-c", "read a; sleep 60 & wait"]);
    taker.take_all(&mut || Ok(vec![shell.pid()])).unwrap();
    drop(shell.0.stdin.take());
    wait_until(|| shell.child().is_some());
    let both = [shell.pid(), shell.child().unwrap()];
    assert_eq!(both.map(cpus), [others.clone(), others.clone()]);
    give_back(&host.roots, &[&both[..], &[chosen.pid()]].concat()).unwrap();
    assert_eq!(both.map(cpus), [all.clone(), all.clone()]);
    assert_eq!(cpus(chosen.pid()), others);
    journal.undo_all().unwrap();
    assert_eq!(both.map(cpus), [all.clone(), all]);
    assert_eq!(journal.notes(), Vec::<String>::new());
}

#[test]
fn what_joins_a_zone_has_all_back_where_the_node_ends_first() {
    let _alone = ALONE.lock();
    for joins_node in [false, true] {
        let Some(Bed { _dir, host, journal, mut taker, all, first, others }) = bed() else { return };
        let sleeper = Program::start(&["sleep", "60"]);
        let pid = sleeper.pid();
        taker.take(&[pid]).unwrap();
        assert_eq!(cpus(pid), others);
        let targets = first.iter().map(|cpu| (cpu, Target { share: 0.9, clock: None })).collect();
        let prepared = choose(&host, &Demand::new(targets)).unwrap();
        if joins_node {
            let node = Node::create(&prepared, "node two").unwrap();
            node.adopt(pid).unwrap();
            journal.undo_all().unwrap();
            assert_eq!(cpus(pid), first);
            node.remove().1.unwrap();
        } else {
            let session = Session::engage(&prepared, "two", processes(&[pid])).unwrap();
            journal.undo_all().unwrap();
            assert_eq!(cpus(pid), first);
            session.release().1.unwrap();
        }
        assert_eq!(cpus(pid), all, "{joins_node}");
    }
}

#[test]
fn what_another_zone_keeps_to_just_these_cpus_stays_there() {
    let _alone = ALONE.lock();
    let Some(Bed { all, first, others, .. }) = bed() else { return };
    for_each_version(Controller::Cpuset, |host| {
        let journal = Journal::open(&host.roots, &first, "test", "exclusive").unwrap();
        let mut taker = Taker::new(host, &first, Vec::new(), &journal);
        taker.record_inherited(&[all.clone(), others.clone()]).unwrap();
        let sleeper = Program::start(&["sleep", "60"]);
        let pid = sleeper.pid();
        let theirs = Journal::open(&host.roots, &others, "test", "other").unwrap();
        let zone = zone(&others, processes(&[pid]));
        let _group = TaskGroup::create(host, &zone, &[Controller::Cpuset], &theirs).unwrap();
        journal.undo_all().unwrap();
        assert_eq!(cpus(pid), others);
        theirs.undo_all().unwrap();
        assert_eq!(cpus(pid), all);
    });
}

#[test]
fn what_another_zone_binds_to_just_these_cpus_stays_bound() {
    let _alone = ALONE.lock();
    for is_older in [false, true] {
        let Some(Bed { _dir, host, journal, mut taker, all, others, .. }) = bed() else { return };
        let proc = &host.roots.proc;
        let mut shell = Program::start(&["sh", "-c", "read a; sleep 60 & wait"]);
        let pid = shell.pid();
        let theirs = Journal::open(&host.roots, &others, "test", "other").unwrap();
        let bind = || {
            let starttime = Stat::read(proc, pid).unwrap().starttime;
            let tasks = TaskSet::DescendantsOf { pid, starttime };
            confine::bind(proc, &others, &theirs, &[tasks], || Ok(vec![pid])).unwrap();
        };
        if is_older {
            bind();
        }
        taker.take_all(&mut || Ok(vec![pid])).unwrap();
        taker.record_inherited(&[all.clone(), others.clone()]).unwrap();
        if !is_older {
            give_back(&host.roots, &[pid]).unwrap();
            bind();
        }
        drop(shell.0.stdin.take());
        wait_until(|| shell.child().is_some());
        let both = [pid, shell.child().unwrap()];
        journal.undo_all().unwrap();
        assert_eq!(both.map(cpus), [others.clone(), others], "{is_older}");
        theirs.undo_all().unwrap();
        assert_eq!(both.map(cpus), [all.clone(), all], "{is_older}");
        assert_eq!([journal.notes(), theirs.notes()].concat(), Vec::<String>::new());
    }
}

#[test]
fn one_node_is_exclusive_at_a_time_and_leaves_the_host_a_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots { state: dir.path().to_owned(), ..Roots::system() };
    let held = only_one(&roots).unwrap();
    let error = only_one(&roots).unwrap_err();
    assert!(error.to_string().contains(&format!("that of emu {}", std::process::id())), "{error}");
    let journal = Journal::open(&roots, &"0".parse().unwrap(), "fracas", "node one").unwrap();
    let error = only_one(&roots).unwrap_err();
    assert!(error.to_string().contains("already: node one, fracas on CPU 0 of emu"), "{error}");
    journal.undo_all().unwrap();
    drop(held);
    only_one(&roots).unwrap();
    let host = Host::detect(&roots).unwrap();
    assert_eq!(check_exclusive(&host, &host.online()).unwrap_err().kind(), ErrorKind::Unavailable);
}
