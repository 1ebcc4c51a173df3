//! `emu timers`: whether the clocks tell the truth.

mod show;

use std::path::PathBuf;

use clap::Args;
use emu_machine::Watch;
use emu_machine::timers::{self, Measured, TimersPlan};

use crate::exit::{Exit, Failure};
use crate::host;
use crate::measuring::{Document, MeasureArgs, Task, measured};

const EXAMPLES: &str = "\
Examples:
  emu timers --quick
  emu timers --out here
  emu timers --reference there          # a record of another machine";

/// Measure whether the clocks here tell the truth, and what each is worth
///
/// Cost and step of every clock, whether it runs back on one CPU or across them, how far CPU time and wall time are
/// apart by the size of a computation, whether the order of sizes matters, and where the time of a sample goes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TimersArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Compare the performance with that of another machine: its record of emu timers
    #[arg(long, value_name = "DIR")]
    pub(crate) reference: Option<PathBuf>,
}

const NAME: &str = "timers";

pub(crate) fn timers(args: &TimersArgs) -> Result<Exit, Failure> {
    // Before anything is measured: a reference that cannot be used is told at once.
    let reference = args.reference.as_ref().map(|path| Document::<Measured>::read(path, NAME)).transpose()?;
    let host = host::detect()?;
    let seed = args.measure.seed();
    let plan = TimersPlan::new(&host, args.measure.quick, seed);
    let task = Task { name: NAME, options: String::new(), seed, plan: &plan };
    let run = |watch: Watch<'_>| {
        let measured = timers::measure(&host, &plan, watch)?;
        match &reference {
            Some(reference) => measured.compared_with(&reference.result, &reference.about.machine.model),
            None => Ok(measured),
        }
    };
    measured(&host, &args.measure, &task, run, show::shown)?;
    Ok(Exit::Success)
}
