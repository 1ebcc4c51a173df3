//! `emu noise`: how far runs lie apart, and what disturbs them.

mod args;
mod show;

pub(crate) use args::{NoiseArgs, Smt};

use emu_core::as_ns::nanos;
use emu_machine::Event;
use emu_machine::noise::{self, NoisePlan, Setting};

use crate::exit::{Exit, Failure};
use crate::host;
use crate::measuring::{Measuring, Task};
use crate::options::option;
use crate::values::exact;

pub(crate) fn noise(args: &NoiseArgs) -> Result<Exit, Failure> {
    let mut host = host::detect()?;
    let seed = args.measure.seed();
    let setting = Setting { node: args.node, smt_off: args.smt == Some(Smt::Off) };
    host.allowed = setting.cpus(&host)?;
    let plan = NoisePlan {
        threshold_ns: args.threshold.map(nanos),
        ..NoisePlan::new(&host, args.measure.quick, seed)
    };
    let options = option("threshold", args.threshold.map(exact))
        + &option("node", args.node)
        + &option("smt", args.smt.map(|Smt::Off| "off"));
    let task = Task { name: "noise", options, seed, plan: &plan };
    let mut measuring = Measuring::begin(&host, &args.measure, &task)?;
    let measured = setting.hold(&host).and_then(|changed| {
        let measured = noise::measure(&host, &plan, &mut |event: Event<'_>| measuring.watch(event));
        changed.map_or(Ok(()), |journal| journal.undo_all()).and(measured)
    });
    measuring.finish(measured, |measured| Ok(show::shown(measured)))?;
    Ok(Exit::Success)
}
