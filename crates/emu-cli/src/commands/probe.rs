//! `emu probe`, hidden: measures the delivered clock for `--verify`.

use crate::exit::{Exit, Failure};
use crate::verification::probe::serve;

/// Answers orders until stdin ends.
pub(crate) fn probe() -> Result<Exit, Failure> {
    serve()?;
    Ok(Exit::Success)
}
