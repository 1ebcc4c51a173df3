use clap::Args;

use crate::commands::measure::beside::CompareArgs;
use crate::commands::measure::peak::PeakArgs;
use crate::commands::measure::reference::ReferenceArgs;
use crate::measuring::{MeasureArgs, SeriesArgs};
use crate::values;

/// Measure how fast memory is: copies of blocks, STREAM, and the time of single loads
///
/// With --for: copies of blocks in their order, all the time.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Length of each array: three for STREAM [default: four times the last-level caches, or what memory allows; with --quick at most 128MiB]
    #[arg(short, long, value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) size: Option<u64>,

    /// Sizes of blocks that are copied [default: 1,8,64,1KiB,16KiB,1MiB,16MiB; with --quick 1,1KiB,1MiB; with --for 1MiB]
    #[arg(short, long, value_name = "SIZE", value_delimiter = ',', value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) blocks: Vec<u64>,

    /// Numbers of threads [default: 1, 2, 4 … as there are CPUs; with --for as many as there are CPUs]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = values::threads, allow_hyphen_values = true)]
    pub(crate) threads: Vec<usize>,

    #[command(flatten)]
    pub(crate) peak: PeakArgs,

    #[command(flatten)]
    pub(crate) reference: ReferenceArgs,

    #[command(flatten)]
    pub(crate) compare: CompareArgs,

    #[command(flatten)]
    pub(crate) series: SeriesArgs,
}
