//! What an emulation tells of itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cpu_list::CpuId;
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::speed::{Hertz, Target};

/// Whether the limit that was asked for is in force, as far as the method can know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Health {
    /// It is, and nothing is known to have escaped it.
    #[default]
    Holding,
    /// Some tasks or CPUs escape it or have escaped it, or it is not what was asked for: see [`Status::problems`].
    Degraded,
    /// What kept it up has ended: the tasks run freely.
    Ended,
}

/// What an emulation asks, does and costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Status {
    /// The method at work.
    pub method: MethodId,
    /// Length of one on/off cycle, with many tasks of the present one; zero for methods without one.
    pub period: Duration,
    /// Cycles since the start.
    pub periods: u64,
    /// Cycles that were skipped because the controller came too late.
    pub missed: u64,
    /// The longest time for which tasks were stopped at a stretch.
    pub longest_stall: Duration,
    /// CPU time used by emu itself, beyond what it burns on purpose.
    pub own_cpu: Duration,
    /// CPU time burned on purpose, summed over CPUs.
    pub burned: Duration,
    /// The background load as a share of the zone's CPUs, where it is excluded: other shares are of the rest.
    #[serde(default)]
    pub background: Option<f64>,
    /// What the zone's tasks were given by the kernel's account while they wanted all that they could get; `None` where
    /// that cannot be told, because they did not.
    #[serde(default)]
    pub delivered: Option<Delivered>,
    /// CPU time of all tasks of the zone in CPUs, whether they wanted more or not; `None` before the first look.
    #[serde(default)]
    pub used: Option<f64>,
    /// Each CPU of the zone.
    pub cpus: Vec<CpuStatus>,
    /// Whether what was asked for is in force; records from before it was told have [`Health::Holding`].
    #[serde(default)]
    pub health: Health,
    /// What is wrong, or was at some time since the start, in words; empty while the limit holds.
    #[serde(default)]
    pub problems: Vec<String>,
    /// What else the user should know, in words: all may be well.
    pub notes: Vec<String>,
}

impl Status {
    /// Of a method that has counted nothing yet, and tells of no CPU.
    pub fn new(method: MethodId, period: Duration) -> Self {
        Self {
            method,
            period,
            periods: 0,
            missed: 0,
            longest_stall: Duration::ZERO,
            own_cpu: Duration::ZERO,
            burned: Duration::ZERO,
            background: None,
            delivered: None,
            used: None,
            cpus: Vec::new(),
            health: Health::default(),
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// All that there is to tell: the problems, then the notes.
    pub fn messages(&self) -> Vec<String> {
        [&self.problems[..], &self.notes].concat()
    }

    /// Adds something that keeps the limit from being in force as asked.
    pub fn add_problem(&mut self, problem: String) {
        if self.health == Health::Holding {
            self.health = Health::Degraded;
        }
        self.problems.push(problem);
    }

    pub(crate) fn add_all(&mut self, notes: &Notes) {
        notes.problems().into_iter().for_each(|problem| self.add_problem(problem));
        self.notes.extend(notes.list());
    }

    pub(crate) fn end(&mut self, why: String) {
        self.add_problem(why);
        self.health = Health::Ended;
        for cpu in &mut self.cpus {
            (cpu.set, cpu.duty) = (1.0, 1.0);
        }
    }
}

/// A share that was seen to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Delivered {
    /// Of the reference clock, in the time that was observed.
    pub share: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What was asked for on the same CPUs in the same time.
    pub asked: f64,
    /// For how long tasks wanted all that they could get; only then can it be told.
    pub observed: Duration,
}

impl Delivered {
    /// Relative error: `share / asked − 1`.
    pub fn error(&self) -> f64 {
        self.share / self.asked - 1.0
    }

    /// As a share of a clock that is `scale` of the reference clock.
    pub(crate) fn times(self, scale: f64, asked: f64) -> Self {
        let Self { share, low, high, observed, .. } = self;
        Self { share: share * scale, low: low * scale, high: high * scale, asked, observed }
    }
}

/// What is asked, set and delivered on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CpuStatus {
    /// Which CPU.
    pub cpu: CpuId,
    /// What was asked for.
    pub asked: Target,
    /// The share that the method has set by its own account, averaged since the last change of target.
    pub set: f64,
    /// What tasks were given by the kernel's account; `None` where it cannot be told for this CPU alone.
    #[serde(default)]
    pub delivered: Option<Delivered>,
    /// The share of time in which tasks may run; differs from `set` where costs are compensated.
    pub duty: f64,
    /// The core clock as it was measured; `None` where it is not, or not yet.
    pub clock: Option<Hertz>,
    /// The core clock that the method has set, as the kernel tells it; `None` where it sets none.
    #[serde(default)]
    pub set_clock: Option<Hertz>,
    /// Whether the CPU is still online.
    pub online: bool,
}

impl CpuStatus {
    /// Of a CPU that is online and has what was asked for.
    pub fn new(cpu: CpuId, asked: Target) -> Self {
        let (set, duty) = (asked.share, asked.share);
        Self { cpu, asked, set, delivered: None, duty, clock: None, set_clock: None, online: true }
    }
}
