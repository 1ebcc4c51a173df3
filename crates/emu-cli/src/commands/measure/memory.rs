//! `emu measure memory`: how fast memory is.

use emu_bench::measure::Event;
use emu_bench::measure::memory::{self, Plan};
use emu_bench::memory::StreamSize;
use emu_core::{Host, Roots};

use super::option;
use crate::args::MemoryArgs;
use crate::exit::{Exit, Failure};
use crate::measuring::{Measuring, Task};
use crate::output;

/// Measures, and shows what it means.
pub(crate) fn memory(args: &MemoryArgs) -> Result<Exit, Failure> {
    let host = Host::detect(&Roots::system())?;
    let size = match args.size {
        Some(bytes) => StreamSize::given(&host, &host.allowed, bytes)?,
        None => StreamSize::of(&host, &host.allowed),
    };
    let options = option("size", args.size.as_slice())
        + &option("blocks", &args.blocks)
        + &option("threads", &args.threads);
    let seed = args.measure.seed();
    let usual = if args.measure.quick { Plan::quick } else { Plan::full };
    let mut plan = usual(&host, size, seed);
    if !args.blocks.is_empty() {
        plan.blocks.clone_from(&args.blocks);
    }
    if !args.threads.is_empty() {
        plan.threads.clone_from(&args.threads);
    }
    plan.check()?;
    let task = Task { name: "measure memory", options, seed, plan: &plan };
    let mut measuring = Measuring::begin(&host, &args.measure, &task)?;
    let measured = memory::run(&plan, &host, &mut |event: Event<'_>| measuring.watch(event));
    measuring.finish(measured, |measured| Ok(output::measure::memory::shown(measured)))?;
    Ok(Exit::Success)
}
