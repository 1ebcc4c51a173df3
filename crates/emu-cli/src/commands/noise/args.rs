use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::measuring::MeasureArgs;
use crate::values;

const EXAMPLES: &str = "\
Examples:
  emu noise --quick
  emu noise --node 0 --out as-found
  emu doctor tune -- emu noise --out tuned";

/// Measure how far runs of the same work lie apart here, and what disturbs them
///
/// Five runs of each kind of work in each of five fresh processes, and a look at every CPU for moments at which nothing
/// of ours ran. Nothing else should run meanwhile, unless its noise is what is asked for.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NoiseArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Shortest pause that counts as a gap [default: ten steps of the loop that looks, at least 1us]
    #[arg(long, value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) threshold: Option<Duration>,

    /// Run on the CPUs of this NUMA node alone
    #[arg(long, value_name = "N", value_parser = values::whole("number of a NUMA node", 0..=1023, "--node 0"), allow_hyphen_values = true)]
    pub(crate) node: Option<usize>,

    /// Turn the other threads of each core off meanwhile; what is bound to one of them may lose that binding
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) smt: Option<Smt>,
}

/// What becomes of simultaneous multithreading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Smt {
    /// One thread a core, by the kernel's switch, which is put back
    Off,
}
