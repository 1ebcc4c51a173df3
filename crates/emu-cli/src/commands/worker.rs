//! `emu worker`, hidden: the process that is measured, or measures, for another emu.

use emu_bench::{worker, workload};
use emu_machine::{calibrate, noise};

use crate::args::WorkerArgs;
use crate::exit::{Exit, Failure};

/// Answers requests until stdin ends.
pub(crate) fn worker(args: &WorkerArgs) -> Result<Exit, Failure> {
    worker::serve(&[workload::TASK, calibrate::TASK, noise::TASK], &args.task, args.parent)?;
    Ok(Exit::Success)
}
