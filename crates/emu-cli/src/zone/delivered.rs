//! What was delivered, as the JSON of `run` and `attach` has it.

use emu_core::{CpuId, Delivered};
use serde::{Deserialize, Serialize};

use crate::output::nanos;

/// What was delivered at one speed.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StepRecord {
    /// From the begin of the emulation.
    pub(crate) from_ns: u64,
    /// The same of its end.
    pub(crate) until_ns: u64,
    /// What the tasks were given; null where that cannot be told.
    pub(crate) delivered: Option<DeliveredRecord>,
    /// The same for each CPU.
    pub(crate) cpus: Vec<StepCpu>,
}

#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StepCpu {
    /// Which CPU.
    pub(crate) cpu: CpuId,
    /// What was asked of it.
    pub(crate) asked_share: f64,
    /// What tasks were given on it; null where that cannot be told.
    pub(crate) delivered: Option<DeliveredRecord>,
}

/// What was seen to be delivered, with a 95 % interval.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeliveredRecord {
    /// What it was worked out from.
    basis: Basis,
    /// Of the reference clock.
    pub(crate) share: f64,
    /// Lower end of its 95 % interval.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
    /// What was asked for on the same CPUs in the same time.
    pub(crate) asked: f64,
    /// Relative error: `share / asked − 1`.
    pub(crate) error: f64,
    /// For how long tasks wanted all that they could get.
    observed_ns: u64,
}

impl DeliveredRecord {
    /// The mean over the time that was observed.
    pub(crate) fn mean(all: &[Self]) -> Option<Self> {
        let observed_ns = all.iter().map(|one| one.observed_ns).sum::<u64>();
        let sum = |of: fn(&Self) -> f64| all.iter().map(|one| of(one) * one.observed_ns as f64).sum::<f64>();
        let mean = |of: fn(&Self) -> f64| sum(of) / observed_ns as f64;
        let squares =
            all.iter().map(|one| ((one.high - one.low) / 2.0 * one.observed_ns as f64).powi(2)).sum::<f64>();
        let (share, asked, half) =
            (mean(|one| one.share), mean(|one| one.asked), squares.sqrt() / observed_ns as f64);
        let basis = all.first()?.basis;
        let (low, high, error) = (share - half, share + half, share / asked - 1.0);
        Some(Self { basis, share, low, high, asked, error, observed_ns })
    }

    pub(super) fn of(seen: &Delivered, basis: Basis) -> Self {
        Self {
            basis,
            share: seen.share,
            low: seen.low,
            high: seen.high,
            asked: seen.asked,
            error: seen.error(),
            observed_ns: nanos(seen.observed),
        }
    }
}

/// What a delivered share was worked out from.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Basis {
    /// The CPU time of the zone's tasks by the kernel's account.
    CpuTime,
    /// That, times the core clock as it was measured.
    CpuTimeAndClock,
}
