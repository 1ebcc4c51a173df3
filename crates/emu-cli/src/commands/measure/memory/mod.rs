//! `emu measure memory`: how fast memory is, at once or for a long time.

mod show;

use clap::Args;
use emu_bench::memory::StreamSize;
use emu_bench::numbers;
use emu_core::Host;
use emu_machine::kernel::stream::Kernel;
use emu_machine::memory::{self, Memory, MemoryPlan, Steady};
use emu_machine::tools::{Domain, What};
use emu_machine::{Watch, series};

use crate::commands::measure::beside::{CompareArgs, Compared};
use crate::commands::measure::long;
use crate::commands::measure::peak::PeakArgs;
use crate::commands::measure::reference::{Rates, ReferenceArgs, Referred};
use crate::exit::{Exit, Failure};
use crate::measuring::{Document, MeasureArgs, SeriesArgs, Task, measured};
use crate::options::option;
use crate::{host, values};

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

const NAME: &str = "measure memory";

pub(crate) fn memory(args: &MemoryArgs) -> Result<Exit, Failure> {
    let host = host::detect()?;
    let size = match args.size {
        Some(bytes) => StreamSize::given(&host, &host.allowed, bytes)?,
        None => StreamSize::of(&host, &host.allowed)?.quick(args.measure.quick),
    };
    if let Some(plan) = args.series.plan()? {
        return for_long(args, &host, size, plan);
    }
    let options = option("size", args.size.as_slice())
        + &option("blocks", &args.blocks)
        + &option("threads", &args.threads)
        + &args.peak.option();
    let seed = args.measure.seed();
    let others = args.compare.read(Domain::Memory)?;
    let reference = args.reference.read(NAME)?;
    let mut plan = MemoryPlan::new(&host, args.measure.quick, size, &args.threads, seed);
    if !args.blocks.is_empty() {
        plan.blocks.clone_from(&args.blocks);
    }
    plan.check()?;
    let task = Task { name: NAME, options, seed, plan: &plan };
    let compared = |mut memory: Memory| {
        let triads = memory.stream.iter().filter_map(|run| run.best_bytes_per_s.last().copied());
        let note = if memory.size.obeys_rule() {
            args.peak.note(triads.reduce(f64::max).map(|best| ("Triad", best)))
        } else {
            args.peak.untold("caches help arrays that are less than four times as long as they are")
        };
        memory.notes.extend(note);
        let there = reference.as_ref().map(|there: &Document<Memory>| there.result.size);
        let is_alike = there.is_none_or(|there| memory.size.is_alike(there.array_bytes));
        let memory = Referred::new(memory, reference, |memory| of_reference(memory, is_alike));
        Compared::of(memory, &others, |memory, what| here(&memory.result, what))
    };
    let run = |watch: Watch<'_>| memory::run(&plan, &host, watch).map(compared);
    measured(&host, &args.measure, &task, run, |measured| {
        let more = measured.result.text() + &measured.text();
        show::shown(&measured.result.result).followed_by(&more)
    })?;
    Ok(Exit::Success)
}

/// Of loads, how many come after one another in a nanosecond. What goes over arrays is compared only where they are alike.
fn of_reference(memory: &Memory, is_alike: bool) -> Vec<Rates> {
    let copies = memory.copies.iter().filter(|_| is_alike).map(|copy| {
        let order = if copy.random { "random" } else { "sequential" };
        Rates {
            what: format!("{order} copy of {}, {} thread(s)", numbers::size(copy.block_bytes), copy.threads),
            samples: copy.samples.clone(),
            disturbed: copy.disturbed,
        }
    });
    let stream = memory.stream.iter().filter(|_| is_alike).flat_map(|run| {
        Kernel::ALL.map(|kernel| Rates {
            what: format!("STREAM {}, {} thread(s)", kernel.name(), run.threads),
            samples: run.passes.rates(kernel),
            disturbed: run.disturbed,
        })
    });
    let loads = memory.latencies.iter().map(|load| Rates {
        what: format!("loads from {}", numbers::size(load.working_set_bytes)),
        samples: load.samples.iter().map(|ns| 1.0 / ns).collect(),
        disturbed: load.disturbed,
    });
    copies.chain(stream).chain(loads).collect()
}

fn here(memory: &Memory, what: &What) -> Option<f64> {
    let What::Stream(kernel, threads, bytes) = what else { return None };
    if bytes.is_some_and(|bytes| !memory.size.is_alike(bytes)) {
        return None;
    }
    let run = memory.stream.iter().find(|run| run.threads == *threads)?;
    Kernel::ALL.iter().zip(run.best_bytes_per_s).find(|(one, _)| *one == kernel).map(|(_, best)| best)
}

fn for_long(
    args: &MemoryArgs,
    host: &Host,
    size: StreamSize,
    plan: series::SeriesPlan,
) -> Result<Exit, Failure> {
    let threads = long::only("threads", &args.threads, host.allowed.len())?;
    let block = long::only("blocks", &args.blocks, Steady::usual_block(size, threads))?;
    let seed = args.measure.seed();
    let options = format!(" --size {} --blocks {block} --threads {threads}", size.array_bytes);
    let task = Task { name: NAME, options, seed, plan: &plan };
    let [blocks, arrays] = [block, size.array_bytes].map(numbers::size);
    let what = format!("copy of {blocks} blocks, arrays of {arrays}, {threads} threads");
    long::take(host, &args.measure, task, |plan, watch| {
        let mut work = Steady::new(host, size, block, threads, seed)?;
        series::run(host, plan, (&what, "B"), |length| work.rate(length), watch)
    })
}
