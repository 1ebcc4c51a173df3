//! The journal as a whole, on real processes and, where they can be made, real groups.

mod foreign;
mod groups;
mod killed;
mod records;
mod session;
mod sharing;
mod storm;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::lines::WINDOW;
use super::places::Places;
use super::record::Task;
use super::record::Undo;
use super::replay::{Outcome, undo};
use super::{Journal, task};
use crate::cpu_list::CpuList;
use crate::error::Result;
use crate::roots::Roots;
use crate::testing::{eventually, skip, test_name};

/// The real `/proc`, and an empty sysfs and state folder.
pub(super) fn playground() -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots { proc: "/proc".into(), ..Roots::below(dir.path()) };
    fs::create_dir_all(&roots.sys).unwrap();
    (dir, roots)
}

/// Whether the tests run as root; prints what is skipped otherwise.
fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(&format!("{what} needs root"));
    }
    root
}

fn cpus(list: &str) -> CpuList {
    list.parse().unwrap()
}

fn open(roots: &Roots, list: &str) -> Result<Journal> {
    Journal::open(roots, &cpus(list), "cpu-hogs", "node1")
}

/// A control file with the value.
fn control(roots: &Roots, name: &str, value: &str) -> PathBuf {
    let path = roots.sys.join(name);
    fs::write(&path, value).unwrap();
    path
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// The files of the state folder except its lock.
fn journals(roots: &Roots) -> Vec<PathBuf> {
    let entries = fs::read_dir(&roots.state).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| !path.ends_with("lock")).collect()
}

/// Carries out these lines; returns the outcome and the messages.
fn run_lines(roots: &Roots, lines: &[u8]) -> (Outcome, Vec<String>) {
    let mut journal = tempfile::tempfile().unwrap();
    journal.write_all(b"header\n").unwrap();
    journal.write_all(lines).unwrap();
    let places = Places::open(roots).unwrap();
    let mut messages = Vec::new();
    let outcome = undo(journal.as_fd(), &places, None, &mut vec![0; WINDOW], &mut |_, message| {
        messages.push(message.to_string());
    });
    (outcome, messages)
}

fn run(roots: &Roots, records: &[Undo]) -> (Outcome, Vec<String>) {
    let lines: Vec<u8> = records.iter().flat_map(Undo::line).collect();
    run_lines(roots, &lines)
}

/// The outcome of `count` records that are all carried out.
fn undone(count: usize) -> Outcome {
    Outcome { undone: count, ..Outcome::default() }
}

pub(super) fn proc() -> File {
    File::open("/proc").unwrap()
}

/// A child that is killed and reaped when dropped.
pub(super) struct Sleeper(pub(super) Child);

impl Sleeper {
    /// A process that sleeps for a minute.
    pub(super) fn start() -> Self {
        Self(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap())
    }

    pub(super) fn task(&self) -> Task {
        let pid = self.0.id() as i32;
        Task { pid, starttime: task::stat(proc().as_fd(), pid).unwrap().unwrap().starttime }
    }

    pub(super) fn state(&self) -> char {
        task::stat(proc().as_fd(), self.0.id() as i32).unwrap().unwrap().state.into()
    }

    pub(super) fn stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }

    /// Waits until the process has that state.
    pub(super) fn reaches(&self, state: char) {
        eventually(&format!("process {} reaches state {state}", self.0.id()), || self.state() == state);
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
