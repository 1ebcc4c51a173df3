//! What an emulation tells of itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{CpuId, Hertz, MethodId, Target};

/// What an emulation asks, does and costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The method at work.
    pub method: MethodId,
    /// Length of one on/off cycle, with many tasks of the present one; zero for methods without one.
    pub period: Duration,
    /// Cycles since the start.
    pub periods: u64,
    /// Cycles that were skipped because the controller came too late.
    pub missed: u64,
    /// The longest time for which tasks were held at a stretch.
    pub longest_stall: Duration,
    /// CPU time used by emu itself, beyond what it burns on purpose.
    pub own_cpu: Duration,
    /// CPU time burned on purpose, summed over CPUs.
    pub burned: Duration,
    /// Share of the zone's CPUs that tasks outside it had, where they are spared: other shares are of the rest.
    #[serde(default)]
    pub others: Option<f64>,
    /// Each CPU of the zone.
    pub cpus: Vec<CpuStatus>,
    /// What went otherwise than asked, in words; empty when all is well.
    pub notes: Vec<String>,
}

impl Status {
    /// Of a method that has counted nothing yet, and tells of no CPU.
    pub(crate) fn new(method: MethodId, period: Duration) -> Self {
        Self {
            method,
            period,
            periods: 0,
            missed: 0,
            longest_stall: Duration::ZERO,
            own_cpu: Duration::ZERO,
            burned: Duration::ZERO,
            others: None,
            cpus: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// What is asked and delivered on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Which CPU.
    pub cpu: CpuId,
    /// What was asked for.
    pub asked: Target,
    /// The share that the method delivers by its own account, averaged since the last change of target.
    pub effective: f64,
    /// The share of time in which tasks may run; differs from `effective` where costs are compensated.
    pub duty: f64,
    /// The core clock measured last, where the method measures it.
    pub clock: Option<Hertz>,
    /// Whether the CPU is still online.
    pub online: bool,
}
