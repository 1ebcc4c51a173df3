use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::measuring::MeasureArgs;
use crate::values;

/// Measure how the speed of this machine follows the CPU quota
///
/// LINPACK at quotas from 0.1 CPUs to all of them, with --quick in larger steps on more than two; the published linear
/// model, and what its R² hides. emu ends with code 5 when a solution is wrong.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CalibrateArgs {
    #[command(subcommand)]
    pub(crate) command: Option<CalibrateCommand>,

    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Step from one quota to the next, in CPUs [default: 0.1; with --quick one that makes 20 quotas at most]
    #[arg(long, value_name = "CPUS", value_parser = values::step, allow_hyphen_values = true)]
    pub(crate) step: Option<f64>,

    /// Measure as a published study did, and show its tables beside
    #[arg(long, value_name = "STUDY")]
    pub(crate) preset: Option<CalibratePreset>,
}

/// A published study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CalibratePreset {
    /// Manner & Wirtz 2021: 10000 equations, ascending, threads on all CPUs (with --quick only its tables)
    #[value(name = "semode-2021")]
    Semode2021,
}

/// What to do with calibrations that were taken.
#[derive(Debug, Subcommand)]
pub(crate) enum CalibrateCommand {
    Map(CalibrateMapArgs),
}

/// Find the local quota that equals a setting of another machine
#[derive(Debug, Args)]
pub(crate) struct CalibrateMapArgs {
    /// The calibration of this machine: a record, or a file of --json
    #[arg(value_name = "LOCAL")]
    pub(crate) local: PathBuf,

    /// That of the other one; or a CSV file with lines of a setting and its GFLOPS
    #[arg(value_name = "OTHER")]
    pub(crate) other: PathBuf,

    /// The setting of the other machine: CPUs, or what the CSV has
    #[arg(long, value_name = "NUMBER", value_parser = values::setting, allow_hyphen_values = true)]
    pub(crate) setting: f64,

    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}
