//! `emu measure`: what this machine can do, one folder for each part of it.

mod args;
pub(crate) mod beside;
mod cpu;
mod disk;
pub(crate) mod hpcc;
mod long;
mod memory;
mod peak;

pub(crate) use args::MeasureCommand;

use crate::exit::{Exit, Failure};

pub(crate) fn measure(command: &MeasureCommand) -> Result<Exit, Failure> {
    match command {
        MeasureCommand::Cpu(args) => cpu::cpu(args),
        MeasureCommand::Memory(args) => memory::memory(args),
        MeasureCommand::Disk(args) => disk::disk(args),
        MeasureCommand::Hpcc(args) => hpcc::hpcc(args),
    }
}
