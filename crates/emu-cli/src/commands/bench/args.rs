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
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct BenchArgs {
    /// All methods that work here, in two minutes
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// 40 repetitions at nine speeds; takes hours
    #[arg(long)]
    pub(crate) full: bool,

    /// What to measure, by name
    #[arg(long, value_enum, value_name = "NAME", conflicts_with = "quick")]
    pub(crate) preset: Option<Preset>,

    /// Methods and other tools to compare; `none` is native against native [default: all methods at their best, or the preset's]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = contenders())]
    pub(crate) methods: Vec<MethodId>,

    /// Kinds of work [default: all, or the preset's; with --quick not stream and udp-io]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = values::workloads())]
    pub(crate) workloads: Vec<String>,

    /// Speeds: 40%, 0.4, 1.2GHz [default: 25%,50%,75%, or the preset's; with --quick 50%, and 25%, 75% of cpu-loop; with --full 10% to 90%]
    #[arg(short, long, value_name = "SPEED", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) speeds: Vec<Speed>,

    /// Numbers of CPUs to run on [default: 1, 2, 4 … as there are, or the preset's; with --quick as many as the work can fill]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = values::whole("number of CPUs", 1..=u16::MAX, "--cores 1,2,4"), allow_hyphen_values = true)]
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

    /// Leave other tasks the time that they use
    #[arg(long)]
    pub(crate) exclude_background: bool,

    /// Leave the clock to the governor, which may lower it where a method leaves CPUs idle
    #[arg(long)]
    pub(crate) no_hold_clock: bool,

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
    #[arg(long, value_name = "DIR", conflicts_with_all = ["quick", "full", "preset", "methods", "workloads", "speeds", "cores", "reps", "time", "period", "exclude_background", "no_hold_clock", "tolerance", "seed", "out"])]
    pub(crate) resume: Option<PathBuf>,

    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// A named set of what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// What was published by Buchert, Nussbaum and Gustedt (HPCC 2011), and what of it is reproduced here
    #[value(name = "buchert-2011")]
    Buchert2011,
    /// Each method from 5% to 95% of one CPU, and four kinds of work on two: the tables of docs/FIDELITY.md
    Fidelity,
    /// The best method here beside cpulimit, a plain quota and CPU weights
    Peers,
    /// 500 processes that all compute, on two CPUs at 50%
    CrowdBusy,
    /// 500 processes of which two compute, on two CPUs at 50%
    CrowdAsleep,
}

impl Preset {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Parses the name of a method, of another tool, or `none`.
fn contenders() -> impl TypedValueParser<Value = MethodId> {
    let name = |id: MethodId| PossibleValue::new(id.as_str()).help(methods::summary(id));
    PossibleValuesParser::new(methods::all().into_iter().map(name).collect::<Vec<_>>())
        .try_map(|name| name.parse::<MethodId>())
}
