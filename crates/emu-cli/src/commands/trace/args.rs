use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use emu_core::CpuList;

use crate::values;

const EXAMPLES: &str = "\
A trace is a CSV file. The time is in seconds, and a speed holds until the next:
  time_s,cpu,speed
  0,*,100%
  1.5,0,40%          # CPU 0; `*` is for all of the zone, and 0-3 for some
  20,*,end
With the column `load` instead of `speed` it is what other work would take.

Examples:
  emu trace record laptop.csv --for 60s          # where the speed wavers
  emu trace show laptop.csv --figure laptop.svg
  emu run --trace laptop.csv --json run.json -- ./server
  emu trace show run.json --figure run.svg       # asked and delivered";

/// Speeds that change with time, for --trace
#[derive(Debug, Subcommand)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) enum TraceCommand {
    Record(RecordArgs),
    Show(ShowArgs),
}

/// Record how fast the CPUs of this machine are, over time
///
/// A thread on each CPU computes all the time, as a CPU without work shows neither heat nor steal. What other tasks of this
/// system take is left out. 100 % is the highest speed that was seen.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The trace to write
    #[arg(value_name = "FILE", value_parser = values::output_file)]
    pub(crate) file: PathBuf,

    /// How long to record
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) length: Duration,

    /// Length of a step, 10ms at least
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) every: Duration,

    /// CPUs to record [default: all allowed]
    #[arg(short, long, value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) cpus: Option<CpuList>,

    /// Write clocks (1.2GHz) instead of shares
    #[arg(long)]
    pub(crate) clocks: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Show a trace, or how it was followed
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// A trace, or what `run --trace … --json FILE` has left
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Draw it, as SVG
    #[arg(long, value_name = "SVG", value_parser = values::output_file)]
    pub(crate) figure: Option<PathBuf>,
}
