//! Processes that are killed: each is the same test, started again in a process of its own.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::super::Journal;
use super::super::record::Undo;
use super::super::restore::{RestoreReport, live_sessions, restore};
use super::{Sleeper, control, cpus, eventually, is_root, journals, open, playground, test_name, text};
use crate::roots::Roots;
use crate::testing::forbid;

/// An emu at work: it has changed `a`, stopped a process, and tells the numbers of that and of its
/// guardian.
struct Emu {
    roots: Roots,
    dir: tempfile::TempDir,
    process: Sleeper,
    stopped: Sleeper,
    guardian: Pid,
}

/// The roots and the session where this process is the emu of a test.
fn as_emu() -> Option<(Roots, Journal)> {
    let root = PathBuf::from(std::env::var_os("EMU_TEST_ROOT")?);
    let roots = Roots { proc: "/proc".into(), ..Roots::below(&root) };
    let journal = open(&roots, "0").unwrap();
    journal.write_file(&roots.sys.join("a"), "2").unwrap();
    let [pid, starttime] = ["pid", "starttime"].map(|name| text(&root.join(name)).parse::<u64>().unwrap());
    journal.record(&Undo::Continue { pid: pid as i32, starttime }).unwrap();
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::STOP).unwrap();
    fs::write(root.join("guardian"), journal.open_journal().guardian.pid().to_string()).unwrap();
    fs::rename(root.join("guardian"), root.join("ready")).unwrap();
    Some((roots, journal))
}

impl Emu {
    fn start(test: &str) -> Self {
        let (dir, roots) = playground();
        control(&roots, "a", "1");
        let stopped = Sleeper::start();
        let task = stopped.task();
        fs::write(dir.path().join("pid"), task.pid.to_string()).unwrap();
        fs::write(dir.path().join("starttime"), task.starttime.to_string()).unwrap();
        let stderr = File::create(dir.path().join("stderr")).unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test_name(module_path!(), test), "--nocapture"])
            .env("EMU_TEST_ROOT", dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn();
        let process = Sleeper(process.unwrap());
        let ready = dir.path().join("ready");
        eventually("the emu of the test gets ready", || ready.exists());
        let guardian = Pid::from_raw(text(&ready).parse().unwrap()).unwrap();
        assert_eq!(text(&roots.sys.join("a")), "2");
        stopped.reaches('T');
        Self { roots, dir, process, stopped, guardian }
    }

    fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    fn kill_guardian(&self) {
        kill_process(self.guardian, Signal::KILL).unwrap();
        eventually("the guardian is dead", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.guardian.as_raw_pid()));
            stat.map_or(true, |stat| stat.contains(") Z"))
        });
    }

    fn is_restored(&self) -> bool {
        text(&self.roots.sys.join("a")) == "1"
            && self.stopped.state() != 'T'
            && journals(&self.roots).is_empty()
    }

    fn stderr(&self) -> String {
        text(&self.dir.path().join("stderr"))
    }
}

fn sleep_for_ever() -> ! {
    loop {
        thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn the_guardian_restores_and_reports_what_a_killed_emu_changed() {
    if as_emu().is_some_and(|_session| sleep_for_ever()) {
        return;
    }
    let mut emu = Emu::start("the_guardian_restores_and_reports_what_a_killed_emu_changed");
    emu.kill();
    eventually("restored", || emu.is_restored());
    eventually("said", || emu.stderr().contains("node1 ended because emu died; everything was restored"));
}

#[test]
fn a_guardian_that_may_not_poll_waits_for_the_death_of_emu() {
    if std::env::var_os("EMU_TEST_ROOT").is_some() {
        forbid(libc::SYS_ppoll);
    }
    if as_emu().is_some_and(|_session| sleep_for_ever()) {
        return;
    }
    let mut emu = Emu::start("a_guardian_that_may_not_poll_waits_for_the_death_of_emu");
    // One that takes the refusal for the death undoes all at once.
    thread::sleep(Duration::from_millis(100));
    assert!(!emu.is_restored() && text(&emu.roots.sys.join("a")) == "2");
    emu.kill();
    eventually("restored", || emu.is_restored());
}

#[test]
fn an_emu_that_exits_without_releasing_is_restored() {
    if as_emu().is_some_and(|_session| std::process::exit(3)) {
        return;
    }
    // The emu may have ended before the test looks.
    let (dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let stopped = Sleeper::start();
    fs::write(dir.path().join("pid"), stopped.task().pid.to_string()).unwrap();
    fs::write(dir.path().join("starttime"), stopped.task().starttime.to_string()).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test_name(module_path!(), "an_emu_that_exits_without_releasing_is_restored")])
        .env("EMU_TEST_ROOT", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(3));
    eventually("restored", || text(&path) == "1" && stopped.state() == 'S' && journals(&roots).is_empty());
}

#[test]
fn an_emu_that_becomes_another_program_is_restored() {
    if as_emu().is_some_and(|_session| {
        let _ = io::stdin().read(&mut [0]);
        panic!("{}", Command::new("sleep").arg("60").exec())
    }) {
        return;
    }
    let mut emu = Emu::start("an_emu_that_becomes_another_program_is_restored");
    drop(emu.process.0.stdin.take());
    eventually("restored", || emu.is_restored());
    assert!(emu.process.0.try_wait().unwrap().is_none());
}

#[test]
fn a_child_that_shares_the_pipe_does_not_hide_the_death_of_emu() {
    if as_emu().is_some_and(|(_roots, journal)| {
        let open = journal.open_journal();
        // Bounded, because no one ends it.
        let timeout = rustix::time::Timespec { tv_sec: 8, tv_nsec: 0 };
        let keep = [open.guardian.alive.as_fd(), open.file.as_fd()];
        let wait = || rustix::event::poll(&mut [], Some(&timeout)).map_or(1, |_| 0);
        #[expect(unsafe_code, reason = "a fork has a contract")]
        // SAFETY: only makes a system call.
        unsafe { crate::sys::fork::fork(keep, wait) }.unwrap();
        sleep_for_ever()
    }) {
        return;
    }
    let mut emu = Emu::start("a_child_that_shares_the_pipe_does_not_hide_the_death_of_emu");
    emu.kill();
    eventually("restored", || emu.is_restored());
}

#[test]
fn restore_does_it_when_the_guardian_was_killed_too() {
    if as_emu().is_some_and(|_session| sleep_for_ever()) {
        return;
    }
    let mut emu = Emu::start("restore_does_it_when_the_guardian_was_killed_too");
    emu.kill_guardian();
    // The emu lives, so its session is left alone.
    let pid = emu.process.0.id() as i32;
    let report = restore(&emu.roots).unwrap();
    assert_eq!(report.live.iter().map(|live| live.pid).collect::<Vec<_>>(), [pid]);
    assert!(open(&emu.roots, "0").unwrap_err().to_string().contains(&pid.to_string()));
    assert!(!emu.is_restored());
    emu.kill();
    thread::sleep(Duration::from_millis(50));
    assert!(!emu.is_restored());
    let report = restore(&emu.roots).unwrap();
    assert!(report.restored.len() == 1 && report.restored[0].contains(&pid.to_string()), "{report:?}");
    eventually("restored", || emu.is_restored());
    assert_eq!(restore(&emu.roots).unwrap(), RestoreReport::default());
}

#[test]
fn the_next_emu_waits_for_a_guardian_at_work() {
    if as_emu().is_some_and(|_session| sleep_for_ever()) {
        return;
    }
    let mut emu = Emu::start("the_next_emu_waits_for_a_guardian_at_work");
    kill_process(emu.guardian, Signal::STOP).unwrap();
    emu.kill();
    let guardian = emu.guardian;
    let waker = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        kill_process(guardian, Signal::CONT).unwrap();
    });
    let journal = open(&emu.roots, "0").unwrap();
    assert_eq!(text(&emu.roots.sys.join("a")), "1");
    assert_eq!(journal.notes(), Vec::<String>::new());
    waker.join().unwrap();
}

#[test]
fn the_guardian_holds_neither_input_nor_output_of_emu() {
    if as_emu().is_some_and(|_session| sleep_for_ever()) {
        return;
    }
    let mut emu = Emu::start("the_guardian_holds_neither_input_nor_output_of_emu");
    let folder = format!("/proc/{}", emu.guardian.as_raw_pid());
    eventually("the guardian has its name", || {
        text(Path::new(&format!("{folder}/comm"))) == "emu-guardian\n"
    });
    let open = fs::read_dir(format!("{folder}/fd")).unwrap().count();
    assert_eq!(open, 7, "stderr, pipe, pidfd, journal, state folder, procfs, sysfs");
    // A reader of emu's output sees its end although the guardian still lives.
    kill_process(emu.guardian, Signal::STOP).unwrap();
    let mut output = emu.process.0.stdout.take().unwrap();
    emu.kill();
    let reader = thread::spawn(move || io::copy(&mut output, &mut io::sink()));
    eventually("the output ends", || reader.is_finished());
    kill_process(emu.guardian, Signal::CONT).unwrap();
    eventually("restored", || emu.is_restored());
}

#[test]
fn a_full_state_folder_changes_nothing() {
    if let Some(root) = std::env::var_os("EMU_TEST_FULL") {
        let roots = Roots { proc: "/proc".into(), ..Roots::below(Path::new(&root)) };
        let path = control(&roots, "a", "1");
        let journal = open(&roots, "0").unwrap();
        journal.write_file(&path, "2").unwrap();
        // Fills the rest of the file system.
        let full = io::copy(&mut io::repeat(b'x'), &mut File::create(roots.state.join("x")).unwrap());
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        let error = (0..10_000).find_map(|n| journal.write_file(&path, &format!("{n}")).err()).unwrap();
        assert!(error.to_string().contains(".journal") && error.hint_text().is_some(), "{error}");
        let records = text(&journal.path());
        assert!(records.ends_with('\n'), "half a record is left");
        let other = Journal::open(&roots, &cpus("1"), "cpu-hogs", "node2");
        assert!(other.is_err());
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{}", error.in_words());
        // Of what can be read only, the sessions are told; nobody begins one there.
        let seen = Roots { state: Path::new(&root).join("seen"), ..roots.clone() };
        fs::create_dir(&seen.state).unwrap();
        let script = "mount --bind \"$1\" \"$2\" && mount -o remount,bind,ro \"$2\"";
        let mut mount = Command::new("sh");
        mount.args(["-c", script, "sh"]).args([&roots.state, &seen.state]);
        assert!(mount.status().unwrap().success());
        assert_eq!(live_sessions(&seen).unwrap().len(), 1);
        assert_eq!(restore(&seen).unwrap_err().raw_os_error(), Some(libc::EROFS));
        journal.undo_all().unwrap();
        assert_eq!(text(&path), "1");
        return;
    }
    if !is_root("mounting a small file system") {
        return;
    }
    let (dir, roots) = playground();
    fs::create_dir_all(&roots.state).unwrap();
    let mut output = String::new();
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-ec"])
        .arg("mount -t tmpfs -o size=64k,mode=700 none \"$1\"; shift; exec \"$@\"")
        .arg("sh")
        .arg(&roots.state)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &test_name(module_path!(), "a_full_state_folder_changes_nothing")])
        .env("EMU_TEST_FULL", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success(), "{output}");
}
