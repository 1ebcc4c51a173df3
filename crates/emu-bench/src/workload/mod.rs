//! Programs whose speed has a known ideal answer to a change of the CPU's speed.
//!
//! A workload runs in a [`Worker`]: a fresh process of the current executable that waits for [`Order`]s, works through the
//! window of each, and reports what was [`Done`]. The harness stays outside of the zone of the worker.

mod clocks;
mod cpu_loop;
pub mod kernel;
mod multiprocess;
mod multithread;
mod part;
mod sleep_compute;
mod stamps;
mod stream;
mod threads;
mod udp_io;
mod worker;

pub use clocks::{now_ns, process_cpu_ns, thread_cpu_ns};
pub use part::confine;
pub use udp_io::Receiver;
pub use worker::Worker;

use std::fmt::Debug;
use std::time::Duration;

use emu_core::{AsNs, CpuList, Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::memory::StreamSize;
use crate::stream::Kernel;
use crate::worker::Kind;

/// The task of the processes that workloads run in; every program that starts a [`Worker`] serves it.
pub const TASK: Kind = Kind::of::<worker::JobTask>();

/// One kind of program. Implementors verify every result outside of the timed span, count the work of a window as [`Order`]
/// says, and do nothing when no window is under way.
pub trait Workload: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// What it does, in one line.
    fn about(&self) -> &'static str;

    /// What its work is counted in.
    fn unit(&self) -> &'static str {
        "steps"
    }

    /// The least work that is seen, in those units.
    fn quantum(&self) -> f64 {
        kernel::QUANTUM as f64
    }

    /// The ratio of emulated and native rate that a really slower CPU would give for such a native window. By default sleeps
    /// keep their length and work stretches: with the share q of its time slept, 1 / (q + (1 − q) / share).
    fn ideal(&self, share: f64, native: &Done) -> f64 {
        let idle = native.idle_share();
        1.0 / (idle + (1.0 - idle) / share)
    }

    /// Whether the time of an undisturbed step follows the core clock and nothing else.
    fn follows_clock(&self) -> bool {
        true
    }

    /// Whether emulation promises the ideal. Where not, the workload shows a limit that all methods of a kind
    /// have, and is verified only when it is named.
    fn is_promised(&self) -> bool {
        true
    }

    /// The job that suits a zone.
    fn job(&self, setting: &Setting) -> Job;

    /// Starts what the harness runs outside of the zone, and completes the job by where it is found; called in the harness.
    fn companion(&self, _job: &mut Job) -> Result<Option<Receiver>> {
        Ok(None)
    }

    /// Gets ready to work; called in the worker, before anything slows it.
    fn start(&self, job: &Job) -> Result<Box<dyn Running>>;
}

/// A workload that is ready.
pub trait Running {
    /// Works through one window.
    fn through(&mut self, order: &Order) -> Result<Done>;
}

/// Every workload, in the order in which they are listed.
pub static WORKLOADS: &[&dyn Workload] = &[
    &cpu_loop::CpuLoop,
    &multithread::Multithread,
    &multiprocess::Multiprocess,
    &sleep_compute::SleepCompute,
    &udp_io::PACED,
    &udp_io::UNPACED,
    &stream::Stream,
];

/// Work for one CPU, and for several: what a first look takes. Traffic that a slower CPU does not slow teaches least for its
/// time, traffic as fast as it goes is bound to the CPU as the loop is, and `stream` takes seconds to fill its memory for a
/// window of milliseconds.
pub const BUSY: [&str; 4] = ["cpu-loop", "multithread", "multiprocess", "sleep-compute"];

/// The workload of that name.
pub fn workload(name: &str) -> Result<&'static dyn Workload> {
    WORKLOADS.iter().copied().find(|workload| workload.name() == name).ok_or_else(|| {
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name()).collect();
        Error::usage(format!("there is no workload `{name}`")).hint(format!("one of {}", names.join(", ")))
    })
}

/// What a job is made for.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The CPUs of the zone.
    pub cpus: CpuList,
    /// Length of an on/off cycle of the emulation; zero without one.
    pub period: Duration,
    /// The lowest share asked for.
    pub share: f64,
    /// How long a window is to be.
    pub window: Duration,
}

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// The name of the workload.
    pub workload: String,
    /// The CPUs that it is bound to, with and without emulation: those of the zone.
    pub cpus: CpuList,
    /// Threads or processes that compute at once.
    pub active: usize,
    /// Processes that only wait.
    pub idle: usize,
    /// Whether each thread or process is bound to a CPU of its own, in turn: from the start on.
    pub pinned: bool,
    /// CPU time of a burst between two sleeps, un-emulated.
    #[serde(rename = "burst_ns", with = "AsNs")]
    pub burst: Duration,
    /// Mean length of a sleep.
    #[serde(rename = "sleep_ns", with = "AsNs")]
    pub sleep: Duration,
    /// Sleeps and bursts in a window.
    pub cycles: u64,
    /// Time between two messages; zero for as many as it can send.
    #[serde(rename = "interval_ns", with = "AsNs", default)]
    pub interval: Duration,
    /// Where messages go, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The arrays that are moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrays: Option<StreamSize>,
}

impl Job {
    /// A job of one thread.
    pub(crate) fn new(workload: &str, cpus: &CpuList) -> Self {
        Self {
            workload: workload.into(),
            cpus: cpus.clone(),
            active: 1,
            idle: 0,
            pinned: false,
            burst: Duration::ZERO,
            sleep: Duration::ZERO,
            cycles: 0,
            interval: Duration::ZERO,
            port: None,
            arrays: None,
        }
    }

    fn cpus_of(&self, part: usize) -> CpuList {
        match self.cpus.iter().nth(part % self.cpus.len().max(1)) {
            Some(cpu) if self.pinned => [cpu].into_iter().collect(),
            _ => self.cpus.clone(),
        }
    }
}

/// One window, on the clock that worker and harness share.
///
/// Work that computes without a break starts when the order comes and counts between the two moments. Work
/// with sleeps starts at the first moment and counts until its cycles are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// When the window opens, in nanoseconds of `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// How long it is.
    pub length_ns: u64,
    /// The number of its first cycle, by which sleeps vary: windows to be compared have the same one.
    pub first: u64,
    /// Whether the stamps are wanted, for the granularity spectrum.
    pub stamps: bool,
}

impl Order {
    /// When the window closes.
    pub fn end_ns(&self) -> u64 {
        self.begin_ns.saturating_add(self.length_ns)
    }
}

/// What was done in a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// When counting began, in nanoseconds of `CLOCK_MONOTONIC`.
    pub begun_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// Work in the workload's unit, for each thread or process.
    pub parts: Vec<f64>,
    /// CPU time of all of them, to a quantum.
    pub cpu_ns: u64,
    /// CPU time of all processes of the worker from the order to the report.
    pub spent_ns: u64,
    /// Time slept on purpose.
    pub slept_ns: u64,
    /// How long an undisturbed quantum took; zero where it does not tell the core clock.
    pub quantum_ns: f64,
    /// The longest time without progress, the quantum that ended it included.
    pub longest_stall_ns: u64,
    /// By how much the work began too late to fill the window.
    pub late_ns: u64,
    /// What was sent, where work is messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
    /// What each kernel has moved, where work is that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
    /// Time and work after each quantum, where asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stamps: Vec<(u64, u64)>,
}

/// The messages of a window. Only those that arrived are work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Messages {
    /// The number of the first.
    pub first: u64,
    /// The number after the last.
    pub end: u64,
    /// How many of them did not arrive intact.
    pub lost: u64,
}

impl Messages {
    /// Lost ones as a share of those sent.
    pub fn lost_share(&self) -> f64 {
        self.lost as f64 / self.end.saturating_sub(self.first).max(1) as f64
    }
}

/// What one kernel has moved in a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// Which.
    pub kernel: Kernel,
    /// Bytes read and written, by all threads.
    pub bytes: u64,
    /// Wall time in the kernel, summed over the threads.
    pub busy_ns: u64,
}

impl Done {
    /// Wall time of the window in seconds.
    pub fn wall_s(&self) -> f64 {
        self.ended_ns.saturating_sub(self.begun_ns) as f64 / 1e9
    }

    /// Work of all parts.
    pub fn work(&self) -> f64 {
        self.parts.iter().sum()
    }

    /// Work per second of wall time.
    pub fn rate(&self) -> f64 {
        self.work() / self.wall_s()
    }

    /// Share of the wall time that was slept on purpose.
    pub fn idle_share(&self) -> f64 {
        self.slept_ns as f64 / 1e9 / self.wall_s()
    }

    /// Of several threads or processes. All are asked, also after one has failed: a report that is left would be taken for
    /// that of the next window.
    fn of_all(parts: impl Iterator<Item = Result<Self>>) -> Result<Self> {
        parts.reduce(|all, one| Ok(all?.join(one?))).unwrap_or_else(|| Ok(Self::default()))
    }

    fn join(mut self, other: Self) -> Self {
        // A part that had no CPU to speak of does not tell.
        let weight = |done: &Self| if done.quantum_ns > 0.0 { done.work() } else { 0.0 };
        let (own, others) = (weight(&self), weight(&other));
        if own + others > 0.0 {
            self.quantum_ns = (self.quantum_ns * own + other.quantum_ns * others) / (own + others);
        }
        self.parts.extend(other.parts);
        self.cpu_ns += other.cpu_ns;
        self.spent_ns += other.spent_ns;
        self.slept_ns += other.slept_ns;
        self.longest_stall_ns = self.longest_stall_ns.max(other.longest_stall_ns);
        self.late_ns = self.late_ns.max(other.late_ns);
        for (moved, other) in self.moved.iter_mut().zip(&other.moved) {
            moved.bytes += other.bytes;
            moved.busy_ns += other.busy_ns;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(cpus: &str) -> Setting {
        Setting {
            cpus: cpus.parse().unwrap(),
            period: Duration::from_millis(10),
            share: 0.5,
            window: Duration::from_millis(200),
        }
    }

    #[test]
    fn every_workload_has_its_own_name_and_makes_jobs_by_it() {
        for workload in WORKLOADS {
            assert!(!workload.about().is_empty());
            assert_eq!(workload.job(&setting("0-1")).workload, workload.name());
            assert_eq!(super::workload(workload.name()).unwrap().name(), workload.name());
        }
        let error = super::workload("cpu-lop").err().unwrap();
        assert!(error.hint_text().unwrap().contains("cpu-loop"));
    }

    #[test]
    fn pinned_parts_take_the_cpus_in_turn() {
        let mut job = Job::new("multithread", &"1,3".parse().unwrap());
        assert_eq!(job.cpus_of(1).to_string(), "1,3");
        job.pinned = true;
        let cpus: Vec<_> = (0..3).map(|part| job.cpus_of(part).to_string()).collect();
        assert_eq!(cpus, ["1", "3", "1"]);
    }

    #[test]
    fn a_job_comes_back_from_json_with_its_spans_in_nanoseconds() {
        let job = workload("sleep-compute").unwrap().job(&setting("0-1"));
        let text = serde_json::to_string(&job).unwrap();
        assert!(text.contains(r#""burst_ns":100000000"#), "{text}");
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    }

    #[test]
    fn joined_parts_add_up_and_keep_the_worst() {
        let part = |work, quantum_ns, longest_stall_ns| Done {
            begun_ns: 0,
            ended_ns: 1_000_000_000,
            parts: vec![work],
            cpu_ns: 5,
            quantum_ns,
            longest_stall_ns,
            ..Done::default()
        };
        let idle = part(0.0, 0.0, 0);
        let all = idle
            .clone()
            .join(part(10.0, 1.0, 7))
            .join(part(20.0, 4.0, 9))
            .join(idle)
            .join(part(30.0, 7.0, 8));
        assert_eq!(all.parts, [0.0, 10.0, 20.0, 0.0, 30.0]);
        assert!((all.rate() - 60.0).abs() < 1e-9);
        assert!((all.quantum_ns - 5.0).abs() < 1e-9, "by work; what had no CPU does not tell");
        assert_eq!((all.cpu_ns, all.longest_stall_ns), (25, 9));
    }
}
