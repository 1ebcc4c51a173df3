//! Boots the rig with the binary under test in it, and keeps the machine from being overloaded by guests.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use crate::common::{EMU, skip};

/// Where the repository is.
fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent);
    folder.expect("the crate is two folders down").to_path_buf()
}

/// Whether all is to be tried, and not what finds most in the least time: `EMU_RIG=full`.
pub(crate) fn is_full() -> bool {
    std::env::var_os("EMU_RIG").is_some_and(|wanted| wanted == "full")
}

/// A guest to be booted. Its time is the count of its instructions: a busy host makes it slower and changes nothing else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guest {
    /// Options of `tests/rig/run`.
    options: &'static str,
}

/// What a job wrote.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report(String);

impl Guest {
    /// Of one CPU.
    pub(crate) const ONE: Self = Self { options: "" };
    /// The same with the newer kernel.
    pub(crate) const ONE_NEW: Self = Self { options: "--kernel new" };
    /// The same with the older layouts of cgroups.
    pub(crate) const ONE_V1: Self = Self { options: "--cgroup v1" };
    pub(crate) const ONE_HYBRID: Self = Self { options: "--cgroup hybrid" };
    pub(crate) const TWO: Self = Self { options: "--cpus 2" };
    pub(crate) const TWO_NEW: Self = Self { options: "--cpus 2 --kernel new" };
    pub(crate) const TWO_V1: Self = Self { options: "--cpus 2 --cgroup v1" };
    pub(crate) const FOUR: Self = Self { options: "--cpus 4" };
    pub(crate) const FOUR_V1: Self = Self { options: "--cpus 4 --cgroup v1" };
    pub(crate) const FOUR_NEW: Self = Self { options: "--cpus 4 --kernel new" };
    /// A busy CPU of it has a sixteenth of the instructions of one that is alone.
    pub(crate) const SIXTEEN: Self = Self { options: "--cpus 16 --kernel new" };
    /// CPUs 0 and 1 share a clock, and CPUs 2 and 3 another one.
    pub(crate) const PAIRS: Self = Self { options: "--cpus 4 --domains pairs" };
    /// With systemd.
    pub(crate) const SYSTEMD: Self = Self { options: "--init systemd --kernel new" };
    /// Of 64-bit ARM, for programs built for it.
    pub(crate) const ARM64: Self = Self { options: "--kernel arm64" };

    /// Boots it and runs a job of the folder `jobs` with these words; `None` where the rig cannot be had.
    pub(crate) fn run(self, job: &str) -> Option<Report> {
        Some(self.run_with(rig()?, job))
    }

    /// The same with these files.
    pub(crate) fn run_with(self, rig: &Rig, job: &str) -> Report {
        let _slot = Slot::take();
        let mut command = Command::new(root().join("tests/rig/run"));
        command.arg("--icount").args(self.options.split_whitespace()).args(["--timeout", "900"]);
        for (host, guest) in [(&rig.emu, "/bin/emu"), (&rig.program, "/bin/program"), (&rig.jobs, "/jobs")] {
            command.arg("--file").arg(format!("{}:{guest}", host.display()));
        }
        command.args(["--", "sh"]).args(format!("/jobs/{job}").split_whitespace());
        let begin = Instant::now();
        let ended = output(&mut command);
        println!("{self:?}: {:.0?}", begin.elapsed());
        let (text, words) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        // For whoever reads the test's output: above all that a guest had to be started again.
        eprint!("{words}");
        assert!(ended.status.success(), "{job} in {self:?}: {}\n{text}\n{words}", ended.status);
        Report(text.into_owned())
    }
}

/// Runs jobs in guests at once, as far as the machine bears it.
pub(crate) fn run_at_once<const N: usize>(jobs: [(Guest, String); N]) -> [Option<Report>; N] {
    thread::scope(|scope| {
        jobs.map(|(guest, job)| scope.spawn(move || guest.run(&job)))
            .map(|guest| guest.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

impl Report {
    /// The words of each line that begins with `key`, without it.
    pub(crate) fn lines<'a>(&'a self, key: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
        self.0.lines().filter_map(move |line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(key)).then(|| words.collect())
        })
    }

    /// Everything.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// A word of a report as a number.
pub(crate) fn number(word: &str) -> f64 {
    word.parse().unwrap_or_else(|_| panic!("not a number: {word}"))
}

pub(crate) fn numbers(words: &[&str]) -> Vec<f64> {
    words.iter().map(|word| number(word)).collect()
}

/// The files of the host that guests get.
pub(crate) struct Rig {
    emu: PathBuf,
    program: PathBuf,
    jobs: PathBuf,
}

impl Rig {
    /// With static programs for 64-bit ARM from the folder that `EMU_RIG_AARCH64` names, if it does: this machine's compiler
    /// seldom has a library for them. The README of the rig tells how to build them.
    pub(crate) fn aarch64() -> Option<Self> {
        let built = PathBuf::from(std::env::var_os("EMU_RIG_AARCH64")?);
        Some(Self {
            emu: built.join("emu"),
            program: built.join("program"),
            jobs: root().join("tests/rig/jobs"),
        })
    }
}

/// Has `tests/rig/fetch` get this; says why that is impossible.
pub(crate) fn fetch(what: &[&str]) -> Result<(), String> {
    let fetched = output(Command::new(root().join("tests/rig/fetch")).args(what));
    if fetched.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&fetched.stderr).trim().to_owned())
    }
}

/// Fetches packages, takes the symbols off the binary under test and builds the guest's program, once; says why where
/// that is impossible.
fn rig() -> Option<&'static Rig> {
    static RIG: OnceLock<Option<Rig>> = OnceLock::new();
    RIG.get_or_init(|| {
        if let Err(why) = fetch(&["old", "new"]) {
            skip(&why);
            return None;
        }
        let rig = root().join("tests/rig");
        let made = root().join("target/rig");
        std::fs::create_dir_all(&made).expect("a folder for the guests' files");
        let [emu, program] = ["emu", "program"].map(|name| made.join(name));
        // Every megabyte has to be unpacked in each boot.
        built(Command::new("strip").arg("-o").arg(&emu).arg(EMU));
        let static_one = ["--edition", "2024", "-O", "-C", "target-feature=+crt-static"];
        let mut rustc = Command::new("rustc");
        // By a short name of the source: a longer one would move all that follows in a guest that counts instructions.
        built(rustc.current_dir(&rig).args(static_one).arg("-o").arg(&program).arg("program.rs"));
        Some(Rig { emu, program, jobs: rig.join("jobs") })
    })
    .as_ref()
}

fn built(command: &mut Command) {
    let ended = output(command);
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The guests that may still be started; each keeps a CPU of the host busy.
static FREE: (Mutex<usize>, Condvar) = (Mutex::new(2), Condvar::new());

/// The right to run a guest, given back on drop.
struct Slot;

impl Slot {
    fn take() -> Self {
        let (free, changed) = &FREE;
        let free = free.lock().unwrap_or_else(PoisonError::into_inner);
        *changed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner) -= 1;
        Self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *FREE.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        FREE.1.notify_one();
    }
}
