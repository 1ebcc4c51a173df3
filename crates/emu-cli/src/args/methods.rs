use std::time::Duration;

use clap::Args;
use emu_core::{CpuList, MethodId, SpeedSpec, Variant};

use super::values;

/// Tell which methods work here, how well, and why others do not
#[derive(Debug, Args)]
pub(crate) struct MethodsArgs {
    /// The speed to judge by
    #[arg(short, long, default_value = "50%", allow_hyphen_values = true)]
    pub(crate) speed: SpeedSpec,

    /// Show one method in full
    #[arg(short, long, value_parser = values::method())]
    pub(crate) method: Option<MethodId>,

    /// Which form of the methods
    #[arg(long, default_value = "best", value_parser = values::variant())]
    pub(crate) variant: Variant,

    /// The CPUs to judge by [default: those that --speed names, else all allowed]
    #[arg(short, long, value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) cpus: Option<CpuList>,

    /// Length of one on/off cycle, 500us to 1s [default: each method's own]
    #[arg(short, long, value_name = "DURATION", value_parser = values::period, allow_hyphen_values = true)]
    pub(crate) period: Option<Duration>,

    /// Judge as if --lift-rt-limit were passed to `emu run`
    #[arg(long)]
    pub(crate) lift_rt_limit: bool,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}
