use clap::Args;
use emu_core::SpeedSpec;

use super::{DemandArgs, Methods, values};

/// The most pairs that can be asked for.
pub(crate) const PAIRS_MOST: u16 = 1000;

/// Measure how faithfully programs run as on a slower CPU
///
/// Pairs of windows with and without emulation are compared with the ideal, for each kind of work. emu ends with
/// code 5 when a speed is shown not to be delivered.
///
/// Where neither --cpus nor --speed names CPUs, cpu-loop is measured on the first CPU alone as well.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Speed to verify, as for `emu run`; may be given more than once
    #[arg(short, long, default_value = "50%", allow_hyphen_values = true)]
    pub(crate) speed: Vec<SpeedSpec>,

    /// The method, or all that work here
    #[arg(short, long, default_value = "auto", value_parser = values::methods())]
    pub(crate) method: Methods,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    /// Kinds of work [default: all but stream]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = values::workloads())]
    pub(crate) workloads: Vec<String>,

    /// Pairs of windows for each kind of work and speed [default: 15, with --quick 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=i64::from(PAIRS_MOST)))]
    pub(crate) pairs: Option<u16>,

    /// How far from the ideal still passes
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = values::share, allow_hyphen_values = true)]
    pub(crate) tolerance: f64,

    /// Take few and short samples: for a first look
    #[arg(long)]
    pub(crate) quick: bool,

    /// Start of the random numbers, to repeat a run [default: from the clock]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Write JSON, with every sample
    #[arg(long)]
    pub(crate) json: bool,
}
