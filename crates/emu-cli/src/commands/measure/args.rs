use clap::Subcommand;

use super::cpu::CpuArgs;
use super::disk::DiskArgs;
use super::hpcc::HpccArgs;
use super::memory::MemoryArgs;

/// Measure what this machine can do
#[derive(Debug, Subcommand)]
pub(crate) enum MeasureCommand {
    Cpu(CpuArgs),
    Memory(MemoryArgs),
    Disk(DiskArgs),
    Hpcc(HpccArgs),
}
