use std::path::PathBuf;

use clap::Args;

use crate::measuring::MeasureArgs;

const EXAMPLES: &str = "\
Examples:
  emu timers --quick
  emu timers --out here
  emu timers --reference there          # a record of another machine";

/// Measure whether the clocks here tell the truth, and what each is worth
///
/// Cost and step of every clock, whether it runs back on one CPU or across them, how far CPU time and wall time are
/// apart by the size of a computation, whether the order of sizes matters, and where the time of a sample goes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TimersArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Compare the performance with that of another machine: its record of emu timers
    #[arg(long, value_name = "DIR")]
    pub(crate) reference: Option<PathBuf>,
}
