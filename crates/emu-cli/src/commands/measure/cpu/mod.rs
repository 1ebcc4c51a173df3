//! `emu measure cpu`: how fast CPUs calculate, at once or for a long time.

mod args;
mod show;

pub(crate) use args::{CpuArgs, Numbers};

use emu_core::Host;
use emu_machine::Event;
use emu_machine::cpu::{self, Cpu, CpuPlan, Steady};
use emu_machine::kernel::arithmetic::Number;
use emu_machine::series;
use emu_machine::tools::Domain;

use crate::commands::measure::beside::Compared;
use crate::commands::measure::long;
use crate::commands::measure::reference::{Rates, Referred};
use crate::exit::{Exit, Failure};
use crate::host;
use crate::measuring::{Measuring, Task};
use crate::options::option;

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
    let mut measuring = Measuring::begin(&host, &args.measure, &task)?;
    let measured = cpu::run(&plan, &host, &mut |event: Event<'_>| measuring.watch(event));
    // An event of sysbench is none of the operations here: only how both grow with threads can be compared.
    let measured =
        measured.map(|cpu| Compared::of(Referred::new(cpu, reference, of_reference), &others, |_, _| None));
    let show = |measured: &Compared<Referred<Cpu>>| {
        let Referred { result: cpu, .. } = &measured.result;
        let more = [measured.result.text(), measured.text(), show::growth(cpu, &others)].concat();
        Ok(show::shown(cpu).followed_by(&more))
    };
    measuring.finish(measured, show)?;
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
