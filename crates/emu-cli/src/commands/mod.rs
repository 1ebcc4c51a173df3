//! What the subcommands do, one file for each.

mod attach;
mod bench;
mod calibrate;
mod completions;
mod doctor;
mod info;
mod man;
mod measure;
mod methods;
mod noise;
mod report;
mod restore;
mod run;
mod tell;
mod timers;
mod verify;
mod worker;

use crate::args::Command;
use crate::exit::{Exit, Failure};

/// Does what the command line asks for.
pub(crate) fn dispatch(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Attach(args) => attach::attach(&args),
        Command::Methods(args) => methods::methods(&args),
        Command::Info(args) => info::info(&args),
        Command::Verify(args) => verify::verify(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Report(args) => report::report(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Measure(command) => measure::measure(&command),
        Command::Noise(args) => noise::noise(&args),
        Command::Timers(args) => timers::timers(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Restore(args) => restore::restore(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => man::man(&args),
        Command::Worker(args) => worker::worker(&args),
    }
}
