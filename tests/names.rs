//! `emu attach` to what has a name: a unit, a container, processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    alone, assert_nothing_left, assert_refused, assert_share, can_emulate, emu, eventually, finish, is_root,
    methods, place_of, run, skip, some_method, start, until_it_acts, unwrapped, words,
};
use crate::node::{Node, apply, emu_node};
use crate::podman::{Container, podman};
use crate::rig::fetch;

/// A loop that is killed at the end.
struct Burner(Child);

impl Burner {
    fn start(program: &Path) -> Self {
        Self(Command::new(program).args(["-c", "while :; do :; done"]).spawn().unwrap())
    }

    fn id(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn end(attached: Child) -> String {
    kill(Pid::from_raw(attached.id() as i32), Signal::SIGTERM).unwrap();
    let ended = finish(attached);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_nothing_left(ended.pid);
    ended.stderr
}

#[test]
fn processes_are_found_by_name() {
    let _alone = alone();
    let Some(method) = some_method() else { return };
    let dir = tempfile::tempdir().unwrap();
    // Longer than what the kernel keeps of a name.
    let name = format!("emu-test-program-{}", std::process::id());
    let program = dir.path().join(&name);
    fs::copy("/bin/sh", &program).unwrap();
    let burners = [Burner::start(&program), Burner::start(&program)];
    let line = format!("attach --name {name} --speed 20% --cpus 0 -m {method}");
    let attached = start(&mut emu(words(&line)));
    until_it_acts(attached.id());
    let said = {
        // Both share the CPU.
        let used = |burner: &Burner| fs::read_to_string(format!("/proc/{}/stat", burner.id())).unwrap();
        let begin = burners.each_ref().map(used);
        thread::sleep(Duration::from_millis(500));
        assert_ne!(begin, burners.each_ref().map(used));
        end(attached)
    };
    assert!(said.contains("asked 20%"), "{said}");
    drop(burners);
    let ended = run(&mut emu(words(&line)), "");
    assert_refused(&ended, 2, "is called");
}

/// The groups of a unit in all hierarchies, with a loop in them.
struct Unit {
    folders: Vec<PathBuf>,
    burner: Burner,
}

impl Unit {
    fn start(name: &str) -> Self {
        let mounts =
            ["/sys/fs/cgroup", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuset"];
        let mounts = mounts.map(Path::new).into_iter().filter(|mount| mount.join("cgroup.procs").exists());
        let folders: Vec<_> = mounts.map(|mount| mount.join(name)).collect();
        let burner = Burner::start(Path::new("/bin/sh"));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(of_parent) = fs::read_to_string(folder.parent().unwrap().join(file)) {
                    fs::write(folder.join(file), of_parent).unwrap();
                }
            }
            fs::write(folder.join("cgroup.procs"), burner.id().to_string()).unwrap();
        }
        Self { folders, burner }
    }

    /// As systemd ends a unit: all of its group goes.
    fn stop(self) {
        let Self { folders, burner } = self;
        drop(burner);
        for folder in &folders {
            eventually("the unit's group goes", || removed(folder));
        }
    }
}

/// Removes a group, and those in it.
fn removed(folder: &Path) -> bool {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            removed(&entry.path());
        }
    }
    fs::remove_dir(folder).is_ok() || !folder.exists()
}

#[test]
fn a_unit_is_slowed_again_after_a_restart() {
    let _alone = alone();
    if !is_root() || methods().is_empty() {
        skip("it needs root and a method");
        return;
    }
    let name = format!("emu-test-{}.service", std::process::id());
    for method in methods() {
        let unit = Unit::start(&name);
        let line =
            format!("attach --unit {} --speed 30% --cpus 0 -m {method}", name.trim_end_matches(".service"));
        let attached = start(&mut emu(words(&line)));
        until_it_acts(attached.id());
        assert_share(unit.burner.id(), 0.3, &method);
        let set = format!("set {} --speed 60%", unit.burner.id());
        assert_eq!(run(&mut emu(words(&set)), "").code(), Some(0), "{method}");
        unit.stop();
        // One that has gone before it is slowed again.
        let short = Unit::start(&name);
        thread::sleep(Duration::from_millis(20));
        short.stop();
        let again = Unit::start(&name);
        assert_share(again.burner.id(), 0.6, &method);
        let said = end(attached);
        assert!(said.contains("started again"), "{method}: {said}");
        again.stop();
    }
    let ended = run(&mut emu(words(&format!("attach --unit {name} --speed 30%"))), "");
    assert_refused(&ended, 2, "no unit");
}

#[test]
fn a_container_is_slowed_by_name_with_what_joins_it() {
    let _alone = alone();
    if !is_root() || methods().is_empty() {
        skip("it needs root and a method");
        return;
    }
    if let Err(why) = fetch(&["containers"]) {
        skip(&why);
        return;
    }
    let container = Container::start();
    for method in methods() {
        let before = place_of(container.pid() as u32);
        let line = format!("attach --container {} --speed 30% --cpus 0 -m {method}", container.name);
        let attached = start(&mut emu(words(&line)));
        until_it_acts(attached.id());
        assert_share(container.pid(), 0.3, &method);
        let joined = podman(&format!("exec {} /bin/sh -c echo␣joined", container.name));
        assert_eq!(joined.stdout, "joined\n", "{method}: {}", joined.stderr);
        end(attached);
        assert_eq!(place_of(container.pid() as u32), before, "{method}");
    }
    let ended = run(&mut emu(words(&format!("attach --container {}x --speed 30%", container.name))), "");
    assert_refused(&ended, 2, "did you mean");
}

/// A file with this node on CPU 0.
fn file(members: &str) -> String {
    format!("[node.one]\ncpus = \"0\"\nspeed = \"30%\"\n{members}\n")
}

#[test]
fn a_unit_joins_its_node_whenever_it_is_started() {
    let _alone = alone();
    if !is_root() || !can_emulate() {
        return;
    }
    let name = format!("emu-test-{}.service", std::process::id());
    let with = file(&format!("units = [\"{name}\"]"));
    let ended = apply(&with, "");
    assert!(unwrapped(&ended.stderr).contains("it joins when it runs"), "{}", ended.stderr);
    let node = Node { name: "one", keeper: 0 };
    for _ in 0..2 {
        let unit = Unit::start(&name);
        let pid = serde_json::json!([unit.burner.id()]);
        eventually("it joins", || node.shown()["members"] == pid);
        assert_share(unit.burner.id(), 0.3, "a unit");
        for same in [with.clone(), emu_node("dump").stdout] {
            let ended = apply(&same, "--dry-run");
            assert_eq!(ended.stdout, "Nothing is to be changed.\n", "{same}{}", ended.stderr);
        }
        unit.stop();
        eventually("it leaves", || node.shown()["members"] == serde_json::json!([]));
    }
    let ended = apply(&file(""), "");
    assert!(ended.stderr.contains("watch no longer for one: unit"), "{}", ended.stderr);
    let unit = Unit::start(&name);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(node.shown()["members"], serde_json::json!([]));
    unit.stop();
}

#[test]
fn what_joins_a_container_joins_its_node() {
    let _alone = alone();
    if !is_root() || !can_emulate() {
        return;
    }
    if let Err(why) = fetch(&["containers"]) {
        skip(&why);
        return;
    }
    let container = Container::start();
    let before = place_of(container.pid() as u32);
    let node = Node { name: "one", keeper: 0 };
    let ended = apply(&file(&format!("containers = [\"{}\"]", container.name)), "-q");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let members = || node.shown()["members"].as_array().cloned().unwrap_or_default();
    assert_eq!(members(), [serde_json::json!(container.pid())]);
    let second = podman(&format!("exec -d {} /bin/sh -c while␣:;␣do␣:;␣done", container.name));
    assert_eq!(second.code(), Some(0), "{}", second.stderr);
    eventually("the second one joins", || members().len() == 2);
    // Both share the CPU.
    for member in members() {
        assert_share(member.as_i64().unwrap() as i32, 0.15, "in a container");
    }
    assert_eq!(emu_node("remove one --free").code(), Some(0));
    assert_eq!(place_of(container.pid() as u32), before);
}
