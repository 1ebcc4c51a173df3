//! `emu worker`, hidden: the process that is measured.

use crate::args::WorkerArgs;
use crate::exit::{Exit, Failure};

/// Works through windows until stdin ends.
pub(crate) fn worker(args: &WorkerArgs) -> Result<Exit, Failure> {
    emu_bench::workload::serve(&args.spec)?;
    Ok(Exit::Success)
}
