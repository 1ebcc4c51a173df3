use std::path::PathBuf;

use clap::Args;
use emu_machine::hpcc::ORDERS;
use emu_machine::kernel::random_access::THREADS_MAX;

use crate::commands::measure::beside::CompareArgs;
use crate::measuring::MeasureArgs;
use crate::values;

/// Measure this machine by the kernels of the HPC Challenge
///
/// LINPACK, DGEMM, STREAM, random access, FFT and PTRANS, with HPCC's counts of work; every result is verified by its
/// rule. emu ends with code 5 when a result is wrong.
#[derive(Debug, Args)]
pub(crate) struct HpccArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Numbers of threads [default: 1, and as many as there are CPUs, up to 128]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = values::whole("number of threads", 1..=THREADS_MAX, "--threads 1,2"), allow_hyphen_values = true)]
    pub(crate) threads: Vec<usize>,

    /// A series of problems by LINPACK's equations; the other kernels take about as much memory [default: one usual size
    /// of each]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = values::whole("number of equations", ORDERS, "--sizes 1000,2000,5000"), allow_hyphen_values = true)]
    pub(crate) sizes: Vec<usize>,

    /// Tell the percentage of another machine's rates: its record of emu measure hpcc, of the same sizes and threads
    #[arg(long, value_name = "DIR")]
    pub(crate) reference: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) compare: CompareArgs,
}
