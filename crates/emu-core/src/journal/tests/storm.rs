//! Death at any moment, also while a session begins or ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use super::super::record::Task;
use super::super::{RestoreReport, Undo, restore};
use super::{Sleeper, control, eventually, is_root, journals, open, playground, text};
use crate::{Roots, control_file};

/// How often each death is tried; more with `EMU_TEST_ROUNDS`.
const ROUNDS: u32 = 10;
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// What an emu of these tests changes: a file, a stopped process and, where there is one, a frozen group.
struct Scene {
    roots: Roots,
    file: PathBuf,
    stopped: Sleeper,
    frozen: Sleeper,
    /// The group that the emu makes, and the one in which `file` is.
    groups: Option<[PathBuf; 2]>,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn set(test: &str) -> Self {
        let (dir, mut roots) = playground();
        let mut file = control(&roots, "a", "0");
        let mut groups = None;
        if is_root("freezing a group") && Path::new(FREEZER).join("cgroup.procs").exists() {
            let [made, kept] = ["made", "kept"].map(|name| {
                Path::new(FREEZER).join(format!("emu-test-{test}-{name}-{}", std::process::id()))
            });
            fs::create_dir(&kept).unwrap();
            file = kept.join("notify_on_release");
            roots.sys = "/sys".into();
            groups = Some([made, kept]);
        }
        let (stopped, frozen) = (Sleeper::start(), Sleeper::start());
        Self { roots, file, stopped, frozen, groups, _dir: dir }
    }

    fn start(&self, test: &str) -> Sleeper {
        let Task { pid, starttime } = self.stopped.task();
        let group = self.groups.as_ref().map_or(Path::new(""), |[made, _]| made);
        let emu = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("journal::tests::storm::{test}")])
            .env("EMU_TEST_STATE", &self.roots.state)
            .env("EMU_TEST_SYS", &self.roots.sys)
            .env("EMU_TEST_FILE", &self.file)
            .env("EMU_TEST_GROUP", group)
            .env("EMU_TEST_STOPPED", format!("{pid} {starttime}"))
            .env("EMU_TEST_FROZEN", self.frozen.0.id().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Sleeper(emu.unwrap())
    }

    /// What is still changed.
    fn left(&self) -> Vec<&'static str> {
        // Its guardian may remove it at this moment.
        let records = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.lines().count() > 1);
        let changes = [
            (text(&self.file).trim() != "0", "file"),
            (self.stopped.state() == 'T', "stopped process"),
            (self.frozen.state() != 'S', "frozen process"),
            (self.groups.as_ref().is_some_and(|[made, _]| made.exists()), "group"),
            // One that was killed before it had a guardian has not changed anything either.
            (journals(&self.roots).iter().any(records), "journal"),
        ];
        changes.into_iter().filter_map(|(left, what)| left.then_some(what)).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let Some([made, kept]) = &self.groups else { return };
        if made.exists() {
            // The test has failed.
            let _ = control_file::write(&made.join("freezer.state"), "THAWED");
            let _ = self.frozen.0.kill();
            let _ = self.frozen.0.wait();
            let _ = fs::remove_dir(made);
        }
        let _ = fs::remove_dir(kept);
    }
}

/// Whether this process is the emu of a test: then it begins and ends sessions until it is killed.
fn work() -> Option<()> {
    let path = |name: &str| std::env::var_os(format!("EMU_TEST_{name}")).map(PathBuf::from);
    let roots = Roots { state: path("STATE")?, sys: path("SYS")?, proc: "/proc".into() };
    let (file, group) = (path("FILE")?, path("GROUP")?);
    let (stopped, frozen) = (std::env::var("EMU_TEST_STOPPED").ok()?, std::env::var("EMU_TEST_FROZEN").ok()?);
    let (pid, starttime) = stopped.split_once(' ')?;
    let (pid, starttime) = (pid.parse().unwrap(), starttime.parse().unwrap());
    loop {
        let journal = open(&roots, "0").unwrap();
        journal.write_file(&file, "1").unwrap();
        journal.record(&Undo::Continue { pid, starttime }).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
        if group.is_absolute() {
            let (path, return_to) = (group.clone(), Path::new(FREEZER).join("cgroup.procs"));
            journal.record(&Undo::Group { path, members: "cgroup.procs".into(), return_to }).unwrap();
            fs::create_dir(&group).unwrap();
            let file = group.join("freezer.state");
            journal.record(&Undo::Thaw { file: file.clone(), value: "THAWED".into() }).unwrap();
            control_file::write(&group.join("cgroup.procs"), &frozen).unwrap();
            control_file::write(&file, "FROZEN").unwrap();
        }
        journal.undo_all().unwrap();
    }
}

/// The processes that have the state folder open: the guardians of its sessions.
fn guardians(roots: &Roots) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_it_open = |pid: &i32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|target| target == roots.state)
    };
    numbers.filter(has_it_open).filter_map(Pid::from_raw).collect()
}

fn rounds(test: &str, and_then: impl Fn(&Roots)) {
    if work().is_some() {
        return;
    }
    let rounds = std::env::var("EMU_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    for round in 0..rounds {
        let scene = Scene::set(test);
        let mut emu = scene.start(test);
        eventually("the sessions begin", || scene.roots.state.exists());
        let chance = SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos() % 20_000;
        thread::sleep(Duration::from_micros(chance.into()));
        emu.0.kill().unwrap();
        emu.0.wait().unwrap();
        and_then(&scene.roots);
        eventually(&format!("round {round}: {:?} is undone", scene.left()), || scene.left().is_empty());
        assert_eq!(restore(&scene.roots).unwrap(), RestoreReport::default());
        assert_eq!(journals(&scene.roots), Vec::<PathBuf>::new());
    }
}

#[test]
fn nothing_is_left_whenever_emu_is_killed() {
    rounds("nothing_is_left_whenever_emu_is_killed", |_roots| {});
}

#[test]
fn nothing_is_left_whenever_emu_and_guardian_are_killed() {
    rounds("nothing_is_left_whenever_emu_and_guardian_are_killed", |roots| {
        for guardian in guardians(roots) {
            let _ = kill_process(guardian, Signal::KILL);
        }
        let report = restore(roots).unwrap();
        assert_eq!((report.live, report.problems), (vec![], vec![]));
    });
}
