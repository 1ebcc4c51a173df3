mod cpu;
mod disk;
mod hpcc;
mod memory;

pub(crate) use cpu::{CpuArgs, Numbers};
pub(crate) use disk::DiskArgs;
pub(crate) use hpcc::HpccArgs;
pub(crate) use memory::MemoryArgs;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use emu_bench::record::seed_from_clock;

/// Measure what this machine can do
#[derive(Debug, Subcommand)]
pub(crate) enum MeasureCommand {
    Cpu(CpuArgs),
    Memory(MemoryArgs),
    Disk(DiskArgs),
    Hpcc(HpccArgs),
}

/// What all measurements of the machine have in common.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Take few and short samples: for a first look
    #[arg(long)]
    pub(crate) quick: bool,

    /// Write JSON, with every sample
    #[arg(long)]
    pub(crate) json: bool,

    /// A new folder for the record: samples, JSON, CSV and figures [default: none is kept]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Start of the random numbers, to repeat a run [default: from the clock]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

impl MeasureArgs {
    /// The start of the random numbers that is given, else from the clock: to be asked for once.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(seed_from_clock)
    }
}
