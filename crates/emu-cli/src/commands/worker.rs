//! `emu worker`, hidden: the process that is measured, or measures, for another emu.

use clap::Args;
use emu_bench::{worker, workload};
use emu_machine::{calibrate, noise, profile};

use crate::exit::{Exit, Failure};

/// Do a task for another emu
///
/// Answers each request on stdin, a line of JSON, with one on stdout.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The task
    pub(crate) task: String,

    /// The process that it must not outlive
    pub(crate) parent: i32,
}

pub(crate) fn worker(args: &WorkerArgs) -> Result<Exit, Failure> {
    worker::serve(&[workload::TASK, calibrate::TASK, noise::TASK, profile::TASK], &args.task, args.parent)?;
    Ok(Exit::Success)
}
