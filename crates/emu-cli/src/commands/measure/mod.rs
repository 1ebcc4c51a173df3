//! `emu measure`: what this machine can do, one folder for each part of it.

pub(crate) mod beside;
mod cpu;
mod disk;
pub(crate) mod hpcc;
mod long;
mod memory;
mod peak;
pub(crate) mod reference;

use clap::Subcommand;
use emu_bench::report::Point;

use self::cpu::CpuArgs;
use self::disk::DiskArgs;
use self::hpcc::HpccArgs;
use self::memory::MemoryArgs;
use crate::exit::{Exit, Failure};

const EXAMPLES: &str = "\
Examples:
  emu measure cpu --quick
  emu measure memory --peak 59.7GB/s
  emu measure disk --dir /var/tmp --out disk
  emu measure disk --for 10m            # when it is slow, and how often
  emu measure hpcc --threads 1,2";

/// Measure what this machine can do
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum MeasureCommand {
    Cpu(CpuArgs),
    Memory(MemoryArgs),
    Disk(DiskArgs),
    Hpcc(HpccArgs),
}

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
