use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use emu_bench::experiment::methods;
use emu_core::{MethodId, Speed};

use crate::values;

const EXAMPLES: &str = "\
Examples:
  emu bench --quick
  emu bench --methods cpu-hogs,cpu-lim:published --speeds 25%,50% --reps 30
  emu bench --resume emu-results/2026-01-31-some-processor";

/// Compare the methods on every kind of work, and keep a record
///
/// Every method runs every kind of work at every speed, in random order and in pairs with native samples. The raw
/// samples go to a new folder, together with a page that shows what they mean. A run that was interrupted or killed
/// is completed by --resume.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// All methods that work here, in two minutes
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// 40 repetitions at nine speeds, as published; takes hours
    #[arg(long)]
    pub(crate) full: bool,

    /// Measure what was published, and show what of it is reproduced here
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) preset: Option<Preset>,

    /// Methods to compare; `none` is native against native [default: all at their best; with --preset the published ones]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = contenders())]
    pub(crate) methods: Vec<MethodId>,

    /// Kinds of work [default: all; with --preset all but udp-io-unpaced, with --quick not stream and udp-io either]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = values::workloads())]
    pub(crate) workloads: Vec<String>,

    /// Speeds: 40%, 0.4, 1.2GHz [default: 25%,50%,75%; with --quick 50%, and 25%, 75% of cpu-loop; --full 10% to 90%, --preset 20% to 80%]
    #[arg(short, long, value_name = "SPEED", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) speeds: Vec<Speed>,

    /// Numbers of CPUs to run on [default: 1, 2, 4 … as there are; with --quick as many as the work can fill; with --preset 1,2]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = values::cores, allow_hyphen_values = true)]
    pub(crate) cores: Vec<u16>,

    /// Pairs of a native and an emulated sample for each method, work and speed [default: 15; with --quick until they decide, with --full 40]
    #[arg(short, long, visible_alias = "pairs", value_name = "N", value_parser = values::pairs, allow_hyphen_values = true)]
    pub(crate) reps: Option<u16>,

    /// As many pairs as this time allows
    #[arg(short, long, visible_alias = "for", value_name = "DURATION", value_parser = values::duration, conflicts_with = "reps", allow_hyphen_values = true)]
    pub(crate) time: Option<Duration>,

    /// Length of the methods' on/off cycle, 500us to 1s [default: each method's own]
    #[arg(short, long, value_name = "DURATION", value_parser = values::period, allow_hyphen_values = true)]
    pub(crate) period: Option<Duration>,

    /// Largest error that passes
    #[arg(long, value_name = "SHARE", default_value = values::TOLERANCE, value_parser = values::share, allow_hyphen_values = true)]
    pub(crate) tolerance: f64,

    /// Seed of the random numbers [default: from the clock]
    #[arg(long, value_name = "N", value_parser = values::seed, allow_hyphen_values = true)]
    pub(crate) seed: Option<u64>,

    /// A new folder for the record [default: one named by date and processor in emu-results]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Complete the record in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["quick", "full", "preset", "methods", "workloads", "speeds", "cores", "reps", "time", "period", "tolerance", "seed", "out"])]
    pub(crate) resume: Option<PathBuf>,

    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// A published evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Buchert, Nussbaum, Gustedt: Methods for Emulation of Multi-Core CPU Performance, HPCC 2011
    #[value(name = "buchert-2011")]
    Buchert2011,
}

/// Parses the name of a method, or `none`.
fn contenders() -> impl TypedValueParser<Value = MethodId> {
    let name = |id: MethodId| PossibleValue::new(id.as_str()).help(methods::summary(id));
    PossibleValuesParser::new(methods::all().into_iter().map(name).collect::<Vec<_>>())
        .try_map(|name| name.parse::<MethodId>())
}
