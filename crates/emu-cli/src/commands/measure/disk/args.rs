use std::path::PathBuf;

use clap::Args;
use emu_machine::disk::{Column, Operation};

use crate::commands::measure::beside::CompareArgs;
use crate::commands::measure::peak::PeakArgs;
use crate::measuring::{MeasureArgs, SeriesArgs};
use crate::values;

/// Measure how fast a disk transfers blocks, and how far a transfer goes before it counts as done
///
/// Columns: cached (to and from the page cache), write-back (to the disk at the end), durable (each write to the disk,
/// by fdatasync), direct (past the page cache). The files have no name in the folder, and are gone however emu ends.
///
/// With --for: one kind of transfer in random order, all the time; direct reads, unless --operation and --column say
/// otherwise.
#[derive(Debug, Args)]
pub(crate) struct DiskArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// A folder on the disk to measure
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Size of the file that is read, and of the one that is written [default: 256MiB; with --quick 64MiB]
    #[arg(short, long, value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) size: Option<u64>,

    /// Sizes of blocks, powers of two [default: 1,1KiB,4KiB,64KiB,1MiB; with --quick 1,4KiB,1MiB; with --for 1MiB]
    #[arg(short, long, value_name = "SIZE", value_delimiter = ',', value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) blocks: Vec<u64>,

    /// Numbers of threads [default: 1, 2, 4 … as there are CPUs; with --for 1]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = values::threads, allow_hyphen_values = true)]
    pub(crate) threads: Vec<usize>,

    #[command(flatten)]
    pub(crate) peak: PeakArgs,

    #[command(flatten)]
    pub(crate) compare: CompareArgs,

    #[command(flatten)]
    pub(crate) series: SeriesArgs,

    /// What is done to the file, with --for
    #[arg(long, value_name = "KIND", default_value = "read", value_parser = values::operation(), requires = "length")]
    pub(crate) operation: Operation,

    /// How far it goes before it counts as done, with --for
    #[arg(long, value_name = "COLUMN", default_value = "direct", value_parser = values::column(), requires = "length")]
    pub(crate) column: Column,
}
