//! Real groups, where they can be made; otherwise each test prints why it is skipped.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::record::Task;
use super::super::record::Undo;
use super::super::task;
use super::{Sleeper, eventually, playground, proc, run, text, undone};
use crate::roots::Roots;
use crate::sys::fork::{Child, fork_leaderless};
fn system() -> Roots {
    Roots { sys: "/sys".into(), ..playground().1 }
}

/// A real group of the test; removed when dropped, if the test has not removed it.
struct Group(PathBuf);

impl Group {
    /// Makes a group in a hierarchy that has the file; prints why where that is impossible.
    fn create(mounts: &[&str], file: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for mount in mounts {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = Path::new(mount).join(format!("emu-test-{}-{number}", std::process::id()));
            if fs::create_dir(&path).is_ok() {
                let group = Self(path);
                if group.0.join(file).exists() {
                    return Some(group);
                }
            }
        }
        println!("skipped: no group with {file} can be made in {mounts:?} (needs root and a cgroup mount)");
        None
    }

    fn freezer_v1() -> Option<Self> {
        Self::create(&["/sys/fs/cgroup/freezer"], "freezer.state")
    }

    fn v2() -> Option<Self> {
        Self::create(&["/sys/fs/cgroup/unified", "/sys/fs/cgroup"], "cgroup.freeze")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn above(&self, name: &str) -> PathBuf {
        self.0.parent().unwrap().join(name)
    }

    fn undo(&self) -> Undo {
        Undo::Group {
            path: self.0.clone(),
            members: "cgroup.procs".into(),
            return_to: self.above("cgroup.procs"),
        }
    }

    /// Whether the process is in this group, by its `/proc/<pid>/cgroup`.
    fn holds(&self, sleeper: &Sleeper) -> bool {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        fs::read_to_string(format!("/proc/{}/cgroup", sleeper.0.id())).unwrap().contains(name)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A process whose first thread has ended; killed and reaped when dropped.
struct Leaderless(Child);

impl Drop for Leaderless {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn write(path: &Path, value: &impl ToString) {
    crate::control_file::write(path, &value.to_string()).unwrap();
}

#[test]
fn a_frozen_group_of_version_1_is_thawed_and_removed() {
    let Some(group) = Group::freezer_v1() else { return };
    let sleeper = Sleeper::start();
    write(&group.file("cgroup.procs"), &sleeper.0.id());
    let state = group.file("freezer.state");
    write(&state, &"FROZEN");
    eventually("the group is frozen", || fs::read_to_string(&state).unwrap().trim() == "FROZEN");
    let records = [group.undo(), Undo::Thaw { file: state, value: "THAWED".into() }];
    assert_eq!(run(&system(), &records), (undone(2), vec![]));
    assert!(!group.0.exists() && !group.holds(&sleeper));
    assert_eq!(sleeper.state(), 'S');
    assert_eq!(run(&system(), &records), (undone(2), vec![]));
}

#[test]
fn a_frozen_group_of_version_2_is_thawed_and_removed() {
    let Some(group) = Group::v2() else { return };
    let sleeper = Sleeper::start();
    write(&group.file("cgroup.procs"), &sleeper.0.id());
    write(&group.file("cgroup.freeze"), &1);
    let thaw = Undo::Thaw { file: group.file("cgroup.freeze"), value: "0".into() };
    assert_eq!(run(&system(), &[group.undo(), thaw]), (undone(2), vec![]));
    assert!(!group.0.exists() && !group.holds(&sleeper));
}

#[test]
fn a_threaded_group_is_emptied_by_its_threads() {
    let Some(group) = Group::v2() else { return };
    let inner = Group(group.file("inner"));
    fs::create_dir(&inner.0).unwrap();
    write(&inner.file("cgroup.type"), &"threaded");
    let sleeper = Sleeper::start();
    write(&group.file("cgroup.procs"), &sleeper.0.id());
    write(&inner.file("cgroup.threads"), &sleeper.0.id());
    for members in ["cgroup.threads", "cgroup.procs"] {
        let record = Undo::Group {
            path: inner.0.clone(),
            members: members.into(),
            return_to: group.file("cgroup.threads"),
        };
        assert_eq!(run(&system(), &[record]), (undone(1), vec![]), "{members}");
    }
    assert_eq!(run(&system(), &[group.undo()]), (undone(1), vec![]));
    assert!(!group.0.exists() && !group.holds(&sleeper));
}

#[test]
fn a_process_whose_first_thread_has_ended_is_moved_too() {
    for group in [Group::v2(), Group::freezer_v1()].into_iter().flatten() {
        let leaderless = Leaderless(fork_leaderless().unwrap());
        let pid = leaderless.0.pid();
        let proc = proc();
        eventually("the first thread has ended", || {
            task::stat(proc.as_fd(), pid).unwrap().unwrap().state == b'Z'
        });
        write(&group.file("cgroup.procs"), &pid);
        let name = group.0.file_name().unwrap().to_str().unwrap().to_owned();
        let groups = || -> Vec<bool> {
            fs::read_dir(format!("/proc/{pid}/task"))
                .unwrap()
                .filter(|thread| !thread.as_ref().unwrap().path().ends_with(pid.to_string()))
                .map(|thread| {
                    fs::read_to_string(thread.unwrap().path().join("cgroup")).unwrap().contains(&name)
                })
                .collect()
        };
        assert_eq!(groups(), [true]);
        assert_eq!(run(&system(), &[group.undo()]), (undone(1), vec![]));
        assert!(!group.0.exists());
        assert_eq!(groups(), [false]);
    }
}

#[test]
fn a_group_is_emptied_while_its_tasks_fork() {
    for group in [Group::v2(), Group::freezer_v1()].into_iter().flatten() {
        let script = "while :; do sleep 0.002 & sleep 0.001; done";
        let storm = Sleeper(Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap());
        write(&group.file("cgroup.procs"), &storm.0.id());
        thread::sleep(Duration::from_millis(50));
        assert_eq!(run(&system(), &[group.undo()]), (undone(1), vec![]));
        assert!(!group.0.exists());
    }
}

#[test]
fn a_group_with_a_zombie_is_removed() {
    for group in [Group::v2(), Group::freezer_v1()].into_iter().flatten() {
        let mut sleeper = Sleeper::start();
        write(&group.file("cgroup.procs"), &sleeper.0.id());
        sleeper.0.kill().unwrap();
        sleeper.reaches('Z');
        assert_eq!(run(&system(), &[group.undo()]), (undone(1), vec![]));
        assert!(!group.0.exists());
    }
}

#[test]
fn tasks_go_to_the_group_above_when_theirs_has_gone() {
    let Some(group) = Group::freezer_v1() else { return };
    let sleeper = Sleeper::start();
    write(&group.file("cgroup.procs"), &sleeper.0.id());
    let return_to = group.above("emu-test-gone/cgroup.procs");
    let record = Undo::Group { path: group.0.clone(), members: "tasks".into(), return_to };
    let (outcome, messages) = run(&system(), &[record]);
    assert_eq!((outcome, messages.len()), (undone(1), 1));
    assert!(messages[0].contains("emu-test-gone"), "{messages:?}");
    assert!(!group.0.exists() && !group.holds(&sleeper));
}

#[test]
fn groups_within_a_group_go_with_it() {
    let Some(group) = Group::freezer_v1() else { return };
    let [other, inner] = ["other", "one/two"].map(|name| group.file(name));
    fs::create_dir(&other).unwrap();
    fs::create_dir_all(&inner).unwrap();
    let sleeper = Sleeper::start();
    write(&inner.join("cgroup.procs"), &sleeper.0.id());
    let (outcome, messages) = run(&system(), &[group.undo()]);
    assert_eq!(outcome, undone(1), "{messages:?}");
    assert!(!group.0.exists() && sleeper.state() != 'Z');
}

#[test]
fn too_many_groups_in_each_other_fail_in_bounded_time() {
    let Some(group) = Group::freezer_v1() else { return };
    let deep = group.file(&["a"; 20].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let started = Instant::now();
    let (outcome, messages) = run(&system(), &[group.undo()]);
    assert_eq!((outcome.undone, outcome.failed), (0, 1));
    assert!(messages[0].contains("cannot remove the group"), "{messages:?}");
    // Removing is tried twice.
    assert!(started.elapsed() < Duration::from_secs(8));
    for inner in deep.ancestors().take_while(|inner| **inner != group.0) {
        fs::remove_dir(inner).unwrap();
    }
}

#[test]
fn a_quota_that_needs_its_old_period_is_restored_after_it() {
    let mounts = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
    let Some(group) = Group::create(&mounts, "cpu.cfs_quota_us") else { return };
    let inner = Group(group.file("inner"));
    fs::create_dir(&inner.0).unwrap();
    let (quota, period) = (inner.file("cpu.cfs_quota_us"), inner.file("cpu.cfs_period_us"));
    write(&group.file("cpu.cfs_quota_us"), &50_000);
    for (file, value) in [(&quota, 50_000), (&quota, 4_000), (&period, 20_000)] {
        write(file, &value);
    }
    let record = |path: &Path, old: u32, new: u32| Undo::File {
        path: path.into(),
        old: old.to_string(),
        new: vec![new.to_string()],
    };
    // With a period of 20 ms, the quota would exceed that of the parent group.
    let records = [record(&period, 100_000, 20_000), record(&quota, 50_000, 4_000)];
    assert_eq!(run(&system(), &records), (undone(2), vec![]));
    assert_eq!((text(&quota).trim(), text(&period).trim()), ("50000", "100000"));
}

#[test]
fn controllers_of_a_real_group_are_switched_off() {
    let Some(group) = Group::v2() else { return };
    let offered = text(&group.file("cgroup.controllers"));
    let Some(controller) = offered.split_whitespace().next() else {
        println!("skipped: no controller is enabled for groups of version 2");
        return;
    };
    let file = group.file("cgroup.subtree_control");
    let record = Undo::File { path: file.clone(), old: String::new(), new: vec![controller.into()] };
    write(&file, &format!("+{controller}"));
    assert_eq!(text(&file).trim(), controller);
    assert_eq!(run(&system(), &[record]), (undone(1), vec![]));
    assert_eq!(text(&file).trim(), "");
}

#[test]
fn a_process_returns_to_its_group_unless_that_has_gone() {
    let Some(group) = Group::freezer_v1() else { return };
    let sleeper = Sleeper::start();
    let Task { pid, starttime } = sleeper.task();
    let members = group.file("cgroup.procs");
    let stranger = Undo::Return { pid, starttime: starttime + 1, members: members.clone() };
    assert_eq!(run(&system(), &[stranger]), (undone(1), vec![]));
    assert!(!group.holds(&sleeper));
    assert_eq!(run(&system(), &[Undo::Return { pid, starttime, members }]), (undone(1), vec![]));
    assert!(group.holds(&sleeper));
    let gone = Undo::Return { pid, starttime, members: group.above("emu-test-gone/cgroup.procs") };
    let (outcome, messages) = run(&system(), &[gone]);
    assert_eq!((outcome, messages.len()), (undone(1), 1));
    write(&group.above("cgroup.procs"), &pid);
}

#[test]
fn every_stopped_process_of_a_list_runs_again_however_new() {
    let (_dir, roots) = playground();
    let members = roots.sys.join("cgroup.procs");
    for count in [1, 1, 1, 1, 1, 1, 1, 1, 20] {
        let sleepers: Vec<_> = (0..count).map(|_| Sleeper::start()).collect();
        let list: Vec<_> = sleepers.iter().map(|sleeper| sleeper.0.id().to_string()).collect();
        fs::write(&members, list.join("\n")).unwrap();
        for sleeper in &sleepers {
            sleeper.stop();
        }
        // At once: they are as new as the list, and some are not even stopped yet.
        let members = members.clone();
        assert_eq!(run(&roots, &[Undo::ContinueAll { members }]), (undone(1), vec![]));
        for sleeper in &sleepers {
            sleeper.reaches('S');
        }
    }
}

#[test]
fn a_stop_that_has_not_yet_arrived_is_undone_too() {
    let Some(group) = Group::freezer_v1() else { return };
    let sleeper = Sleeper::start();
    let members = group.file("cgroup.procs");
    write(&members, &sleeper.0.id());
    write(&group.file("freezer.state"), &"FROZEN");
    eventually("the process is frozen", || sleeper.state() == 'D');
    // The process stops only after it is thawed.
    sleeper.stop();
    thread::sleep(Duration::from_millis(30));
    assert_eq!(sleeper.state(), 'D');
    assert_eq!(run(&system(), &[Undo::ContinueAll { members }]), (undone(1), vec![]));
    let thaw = Undo::Thaw { file: group.file("freezer.state"), value: "THAWED".into() };
    assert_eq!(run(&system(), &[group.undo(), thaw]), (undone(2), vec![]));
    sleeper.reaches('S');
    thread::sleep(Duration::from_millis(30));
    assert_eq!(sleeper.state(), 'S');
}

#[test]
fn a_process_newer_than_the_list_is_no_member() {
    let (_dir, roots) = playground();
    let sleeper = Sleeper::start();
    sleeper.stop();
    sleeper.reaches('T');
    let pid = sleeper.0.id();
    // As if the kernel had given the number away after the list was read.
    let roots = Roots { proc: roots.sys.parent().unwrap().join("proc"), ..roots };
    fs::create_dir_all(roots.proc.join(pid.to_string())).unwrap();
    let stat = format!("{pid} (sleep) T{} 9223372036854775807", " 7".repeat(18));
    fs::write(roots.proc.join(format!("{pid}/stat")), stat).unwrap();
    let members = roots.sys.join("cgroup.procs");
    fs::write(&members, pid.to_string()).unwrap();
    assert_eq!(run(&roots, &[Undo::ContinueAll { members }]), (undone(1), vec![]));
    assert_eq!(sleeper.state(), 'T');
}

#[test]
fn tasks_of_a_cpuset_have_all_cpus_before_they_leave_it() {
    let (_dir, roots) = playground();
    let sleeper = Sleeper::start();
    for in_force in ["cpuset.cpus", "cpuset.cpus.effective"] {
        let parent = roots.sys.join(in_force);
        // As `fracas` has them: the tasks are in a group within that of the zone.
        let [zone, inner] = ["emu", "emu/cpu0"].map(|path| parent.join(path));
        fs::create_dir_all(&inner).unwrap();
        for (group, cpus) in [(&parent, "0-3"), (&zone, "0-1"), (&inner, "0")] {
            fs::write(group.join("cpuset.cpus"), cpus).unwrap();
            fs::write(group.join(in_force), cpus).unwrap();
        }
        fs::write(zone.join("cgroup.procs"), "").unwrap();
        fs::write(inner.join("cgroup.procs"), sleeper.0.id().to_string()).unwrap();
        let return_to = parent.join("cgroup.procs");
        fs::write(&return_to, "").unwrap();
        let record = |group: &Path| Undo::Group {
            path: group.to_owned(),
            members: "cgroup.procs".into(),
            return_to: return_to.clone(),
        };
        // The folders of a test are not removed with their files in them.
        assert_eq!(run(&roots, &[record(&zone), record(&inner)]).0.failed, 2);
        assert_eq!(text(&zone.join("cpuset.cpus")), "0-3", "{in_force}");
        // The kernel's own file of what is in force does not follow here.
        let wanted = if in_force == "cpuset.cpus" { "0-3" } else { "0-1" };
        assert_eq!(text(&inner.join("cpuset.cpus")), wanted, "{in_force}");
        assert!(text(&return_to).starts_with(&sleeper.0.id().to_string()));
    }
}
