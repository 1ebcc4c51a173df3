//! `emu measure disk`: how fast a disk transfers blocks.

use emu_bench::measure::Event;
use emu_bench::measure::disk::{self, Plan};
use emu_core::{Host, Roots};

use super::option;
use crate::args::DiskArgs;
use crate::exit::{Exit, Failure};
use crate::measuring::{Measuring, Task};
use crate::output;

/// Measures, and shows what it means.
pub(crate) fn disk(args: &DiskArgs) -> Result<Exit, Failure> {
    let host = Host::detect(&Roots::system())?;
    let seed = args.measure.seed();
    let usual = if args.measure.quick { Plan::quick } else { Plan::full };
    let mut plan = usual(args.dir.clone(), &host, seed);
    plan.file_bytes = args.size.unwrap_or(plan.file_bytes);
    if !args.blocks.is_empty() {
        plan.blocks.clone_from(&args.blocks);
    }
    if !args.threads.is_empty() {
        plan.threads.clone_from(&args.threads);
    }
    plan.check()?;
    // The folder is left out: a record tells no path.
    let options = option("size", args.size.as_slice())
        + &option("blocks", &args.blocks)
        + &option("threads", &args.threads);
    let task = Task { name: "measure disk", options, seed, plan: &plan };
    let mut measuring = Measuring::begin(&host, &args.measure, &task)?;
    let measured = disk::run(&plan, &host, &mut |event: Event<'_>| measuring.watch(event));
    measuring.finish(measured, |measured| Ok(output::measure::disk::shown(measured)))?;
    Ok(Exit::Success)
}
