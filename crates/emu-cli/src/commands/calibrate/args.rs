use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use emu_machine::calibrate::EQUATIONS;

use crate::measuring::MeasureArgs;
use crate::values;

const EXAMPLES: &str = "\
Examples:
  emu calibrate --quick
  emu calibrate --out here
  emu calibrate map here there.csv --setting 1769
  emu calibrate compare here there";

/// Measure how the speed of this machine follows the CPU quota
///
/// LINPACK at quotas from 0.1 CPUs to all of them, with --quick in larger steps on more than two; the published linear
/// model, and what its R² hides. What others have disturbed is left out and listed. emu ends with code 5 when a solution
/// is wrong.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CalibrateArgs {
    #[command(subcommand)]
    pub(crate) command: Option<CalibrateCommand>,

    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Step from one quota to the next, in CPUs [default: 0.1; with --quick one that makes 20 quotas at most]
    #[arg(long, value_name = "CPUS", value_parser = values::step, allow_hyphen_values = true)]
    pub(crate) step: Option<f64>,

    /// How often each quota is measured in each order [default: 1; with --preset 25, as published]
    #[arg(long, value_name = "N", value_parser = values::whole("number of repetitions", 1..=1000_usize, "--reps 3"), allow_hyphen_values = true)]
    pub(crate) reps: Option<usize>,

    /// Equations of the systems of each sample, of which the last one counts [default: 4000; with --quick 2000; with
    /// --preset 1000,5000,10000]
    #[arg(long = "size", value_name = "N", value_delimiter = ',', value_parser = values::whole("number of equations", EQUATIONS, "--size 1000,5000,10000"), allow_hyphen_values = true)]
    pub(crate) sizes: Vec<usize>,

    /// Where the rate is not proportional to the quota, change each knob that may be the reason, and measure all again
    #[arg(long)]
    pub(crate) explain: bool,

    /// Measure as a published study did, and show its tables beside: hours, which --reps and --size shorten
    #[arg(long, value_name = "STUDY")]
    pub(crate) preset: Option<CalibratePreset>,
}

/// A published study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CalibratePreset {
    /// Manner & Wirtz 2021: 25 times up to all CPUs, with threads on all of them (with --quick only its tables)
    #[value(name = "semode-2021")]
    Semode2021,
}

/// What to do with calibrations that were taken.
#[derive(Debug, Subcommand)]
pub(crate) enum CalibrateCommand {
    Map(CalibrateMapArgs),
    Compare(CalibrateCompareArgs),
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

/// Lay calibrations over one another: one machine in several settings, or several machines
///
/// Rates are as they were measured: what a setting does to the clock is an effect of it.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CalibrateCompareArgs {
    /// Calibrations: records, or files of --json; a name of its own for one is written before it as NAME=
    #[arg(value_name = "[NAME=]RECORD", num_args = 2.., required = true)]
    pub(crate) records: Vec<String>,

    /// Draw rates over quotas into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) figure: Option<PathBuf>,

    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

const COMPARE_EXAMPLES: &str = "Examples:
  emu calibrate --out turbo
  emu doctor tune --knobs turbo -- emu calibrate --out steady
  emu calibrate compare turbo steady --figure turbo.svg
  emu calibrate compare 1.a=turbo 1.b=steady";
