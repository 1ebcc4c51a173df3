//! The command line as clap sees it, and which subcommand does what.

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    attach, bench, calibrate, ci, completions, doctor, info, man, measure, methods, node, noise, profile,
    report, restore, run, set, timers, top, trace, verify, worker,
};
use crate::exit::{Exit, Failure};

/// Makes programs run as on a slower CPU, and measures how faithfully
#[derive(Debug, Parser)]
#[command(name = "emu", version, propagate_version = true, max_term_width = 80, after_help = crate::exit::TABLE)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do; one folder in `commands` for each.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::RunArgs),
    Attach(attach::AttachArgs),
    Set(set::SetArgs),
    Top(top::TopArgs),
    #[command(subcommand)]
    Node(node::NodeCommand),
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    Profile(profile::ProfileArgs),
    Ci(ci::CiArgs),
    Methods(methods::MethodsArgs),
    Info(info::InfoArgs),
    Verify(verify::VerifyArgs),
    Bench(bench::BenchArgs),
    Report(report::ReportArgs),
    Calibrate(calibrate::CalibrateArgs),
    #[command(subcommand)]
    Measure(measure::MeasureCommand),
    Noise(noise::NoiseArgs),
    Timers(timers::TimersArgs),
    Doctor(doctor::DoctorArgs),
    Restore(restore::RestoreArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

impl Command {
    pub(crate) fn act(self) -> Result<Exit, Failure> {
        match self {
            Self::Run(args) => run::run(&args),
            Self::Attach(args) => attach::attach(&args),
            Self::Set(args) => set::set(&args),
            Self::Top(args) => top::top(&args),
            Self::Node(command) => node::node(&command),
            Self::Trace(command) => trace::trace(&command),
            Self::Profile(args) => profile::profile(&args),
            Self::Ci(args) => ci::ci(&args),
            Self::Methods(args) => methods::methods(&args),
            Self::Info(args) => info::info(&args),
            Self::Verify(args) => verify::verify(&args),
            Self::Bench(args) => bench::bench(&args),
            Self::Report(args) => report::report(&args),
            Self::Calibrate(args) => calibrate::calibrate(&args),
            Self::Measure(command) => measure::measure(&command),
            Self::Noise(args) => noise::noise(&args),
            Self::Timers(args) => timers::timers(&args),
            Self::Doctor(args) => doctor::doctor(&args),
            Self::Restore(args) => restore::restore(&args),
            Self::Completions(args) => completions::completions(&args),
            Self::Man(args) => man::man(&args, Cli::command()),
            Self::Worker(args) => worker::worker(&args),
        }
    }
}

#[cfg(test)]
mod tests;
