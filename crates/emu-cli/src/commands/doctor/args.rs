use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use emu_core::CpuList;

use crate::commands::restore::RestoreArgs;
use crate::measuring::MeasureArgs;
use crate::values::{self, PAIRS_MOST};

const MEASURE: &str = "With --measure";

const EXAMPLES: &str = "\
Examples:
  emu doctor show
  emu doctor show --knobs turbo,thp      # in full
  emu doctor tune -- ./benchmark
  emu doctor tune --measure --quick
  emu doctor reset";

/// Show what makes runs vary here, and tune the machine for one run
///
/// Each knob is shown with what was found, what is better for repeatable runs, and why. What is tuned is put back
/// when the tuning ends, whatever ends it.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) struct DoctorArgs {
    #[command(subcommand)]
    pub(crate) action: DoctorAction,
}

/// What to do about the machine.
#[derive(Debug, Subcommand)]
pub(crate) enum DoctorAction {
    Show(DoctorShowArgs),
    Tune(DoctorTuneArgs),
    /// Undo what a killed tuning left
    ///
    /// The same as `emu restore`.
    Reset(RestoreArgs),
}

/// Which knobs, and for which CPUs.
#[derive(Debug, Args)]
pub(crate) struct KnobArgs {
    /// Only these knobs [default: all]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = values::knobs(), hide_possible_values = true)]
    pub(crate) knobs: Vec<String>,

    /// The CPUs that runs will use, to be kept quiet; interrupts go to the others [default: all allowed]
    #[arg(short, long, value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) cpus: Option<CpuList>,
}

/// Show what makes runs vary here
///
/// Nothing is changed, but what killed emus have left is undone first. emu ends with code 7 when something disturbs that can be tuned, or put right by hand without a reboot. Knobs that
/// are named are shown in full.
#[derive(Debug, Args)]
pub(crate) struct DoctorShowArgs {
    #[command(flatten)]
    pub(crate) knobs: KnobArgs,

    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run a command on a tuned machine, or hold it tuned until Ctrl-C
///
/// Changes what can be changed, runs the command, and puts back exactly what was found; emu ends as the command does.
/// Knobs that the kernel refuses are named and left, those that are named must not be refused. There is no tuning that
/// outlives emu: if it is killed, its guardian puts everything back.
#[derive(Debug, Args)]
pub(crate) struct DoctorTuneArgs {
    #[command(flatten)]
    pub(crate) knobs: KnobArgs,

    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true, conflicts_with_all = ["command", "measure"])]
    pub(crate) limit: Option<Duration>,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Measure what each knob does to the noise, in interleaved pairs of windows as found and tuned
    #[arg(long, conflicts_with = "command")]
    pub(crate) measure: bool,

    /// Pairs of windows of each knob [default: 12, with --quick 6]
    #[arg(long, value_name = "N", value_parser = values::whole("number of pairs", 6..=u32::from(PAIRS_MOST), "--pairs 12"), requires = "measure", allow_hyphen_values = true, help_heading = MEASURE)]
    pub(crate) pairs: Option<u32>,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten, next_help_heading = MEASURE)]
    pub(crate) measuring: MeasureArgs,
}
