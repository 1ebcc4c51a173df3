//! Death at any moment, also while a session begins or ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use super::super::record::Task;
use super::super::record::Undo;
use super::super::restore::{RestoreReport, restore};
use super::{Sleeper, eventually, journals, open, playground, skip, test_name, text};
use crate::control_file;
use crate::roots::Roots;

/// How often each kind of death is tried; `EMU_TEST_ROUNDS` sets another number.
const ROUNDS: u32 = 10;

/// The files of a hierarchy with a freezer.
struct Kind {
    mount: &'static str,
    /// The control file of the freezer, the value that freezes and the one that thaws.
    freezer: [&'static str; 3],
    /// Another control file, its value in a new group and the one that is written.
    other: [&'static str; 3],
}

const KINDS: [Kind; 3] = [
    Kind {
        mount: "/sys/fs/cgroup/freezer",
        freezer: ["freezer.state", "FROZEN", "THAWED"],
        other: ["notify_on_release", "0", "1"],
    },
    Kind {
        mount: "/sys/fs/cgroup/unified",
        freezer: ["cgroup.freeze", "1", "0"],
        other: ["cgroup.max.depth", "max", "5"],
    },
    Kind {
        mount: "/sys/fs/cgroup",
        freezer: ["cgroup.freeze", "1", "0"],
        other: ["cgroup.max.depth", "max", "5"],
    },
];

/// What an emu of these tests changes: a control file, a stopped process, and a frozen group.
///
/// These are real control files, because ordinary ones may be found half written.
struct Scene {
    kind: usize,
    roots: Roots,
    file: PathBuf,
    stopped: Sleeper,
    frozen: Sleeper,
    /// The group that the emu makes.
    made: PathBuf,
    /// The group in which `file` is.
    kept: PathBuf,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn set(test: &str, kind: usize) -> Option<Self> {
        let Kind { mount, other, .. } = KINDS.get(kind)?;
        let group = |name| Path::new(mount).join(format!("emu-test-{test}-{name}-{}", std::process::id()));
        let (made, kept) = (group("made"), group("kept"));
        fs::create_dir(&kept).ok()?;
        let (dir, roots) = playground();
        let roots = Roots { sys: "/sys".into(), ..roots };
        let (file, stopped, frozen) = (kept.join(other[0]), Sleeper::start(), Sleeper::start());
        let scene = Self { kind, roots, file, stopped, frozen, made, kept, _dir: dir };
        scene.file.exists().then_some(scene)
    }

    fn start(&self, test: &str) -> Sleeper {
        let Task { pid, starttime } = self.stopped.task();
        let emu = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test_name(module_path!(), test)])
            .env("EMU_TEST_STATE", &self.roots.state)
            .env("EMU_TEST_FILE", &self.file)
            .env("EMU_TEST_GROUP", &self.made)
            .env("EMU_TEST_NUMBERS", format!("{} {pid} {starttime} {}", self.kind, self.frozen.0.id()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Sleeper(emu.unwrap())
    }

    /// What is still changed.
    fn left(&self) -> Vec<&'static str> {
        // The guardian may remove it at this moment.
        let records = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.lines().count() > 1);
        let changes = [
            (text(&self.file).trim() != KINDS[self.kind].other[1], "file"),
            (self.stopped.state() == 'T', "stopped process"),
            (self.frozen.state() != 'S', "frozen process"),
            (self.made.exists(), "group"),
            // An emu that was killed before it had a guardian has not changed anything.
            (journals(&self.roots).iter().any(records), "journal"),
        ];
        changes.into_iter().filter_map(|(left, what)| left.then_some(what)).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.made.exists() {
            // The test has failed.
            let [freezer, _, thaw] = KINDS[self.kind].freezer;
            let _ = control_file::write(&self.made.join(freezer), thaw);
            let _ = self.frozen.0.kill();
            let _ = self.frozen.0.wait();
            let _ = fs::remove_dir(&self.made);
        }
        let _ = fs::remove_dir(&self.kept);
    }
}

/// Begins and ends sessions until this process is killed, where it is the emu of a test.
fn work() -> Option<()> {
    let path = |name: &str| std::env::var_os(format!("EMU_TEST_{name}")).map(PathBuf::from);
    let roots = Roots { state: path("STATE")?, ..Roots::system() };
    let (file, group) = (path("FILE")?, path("GROUP")?);
    let numbers = std::env::var("EMU_TEST_NUMBERS").ok()?;
    let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    let &[kind, pid, starttime, frozen] = numbers.as_slice() else { return None };
    let (Kind { mount, freezer, other }, pid) = (&KINDS[kind as usize], pid as i32);
    let [freezer, freeze, thaw] = freezer;
    loop {
        let journal = open(&roots, "0").unwrap();
        journal.write_file(&file, other[2]).unwrap();
        journal.record(&Undo::Continue { pid, starttime }).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
        let (path, return_to) = (group.clone(), Path::new(mount).join("cgroup.procs"));
        journal.record(&Undo::Group { path, members: "cgroup.procs".into(), return_to }).unwrap();
        fs::create_dir(&group).unwrap();
        let freezer = group.join(freezer);
        journal.record(&Undo::Thaw { file: freezer.clone(), value: (*thaw).into() }).unwrap();
        control_file::write(&group.join("cgroup.procs"), &frozen.to_string()).unwrap();
        control_file::write(&freezer, freeze).unwrap();
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
    let Some(kind) = (0..KINDS.len()).find(|kind| Scene::set(test, *kind).is_some()) else {
        skip("no group that can be frozen can be made (needs root and a cgroup mount)");
        return;
    };
    for round in 0..rounds {
        let scene = Scene::set(test, kind).unwrap();
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
