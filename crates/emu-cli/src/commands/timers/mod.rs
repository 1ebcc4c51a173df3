//! `emu timers`: whether the clocks tell the truth.

mod args;
mod show;

pub(crate) use args::TimersArgs;

use emu_machine::Event;
use emu_machine::timers::{self, Measured, TimersPlan};

use crate::exit::{Exit, Failure};
use crate::host;
use crate::measuring::{Document, Measuring, Task};

const NAME: &str = "timers";

pub(crate) fn timers(args: &TimersArgs) -> Result<Exit, Failure> {
    // Before anything is measured: a reference that cannot be used is told at once.
    let reference = args.reference.as_ref().map(|path| Document::<Measured>::read(path, NAME)).transpose()?;
    let host = host::detect()?;
    let seed = args.measure.seed();
    let plan = TimersPlan::new(&host, args.measure.quick, seed);
    let task = Task { name: NAME, options: String::new(), seed, plan: &plan };
    let mut measuring = Measuring::begin(&host, &args.measure, &task)?;
    let measured = timers::measure(&host, &plan, &mut |event: Event<'_>| measuring.watch(event));
    let measured = measured.and_then(|measured| match &reference {
        Some(reference) => measured.compared_with(&reference.result, &reference.about.machine.model),
        None => Ok(measured),
    });
    measuring.finish(measured, |measured| Ok(show::shown(measured)))?;
    Ok(Exit::Success)
}
