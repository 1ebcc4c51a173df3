use clap::Subcommand;

use super::cpu::CpuArgs;
use super::disk::DiskArgs;
use super::hpcc::HpccArgs;
use super::memory::MemoryArgs;

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
