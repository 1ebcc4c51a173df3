use std::time::Duration;

use clap::Args;
use emu_core::SpeedSpec;

use crate::values::{self, Methods};
use crate::zone::DemandArgs;

const EXAMPLES: &str = "\
Examples:
  emu verify --quick
  emu verify --speed 25% --method all --cpus 0
  emu verify --speed 40% --tolerance 2% --until-decided 5m";

/// Measure how faithful the emulation is on this machine
///
/// Pairs of windows with and without emulation are compared with the ideal, for each kind of work. emu ends with
/// code 5 when a speed is shown not to be delivered, and with code 9 when the pairs do not decide it.
///
/// Where neither --cpus nor --speed names CPUs, cpu-loop is measured on the first CPU alone as well.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) struct VerifyArgs {
    /// Speed to verify, as for `emu run`; may be given more than once
    #[arg(short, long, visible_alias = "speeds", default_value = "50%", value_parser = values::speed_to_repeat, allow_hyphen_values = true)]
    pub(crate) speed: Vec<SpeedSpec>,

    /// The method, or all that work here
    #[arg(short, long, default_value = "auto", value_parser = values::methods())]
    pub(crate) method: Methods,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    /// Kinds of work [default: all but stream, with --quick those of emu bench]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = values::workloads())]
    pub(crate) workloads: Vec<String>,

    /// Pairs of windows for each kind of work and speed [default: 15, with --quick 6]
    #[arg(long, value_name = "N", value_parser = values::pairs, allow_hyphen_values = true)]
    pub(crate) pairs: Option<u16>,

    /// Take more pairs until all is decided, or for so long in all [default: 1min, with --quick 8s]
    #[arg(long, value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) until_decided: Option<Duration>,

    /// Largest error that passes
    #[arg(long, value_name = "SHARE", default_value = values::TOLERANCE, value_parser = values::share, allow_hyphen_values = true)]
    pub(crate) tolerance: f64,

    /// Take few and short samples: for a first look
    #[arg(long)]
    pub(crate) quick: bool,

    /// Seed of the random numbers [default: from the clock]
    #[arg(long, value_name = "N", value_parser = values::seed, allow_hyphen_values = true)]
    pub(crate) seed: Option<u64>,

    /// Write JSON to stdout instead of tables, with every sample
    #[arg(long)]
    pub(crate) json: bool,
}
