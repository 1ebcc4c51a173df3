//! `emu noise`: how far runs lie apart, and what disturbs them.

mod args;
mod show;

pub(crate) use args::NoiseArgs;

use emu_machine::Event;
use emu_machine::noise::{self, NoisePlan};

use crate::exit::{Exit, Failure};
use crate::host;
use crate::measuring::{Measuring, Task};
use crate::output::nanos;

/// Measures, and shows what it means.
pub(crate) fn noise(args: &NoiseArgs) -> Result<Exit, Failure> {
    let host = host::detect()?;
    let seed = args.measure.seed();
    let plan = NoisePlan {
        threshold_ns: args.threshold.map(nanos),
        ..NoisePlan::new(&host, args.measure.quick, seed)
    };
    let options = plan.threshold_ns.map_or_else(String::new, |nanos| format!(" --threshold {nanos}ns"));
    let task = Task { name: "noise", options, seed, plan: &plan };
    let mut measuring = Measuring::begin(&host, &args.measure, &task)?;
    let measured = noise::measure(&host, &plan, &mut |event: Event<'_>| measuring.watch(event));
    measuring.finish(measured, |measured| Ok(show::shown(measured)))?;
    Ok(Exit::Success)
}
