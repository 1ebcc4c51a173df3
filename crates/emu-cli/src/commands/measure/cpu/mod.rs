//! `emu measure cpu`: how fast CPUs calculate, at once or for a long time.

mod show;

use clap::{Args, ValueEnum};
use emu_core::Host;
use emu_machine::cpu::{self, Cpu, CpuPlan, Steady};
use emu_machine::kernel::arithmetic::Number;
use emu_machine::tools::Domain;
use emu_machine::{Watch, series};

use crate::commands::measure::beside::{CompareArgs, Compared};
use crate::commands::measure::long;
use crate::commands::measure::reference::{Rates, ReferenceArgs, Referred};
use crate::exit::{Exit, Failure};
use crate::measuring::{MeasureArgs, SeriesArgs, Task, measured};
use crate::options::option;
use crate::{host, values};

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

const NAME: &str = "measure cpu";

pub(crate) fn cpu(args: &CpuArgs) -> Result<Exit, Failure> {
    let host = host::detect()?;
    if let Some(plan) = args.series.plan()? {
        return for_long(args, &host, plan);
    }
    let seed = args.measure.seed();
    let others = args.compare.read(Domain::Cpu)?;
    let reference = args.reference.read(NAME)?;
    let plan = CpuPlan::new(&host, args.measure.quick, &args.threads, seed);
    plan.check()?;
    let task = Task { name: NAME, options: option("threads", &args.threads), seed, plan: &plan };
    // An event of sysbench is none of the operations here: only how both grow with threads can be compared.
    let compared = |cpu| Compared::of(Referred::new(cpu, reference, of_reference), &others, |_, _| None);
    let run = |watch: Watch<'_>| cpu::run(&plan, &host, watch).map(compared);
    measured(&host, &args.measure, &task, run, |measured| {
        let Referred { result: cpu, .. } = &measured.result;
        let more = [measured.result.text(), measured.text(), show::growth(cpu, &others)].concat();
        show::shown(cpu).followed_by(&more)
    })?;
    Ok(Exit::Success)
}

/// Of waits, how many come after one another in a nanosecond.
fn of_reference(cpu: &Cpu) -> Vec<Rates> {
    let rates = cpu.rates.iter().map(|rate| Rates {
        what: format!("{}, {} thread(s)", rate.work.name(), rate.threads),
        samples: rate.samples.clone(),
        disturbed: rate.disturbed,
    });
    let waits = cpu.waits.iter().map(|wait| Rates {
        what: format!("{} one after another", wait.work.name()),
        samples: wait.samples.iter().map(|ns| 1.0 / ns).collect(),
        disturbed: wait.disturbed,
    });
    rates.chain(waits).collect()
}

fn for_long(args: &CpuArgs, host: &Host, plan: series::SeriesPlan) -> Result<Exit, Failure> {
    // A dip may come to one CPU alone.
    let threads = long::only("threads", &args.threads, host.allowed.len())?;
    let (number, name) = match args.numbers {
        Numbers::Integer => (Number::Integer, "integer"),
        Numbers::Double => (Number::Double, "double"),
    };
    let options = format!(" --threads {threads} --numbers {name}");
    let task = Task { name: NAME, options, seed: args.measure.seed(), plan: &plan };
    let what = format!("{name} mixed, {threads} threads");
    long::take(host, &args.measure, task, |plan, watch| {
        let work = Steady::new(host, number, threads);
        series::run(host, plan, (&what, "operations"), |length| work.rate(length), watch)
    })
}
