use std::path::PathBuf;

use clap::Args;

use super::MeasureArgs;
use crate::args::values;

/// Measure how fast a disk transfers blocks, and how far a transfer goes before it counts as done
///
/// Columns: cached (to and from the page cache), write-back (to the disk at the end), durable (each write to the disk,
/// by fdatasync), direct (past the page cache). The files have no name in the folder, and are gone however emu ends.
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

    /// Sizes of blocks, powers of two [default: 1,1KiB,4KiB,64KiB,1MiB; with --quick 1,4KiB,1MiB]
    #[arg(short, long, value_name = "SIZE", value_delimiter = ',', value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) blocks: Vec<u64>,

    /// Numbers of threads [default: 1, 2, 4 … as there are CPUs]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = values::threads, allow_hyphen_values = true)]
    pub(crate) threads: Vec<usize>,
}
