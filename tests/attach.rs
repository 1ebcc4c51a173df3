//! `emu attach`: what it acts on, and when it ends.

use std::fs;
use std::io::{Read, Write, pipe};
use std::path::Path;
use std::process::Command;

use crate::common::{
    alone, as_nobody, assert_nothing_left, assert_refused, can_emulate, emu, eventually, finish, has_cpus,
    is_root, journals_of, methods, run, skip, some_method, start, state, until_child, until_it_acts,
    until_it_takes, unwrapped, words, zone_of,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::pipe::fcntl_setpipe_size;

#[test]
fn attach_ends_with_its_processes_its_time_or_a_signal() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    for method in methods() {
        let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        let line = format!("attach --speed 50% --method {method} --pid {}", sleeper.id());
        let attached = start(&mut emu(words(&line)));
        until_it_acts(attached.id());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        let ended = finish(attached);
        assert_eq!(ended.code(), Some(0), "{method}: {}", ended.stderr);

        let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = sleeper.id() as i32;
        let line = format!("attach --speed 50% --method {method} --pid {pid}");
        let ended = run(&mut emu(words(&format!("{line} --for 300ms"))), "");
        assert_eq!(ended.code(), Some(0), "{method}: {}", ended.stderr);
        let attached = start(&mut emu(words(&line)));
        until_it_takes(attached.id(), Signal::SIGTERM);
        kill(Pid::from_raw(attached.id() as i32), Signal::SIGTERM).unwrap();
        let ended = finish(attached);
        assert_eq!(ended.code(), Some(0), "{method}: {}", ended.stderr);
        assert_eq!(state(pid), Some('S'), "{method}");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_nothing_left(ended.pid);
    }
}

#[test]
fn a_reader_that_sleeps_keeps_nobody_slowed() {
    let _alone = alone();
    let Some(method) = some_method() else { return };
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let mut ended = Vec::new();
    for (end, by_signal) in [("", true), (" --for 1s", false)] {
        let (mut read, mut write) = pipe().unwrap();
        let full = fcntl_setpipe_size(&write, 4096).unwrap();
        write.write_all(&vec![b'\n'; full]).unwrap();
        let line = format!("attach -s 50% -m {method} --pid {}{end}", sleeper.id());
        let mut attached = emu(words(&line)).stderr(write).spawn().unwrap();
        until_it_acts(attached.id());
        if by_signal {
            kill(Pid::from_raw(attached.id() as i32), Signal::SIGTERM).unwrap();
        }
        eventually("nothing is slowed", || journals_of(attached.id()).is_empty());
        // What it could not say is not lost.
        let mut said = String::new();
        read.read_to_string(&mut said).unwrap();
        ended.push((attached.wait().unwrap().code(), said));
        assert_nothing_left(attached.id());
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    for (code, said) in ended {
        assert!(code == Some(0) && said.contains(&format!("emu: {method} slows")), "{code:?}: {said}");
    }
}

#[test]
fn what_another_emu_slows_is_left_to_it() {
    let _alone = alone();
    if !can_emulate() || !has_cpus(2) {
        return;
    }
    for method in methods() {
        let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        for of_attach in [false, true] {
            let line = if of_attach {
                format!("attach -q -s 50% -c 1 -m {method} --pid {}", sleeper.id())
            } else {
                format!("run -q -s 50% -c 1 -m {method} -- sleep 600")
            };
            let child = start(&mut emu(words(&line)));
            until_it_acts(child.id());
            let guardian = until_child(child.id(), "emu-guardian");
            let slowed = if of_attach { sleeper.id() as i32 } else { until_child(child.id(), "sleep") };
            // An attached process without a cgroup of emu is known by nothing.
            let has_group =
                || fs::read_to_string(format!("/proc/{slowed}/cgroup")).unwrap().contains("/emu-");
            let known = if of_attach && !has_group() { None } else { Some(slowed) };
            for pid in [child.id() as i32, guardian].into_iter().chain(known) {
                let ended = run(&mut emu(words(&format!("attach -s 30% -c 0 --for 300ms --pid {pid}"))), "");
                assert_eq!(ended.code(), Some(3), "{method}, {pid}: {}", ended.stderr);
                let said = unwrapped(&ended.stderr);
                assert!(said.contains("belongs to an emulation already"), "{method}: {said}");
            }
            // Its guardian's death is told.
            kill(Pid::from_raw(guardian), Signal::SIGKILL).unwrap();
            eventually("it is told", || {
                zone_of(child.id())["status"]["problems"].to_string().contains("guardian")
            });
            kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
            assert_nothing_left(finish(child).pid);
        }
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}

#[test]
fn attach_acts_on_a_cgroup_until_it_is_empty() {
    let _alone = alone();
    let freezers = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let hierarchy = freezers.into_iter().find(|mount| mount.join("cgroup.procs").exists());
    let works = methods().contains(&"cpu-freeze".to_owned());
    let (true, true, Some(hierarchy)) = (is_root(), works, hierarchy) else {
        skip("it needs root and a cgroup freezer");
        return;
    };
    let name = format!("cli-test-{}", std::process::id());
    let group = hierarchy.join(&name);
    fs::create_dir(&group).unwrap();
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(group.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
    for path in [format!("/{name}"), group.display().to_string()] {
        let line = format!("attach --speed 50% --method cpu-freeze --cgroup {path} --for 300ms");
        let ended = run(&mut emu(words(&line)), "");
        assert_eq!(ended.code(), Some(0), "{path}: {}", ended.stderr);
        assert_eq!(state(sleeper.id() as i32), Some('S'));
    }
    let attached =
        start(&mut emu(words(&format!("attach --speed 50% --method cpu-freeze --cgroup /{name}"))));
    until_it_acts(attached.id());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let ended = finish(attached);
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_nothing_left(ended.pid);
    fs::remove_dir(&group).unwrap();
}

/// emu may have the capability to bind the tasks of others (`setcap`), and then could not undo it without.
#[test]
fn a_user_does_not_bind_the_tasks_of_root() {
    let _alone = alone();
    let mounts = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup"].map(Path::new);
    let (true, Some(hierarchy)) =
        (is_root(), mounts.into_iter().find(|mount| mount.join("cgroup.procs").exists()))
    else {
        skip("it needs root and cgroups");
        return;
    };
    let group = hierarchy.join(format!("cli-test-{}", std::process::id()));
    fs::create_dir(&group).unwrap();
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(group.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
    let allowed = || {
        let status = fs::read_to_string(format!("/proc/{}/status", sleeper.id())).unwrap();
        status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap().to_owned()
    };
    let before = allowed();
    let (_dir, mut command) = as_nobody(&["--inh-caps", "+sys_nice", "--ambient-caps", "+sys_nice"]);
    let line = format!("attach -s 50% --cpus 0 -m cpu-hogs --for 300ms --cgroup {}", group.display());
    let ended = run(command.args(words(&line)), "");
    let after = allowed();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    fs::remove_dir(&group).unwrap();
    assert_refused(&ended, 4, "a task of root");
    assert_eq!(before, after);
}
