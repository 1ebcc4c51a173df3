use std::process::{Child, Command, Stdio};

use super::*;

const PROC: &str = "/proc";

fn shell(script: &str) -> Child {
    Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap()
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn kill_all(descendants: &mut Descendants) {
    descendants.look().unwrap();
    for &pid in descendants.members().keys() {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Looks until there are `count` members.
fn look_for(descendants: &mut Descendants, count: usize) -> bool {
    let deadline = time::now() + 5_000_000_000;
    while time::now() < deadline {
        descendants.look().unwrap();
        if descendants.members().len() == count {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    false
}

#[test]
fn a_line_of_stat_is_read_whatever_the_name() {
    let line = b"42 (a) R 1 (b)) T 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 0 0
";
    let stat = Stat::parse(line).unwrap();
    assert_eq!((stat.state, stat.parent, stat.group, stat.session), (b'T', 7, 8, 9));
    assert_eq!((stat.starttime, stat.is_kernel), (12345, false));
    assert!(
        Stat::parse(b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 33 0 0").unwrap().is_kernel
    );
    // The kernel has let go of its groups (`do_task_stat`, fs/proc/array.c).
    let ending = Stat::parse(b"7 (sh) X 0 -1 -1 0 -1 4228108 0 0 0 0 0 0 0 0 20 0 1 0 44 0 0").unwrap();
    assert_eq!((ending.parent, ending.session, ending.starttime), (0, -1, 44));
    assert!(!ending.tells_parent);
    for bad in [
        &b""[..],
        b"42",
        b"42 (x",
        b"42 (x)",
        b"42 (x) R 1",
        b"1 (x) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21",
        b"\xff\xff",
        b"1 (x) R a b c 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    ] {
        assert_eq!(Stat::parse(bad), None);
    }
}

#[test]
fn the_user_is_read_from_the_status() {
    let status = b"Name:\tx\nUid:\t1000\t1001\t0\t0\nGid:\t5\t5\t5\t5\n";
    assert_eq!([1000, 1001, 0].map(|user| has_user(status, user)), [Some(true), Some(true), Some(false)]);
    for strange in ["", "Uid:", "Uid:\t1", "Uid:\tx\t1"] {
        assert_eq!(has_user(strange.as_bytes(), 1), None, "{strange}");
    }
}

#[test]
fn init_emu_and_its_ancestors_are_refused() {
    let parent = nix::unistd::getppid().as_raw();
    for (pid, what) in [(1, "init"), (std::process::id() as Pid, "emu itself"), (parent, "descends from")] {
        let error = check_targets(Path::new(PROC), [pid]).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Usage);
        assert!(error.to_string().contains(what), "{error}");
    }
    let child = shell("sleep 10");
    check_targets(Path::new(PROC), [child.id() as Pid]).unwrap();
    end(child);
}

#[test]
fn processes_that_are_none_are_refused() {
    let proc = Path::new(PROC);
    let mut ended = shell("exit");
    assert!(ended.wait().unwrap().success());
    assert!(Descendants::of(proc, &[ended.id() as Pid]).unwrap_err().to_string().contains("no process"));
    let (tid, told) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        tid.send(nix::unistd::gettid().as_raw()).unwrap();
        let _ = stopped.recv();
    });
    let error = Descendants::of(proc, &[told.recv().unwrap()]).unwrap_err();
    assert!(error.to_string().contains("a thread"), "{error}");
    drop(stop);
    thread.join().unwrap();
}

#[test]
fn children_and_grandchildren_belong_and_strangers_do_not() {
    let stranger = shell("sleep 20 & wait");
    let root = shell("sh -c 'sleep 20 & wait' & wait");
    let mut descendants = Descendants::of(Path::new(PROC), &[root.id() as Pid]).unwrap();
    assert!(look_for(&mut descendants, 3), "{:?}", descendants.members());
    assert!(!descendants.members().contains_key(&(stranger.id() as Pid)));
    kill_all(&mut descendants);
    assert!(look_for(&mut descendants, 1), "the root is a zombie, the others are gone");
    end(root);
    assert!(look_for(&mut descendants, 0));
    let mut others = Descendants::of(Path::new(PROC), &[stranger.id() as Pid]).unwrap();
    kill_all(&mut others);
    end(stranger);
}

#[test]
fn a_number_is_believed_when_forks_that_took_one_are_done() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("loadavg");
    let give_out = |pid: Pid| std::fs::write(&file, format!("0.00 0.00 0.00 1/90 {pid}\n")).unwrap();
    let mut last = LastPid { file: Some(file.clone()), seen: None, since: 0 };
    for (pid, now, told) in [
        (7, 0, None),
        (7, FORK - 1, None),
        (7, FORK, Some(7)),
        (8, FORK + 1, None),
        (8, 2 * FORK, None),
        (8, 2 * FORK + 1, Some(8)),
    ] {
        give_out(pid);
        assert_eq!(last.settled(now), told, "{pid} at {now}");
    }
}

#[test]
fn an_orphan_is_known_by_the_session_its_parent_made() {
    // The middle process makes a session, has a child and ends before the first look.
    let root = shell(r#"sleep 0.2; setsid sh -c 'sh -c "sleep 20 & sleep 0.3" & sleep 0.3'; sleep 20"#);
    let mut descendants = Descendants::of(Path::new(PROC), &[root.id() as Pid]).unwrap();
    let deadline = time::now() + 1_500_000_000;
    while time::now() < deadline {
        descendants.look().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let is_orphan = |stat: &Stat| !stat.has_ended() && !descendants.members().contains_key(&stat.parent);
    let orphans = descendants.members().values().filter(|stat| is_orphan(stat)).count();
    // The root, and the sleeping process whose parents have ended.
    assert_eq!(orphans, 2, "{:?}", descendants.members());
    kill_all(&mut descendants);
    end(root);
}

#[test]
fn a_process_without_its_first_thread_lives() {
    let child = crate::sys::fork::fork_leaderless().unwrap();
    let pid = child.pid();
    let stat = || Stat::read(Path::new(PROC), pid).unwrap();
    crate::testing::eventually("its first thread has ended", || stat().state == b'Z');
    assert!(!stat().has_ended());
    assert!(Descendants::of(Path::new(PROC), &[pid]).unwrap().members().contains_key(&pid));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    crate::testing::eventually("all have ended", || stat().has_ended());
    assert!(Descendants::of(Path::new(PROC), &[pid]).is_err());
    child.end();
}

#[test]
fn what_cannot_be_read_is_not_gone() {
    assert!(!is_gone(std::process::id() as Pid) && is_gone(Pid::MAX));
}
