//! An emulation that lasts, of a program that forks all the time, stays as it began: in memory, descriptors, threads, the
//! size of its journal, and in what it delivers.
//!
//! `tests/campaign soak` lets it last as long as is asked for.

use std::fs;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::campaign::{Table, Wanted};
use crate::common::{
    alone, assert_nothing_left, child_called, emu, finish, journals_of, methods, skip, start, state_folder,
    until_it_acts, words, zone_of,
};

/// What is looked at, and by how much it may grow from the second quarter of the time to the last: an allocator keeps some
/// pages more or less.
const FIGURES: [(&str, f64); 4] =
    [("memory KiB", 256.0), ("descriptors", 1.0), ("threads", 0.0), ("journal KiB", 4.0)];

const ASKED: f64 = 0.3;

/// By how much what is delivered may differ between those quarters, of what is asked, where nothing else runs.
const DRIFT: f64 = 0.005;

#[test]
fn an_emulation_that_lasts_stays_as_it_began() {
    // Looks may be further apart than a quarter, where each costs much: then nothing is told of it.
    soak(Duration::from_secs(8), |[_, last]| last.is_nan() || last < ASKED + 0.1);
}

#[test]
#[ignore = "a campaign of hours: tests/campaign soak"]
fn an_emulation_that_lasts_for_hours_stays_as_it_began() {
    let length = Duration::from_secs(Wanted::from_environment().count);
    soak(length, |[first, last]| (last - first).abs() <= DRIFT * ASKED);
}

/// Every method, as many at once as there are CPUs; `is_right` judges the shares delivered in the two quarters.
fn soak(length: Duration, is_right: fn([f64; 2]) -> bool) {
    let _alone = alone();
    let (methods, cpus) = (methods(), thread::available_parallelism().map_or(1, usize::from));
    if methods.is_empty() {
        skip("no method works here");
        return;
    }
    let mut table = Table::new(&["method", "figure", "second quarter", "last quarter"]);
    let mut wrong = Vec::new();
    for methods in methods.chunks(cpus) {
        let mut emulations: Vec<_> =
            methods.iter().enumerate().map(|(cpu, method)| Emulation::start(method, cpu, length)).collect();
        let begin = Instant::now();
        while begin.elapsed() < length {
            thread::sleep((length / 240).max(Duration::from_millis(250)));
            emulations.iter_mut().for_each(Emulation::look);
        }
        for emulation in emulations {
            let (method, samples) = (emulation.method.clone(), emulation.end());
            let half = samples.len() / 2;
            let quarters = [&samples[half / 2..half], &samples[half + half / 2..]];
            let mut compare = |what: &str, figures: [f64; 2], is_right: bool| {
                let [first, last] = figures.map(|figure| format!("{figure:.2}"));
                if !is_right {
                    wrong.push(format!("{method}: {what} was {first} and is {last}"));
                }
                table.row([method.clone(), what.to_owned(), first, last]);
            };
            for (which, (what, bound)) in FIGURES.into_iter().enumerate() {
                let most = |some: &[Sample]| some.iter().map(|one| one.figures[which]).fold(0.0, f64::max);
                let most = quarters.map(most);
                compare(what, most, most[1] <= most[0] + bound);
            }
            let shares = quarters.map(delivered);
            compare("delivered %", shares.map(|share| 100.0 * share), is_right(shares));
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What was delivered between the first of some samples and the last, as a share of the CPU.
fn delivered(samples: &[Sample]) -> f64 {
    let [first, last] = [samples.first(), samples.last()].map(|one| one.expect("samples").delivered);
    (last[0] - first[0]) / (last[1] - first[1])
}

/// What an emu and its guardian have, and what was delivered so far.
struct Sample {
    figures: [f64; FIGURES.len()],
    /// CPU time, and the time in which it was observed, in seconds.
    delivered: [f64; 2],
}

/// A loop and a program that forks all the time, on one CPU at 30 %.
struct Emulation {
    emu: Option<Child>,
    method: String,
    samples: Vec<Sample>,
}

impl Emulation {
    fn start(method: &str, cpu: usize, length: Duration) -> Self {
        // It ends by itself, should the test not be there to end it.
        let program = "while :; do :; done & while :; do sh -c :; done";
        let line = format!("run -q -s 30% -c {cpu} -m {method} -- timeout {} sh -c", length.as_secs() + 60);
        let child = start(emu(words(&line)).arg(program));
        let emulation = Self { emu: Some(child), method: method.to_owned(), samples: Vec::new() };
        until_it_acts(emulation.id());
        emulation
    }

    fn id(&self) -> u32 {
        self.emu.as_ref().map(Child::id).expect("it has not ended")
    }

    /// Takes a sample.
    fn look(&mut self) {
        let pid = self.id();
        let zone = zone_of(pid);
        assert!(zone.is_object(), "{}: it is gone", self.method);
        let told = &zone["status"]["delivered"];
        let observed = told["observed_ns"].as_f64().unwrap_or(0.0) * 1e-9;
        let delivered = [told["share"].as_f64().unwrap_or(0.0) * observed, observed];
        let mut figures = [0.0; FIGURES.len()];
        let guardian = child_called(pid, "emu-guardian").expect("a guardian") as u32;
        for pid in [pid, guardian] {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
            let number = |key: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(key)).expect(key);
                line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number")
            };
            figures[0] += number("RssAnon:");
            figures[1] += fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").count() as f64;
            figures[2] += number("Threads:");
        }
        let journals = journals_of(pid);
        let sizes = journals.iter().filter_map(|name| fs::metadata(state_folder().join(name)).ok());
        figures[3] = sizes.map(|file| file.len() as f64 / 1024.0).sum();
        self.samples.push(Sample { figures, delivered });
    }

    fn end(mut self) -> Vec<Sample> {
        let emu = self.emu.take().expect("it has not ended");
        kill(Pid::from_raw(emu.id() as i32), Signal::SIGTERM).expect("emu is there");
        let ended = finish(emu);
        assert_nothing_left(ended.pid);
        std::mem::take(&mut self.samples)
    }
}

impl Drop for Emulation {
    /// A test that fails does not keep its CPU: what emu ran ends by itself.
    fn drop(&mut self) {
        if let Some(emu) = &self.emu {
            let _ = kill(Pid::from_raw(emu.id() as i32), Signal::SIGTERM);
        }
    }
}
