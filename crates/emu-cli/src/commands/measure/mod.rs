//! `emu measure`: what this machine can do, one folder for each part of it.

mod args;
pub(crate) mod beside;
mod cpu;
mod disk;
pub(crate) mod hpcc;
mod long;
mod memory;
mod peak;
pub(crate) mod reference;

pub(crate) use args::MeasureCommand;

use emu_bench::report::Point;

use crate::exit::{Exit, Failure};

/// The middle of some samples in a figure, and all of them, in units of `unit`.
fn of_samples(x: f64, middle: f64, samples: &[f64], unit: f64) -> Point {
    let [low, high] = samples.iter().fold([middle; 2], |[low, high], one| [low.min(*one), high.max(*one)]);
    Point::between(x, middle / unit, low / unit, high / unit)
}

/// Measures what the command line asks for.
pub(crate) fn measure(command: &MeasureCommand) -> Result<Exit, Failure> {
    match command {
        MeasureCommand::Cpu(args) => cpu::cpu(args),
        MeasureCommand::Memory(args) => memory::memory(args),
        MeasureCommand::Disk(args) => disk::disk(args),
        MeasureCommand::Hpcc(args) => hpcc::hpcc(args),
    }
}
