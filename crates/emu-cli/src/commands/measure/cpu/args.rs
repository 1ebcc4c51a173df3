use clap::{Args, ValueEnum};

use crate::commands::measure::beside::CompareArgs;
use crate::commands::measure::reference::ReferenceArgs;
use crate::measuring::{MeasureArgs, SeriesArgs};
use crate::values;

/// Measure how fast CPUs calculate, and what share of their peak they reach
///
/// Additions, subtractions, multiplications, divisions and all of them mixed, of integers and doubles: many at a time
/// in the widest vectors, and one after another.
#[derive(Debug, Args)]
pub(crate) struct CpuArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Numbers of threads [default: 1, 2, 4 … as there are CPUs; with --for as many as there are CPUs]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = values::threads, allow_hyphen_values = true)]
    pub(crate) threads: Vec<usize>,

    #[command(flatten)]
    pub(crate) reference: ReferenceArgs,

    #[command(flatten)]
    pub(crate) compare: CompareArgs,

    #[command(flatten)]
    pub(crate) series: SeriesArgs,

    /// What mixed operations are made on, with --for
    #[arg(long, value_enum, value_name = "KIND", default_value = "double", requires = "length")]
    pub(crate) numbers: Numbers,
}

/// A kind of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Numbers {
    /// Unsigned integers of 64 bits
    Integer,
    /// Floating-point numbers of 64 bits
    Double,
}
