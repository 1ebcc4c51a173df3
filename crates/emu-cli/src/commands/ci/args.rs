use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use emu_core::Speed;

use crate::values::{self, MethodChoice};
use crate::zone::DemandArgs;

const EXAMPLES: &str = "\
Examples:
  emu ci -- cargo test
  emu ci --reps 5 --junit report.xml -- pytest --junit-xml report.xml
  emu ci --timeout 5m --summary $GITHUB_STEP_SUMMARY -- make check";

/// Run a test command as on slower CPUs, and tell what fails only there
///
/// The command runs several times at each speed, one run after the other. A run that fails or times out at a slower speed and
/// never at the first one fails only when slow; with --junit the same is told of each test. emu tells the result on stderr,
/// and ends with 8 where anything fails only when slow, else with 1 where anything fails, else with 0.
#[derive(Debug, Args)]
#[command(override_usage = "emu ci [OPTIONS] COMMAND...")]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) struct CiArgs {
    /// Speeds, the fastest first: the others are compared with it
    #[arg(
        short,
        long,
        value_name = "SPEED",
        value_delimiter = ',',
        default_value = "100%,50%,25%,10%",
        allow_hyphen_values = true
    )]
    pub(crate) speeds: Vec<Speed>,

    /// Runs at each speed
    #[arg(short, long, value_name = "N", default_value = "3", value_parser = values::whole("number of runs", 1..=1000_u16, "--reps 3"), allow_hyphen_values = true)]
    pub(crate) reps: u16,

    /// End a run that takes longer than this at 100%, or than twice this at 50%
    #[arg(short, long, value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,

    /// JUnit XML that each run writes: a file, or a folder with all in it and below; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) junit: Vec<PathBuf>,

    /// Write what each test came to into one JUnit XML FILE, with a suite for each speed
    #[arg(long, value_name = "FILE", value_parser = values::output_file)]
    pub(crate) merged: Option<PathBuf>,

    /// How to slow the CPUs down; `emu methods` shows what works here
    #[arg(short, long, default_value = "auto", value_parser = values::method_or_auto())]
    pub(crate) method: MethodChoice,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    /// Append the result to FILE, in Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,

    /// It was begun anew in a scope of systemd
    #[arg(long, hide = true)]
    pub(crate) in_scope: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Write the result to FILE at the end
    #[arg(long, value_name = "FILE", value_parser = values::output_file)]
    pub(crate) json: Option<PathBuf>,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
