//! What was asked for beside the speed, as JSON and other emus have it.

use emu_core::as_ns::nanos;
use emu_core::{Demand, Round};
use serde::{Deserialize, Serialize};

/// What is asked of a method beside the speed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Options {
    /// `--period`; null for the method's own.
    pub(crate) period_ns: Option<u64>,
    /// `--lift-rt-limit`.
    pub(crate) lift_rt_limit: bool,
    /// `--exclude-background`.
    #[serde(rename = "spare_others")]
    pub(crate) exclude_background: bool,
    /// `--round`.
    pub(crate) round: Round,
    /// `--widen`.
    pub(crate) widen_policies: bool,
    /// Not `--no-hold-clock`.
    pub(crate) hold_clock: bool,
}

impl Options {
    pub(crate) fn of(demand: &Demand) -> Self {
        Self {
            period_ns: demand.period.map(nanos),
            lift_rt_limit: demand.lift_rt_limit,
            exclude_background: demand.exclude_background,
            round: demand.round,
            widen_policies: demand.widen_policies,
            hold_clock: demand.hold_clock,
        }
    }
}
