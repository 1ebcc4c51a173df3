//! `emu measure disk`: how fast a disk transfers blocks, at once or for a long time.

mod show;

use std::path::PathBuf;

use clap::Args;
use emu_core::Host;
use emu_machine::disk::{self, Column, Disk, DiskPlan, Operation, Steady, Transfer};
use emu_machine::tools::{Domain, What};
use emu_machine::{Watch, series};

use crate::commands::measure::beside::{CompareArgs, Compared};
use crate::commands::measure::long;
use crate::commands::measure::peak::PeakArgs;
use crate::exit::{Exit, Failure};
use crate::measuring::{MeasureArgs, SeriesArgs, Task, measured};
use crate::options::option;
use crate::{host, values};

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

const NAME: &str = "measure disk";

pub(crate) fn disk(args: &DiskArgs) -> Result<Exit, Failure> {
    let host = host::detect()?;
    if let Some(plan) = args.series.plan()? {
        return for_long(args, &host, plan);
    }
    let seed = args.measure.seed();
    let others = args.compare.read(Domain::Disk)?;
    let mut plan = DiskPlan::new(args.dir.clone(), &host, args.measure.quick, &args.threads, seed);
    plan.file_bytes = args.size.unwrap_or(plan.file_bytes);
    if !args.blocks.is_empty() {
        plan.blocks.clone_from(&args.blocks);
    }
    plan.check()?;
    // The folder is left out: a record tells no path.
    let options = option("size", args.size.as_slice())
        + &option("blocks", &args.blocks)
        + &option("threads", &args.threads)
        + &args.peak.option();
    let task = Task { name: NAME, options, seed, plan: &plan };
    let compared = |mut disk: Disk| {
        let rates = disk.cells.iter().filter(|cell| cell.transfer.column == Column::Direct);
        let rates = rates.filter_map(|cell| Some((cell.transfer.name(), cell.measured()?.bytes_per_s)));
        let best = rates.max_by(|(_, a), (_, b)| a.total_cmp(b));
        disk.notes.extend(args.peak.note(best.as_ref().map(|(name, best)| (name.as_str(), *best))));
        Compared::of(disk, &others, here)
    };
    let run = |watch: Watch<'_>| disk::run(&plan, &host, watch).map(compared);
    measured(&host, &args.measure, &task, run, |measured| {
        show::shown(&measured.result).followed_by(&measured.text())
    })?;
    Ok(Exit::Success)
}

fn here(disk: &Disk, what: &What) -> Option<f64> {
    let What::Disk(transfer) = what else { return None };
    Some(disk.cells.iter().find(|cell| cell.transfer == *transfer)?.measured()?.bytes_per_s)
}

fn for_long(args: &DiskArgs, host: &Host, plan: series::SeriesPlan) -> Result<Exit, Failure> {
    let seed = args.measure.seed();
    let usual = Steady::usual(args.dir.clone(), seed);
    let transfer = Transfer {
        block_bytes: long::only("blocks", &args.blocks, usual.transfer.block_bytes)?,
        operation: args.operation,
        threads: long::only("threads", &args.threads, usual.transfer.threads)?,
        column: args.column,
        ..usual.transfer
    };
    let work = Steady { file_bytes: args.size.unwrap_or(usual.file_bytes), transfer, ..usual };
    work.check()?;
    // The folder is left out: a record tells no path.
    let options = format!(
        " --size {} --blocks {} --threads {} --operation {} --column {}",
        work.file_bytes,
        transfer.block_bytes,
        transfer.threads,
        transfer.operation.name(),
        transfer.column.name()
    );
    let task = Task { name: NAME, options, seed, plan: &plan };
    long::take(host, &args.measure, task, |plan, watch| work.run(host, plan, watch))
}
