//! One window of a worker, and what is known of it.

use emu_core::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock::CoreClock;
use crate::workload::Done;

/// With emulation or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Nothing is engaged.
    Native,
    /// The emulation is at work.
    Emulated,
}

/// A window and what is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// With emulation or without.
    pub side: Side,
    /// The work done.
    pub done: Done,
    /// The core clock around it; `None` where that could not be measured.
    pub clock: Option<CoreClock>,
    /// For how long the worker worked under the emulation, uncounted, before this window was ordered, in seconds. An
    /// emulation that goes by CPU time over lifetime treats a worker by its past until that has settled; 0 for others.
    #[serde(default)]
    pub settled_s: f64,
    /// CPU time of the thread that waits for the worker, from the order to the report, in seconds: all that the
    /// harness does meanwhile on CPUs that are measured.
    pub harness_cpu_s: f64,
    /// Share of the time that the hypervisor took from the CPUs.
    pub steal: f64,
    /// Share of the CPUs' time for which limits of our own cgroup and of those above it throttled tasks. Emulation stops them
    /// in groups of its own below.
    #[serde(default)]
    pub throttled: f64,
    /// Share of the CPUs' time that was neither the worker's nor this process's nor idle, at least; `None` where
    /// that cannot be told.
    pub foreign: Option<f64>,
    /// What the emulation says of itself, for an emulated window.
    pub delivery: Option<Delivery>,
}

impl Window {
    /// Work per cycle of the core clock: the same whatever the clock was, for work that follows it.
    pub fn work_per_cycle(&self) -> Option<f64> {
        self.clock.map(|clock| self.done.rate() / clock.mean_hz())
    }
}

/// What an emulation says of itself over a window and the time it was given to settle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// Wall time covered, in seconds.
    pub wall_s: f64,
    /// Periods in it.
    pub periods: u64,
    /// Periods that it missed.
    pub missed: u64,
    /// CPU time of emu itself beyond what it burns on purpose, by its own account, in seconds.
    pub own_cpu_s: f64,
    /// The same by the kernel's account of this process, the harness included; wrong by up to one burn.
    pub process_cpu_s: f64,
    /// The longest stop since it was engaged, in seconds.
    pub longest_stall_s: f64,
    /// The share delivered by its own account, on each CPU.
    pub effective: Vec<f64>,
}

impl Delivery {
    pub(super) fn between(before: &Status, after: &Status, wall_s: f64, process_cpu_s: f64) -> Self {
        let burned_s = after.burned.saturating_sub(before.burned).as_secs_f64();
        Self {
            process_cpu_s: (process_cpu_s - burned_s).max(0.0),
            wall_s,
            periods: after.periods.saturating_sub(before.periods),
            missed: after.missed.saturating_sub(before.missed),
            own_cpu_s: after.own_cpu.saturating_sub(before.own_cpu).as_secs_f64(),
            longest_stall_s: after.longest_stall.as_secs_f64(),
            effective: after.cpus.iter().map(|cpu| cpu.set).collect(),
        }
    }
}
