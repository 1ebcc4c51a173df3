//! `emu restore`: undoes what killed emus have left.

mod args;
pub(crate) mod show;

pub(crate) use args::RestoreArgs;

use emu_core::{Error, ErrorKind, Roots};

use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) fn restore(args: &RestoreArgs) -> Result<Exit, Failure> {
    let report = emu_core::restore(&Roots::system())?;
    output::print(&if args.json { show::json(&report)? } else { show::text(&report) })?;
    if report.problems.is_empty() {
        return Ok(Exit::Success);
    }
    let error =
        Error::new(ErrorKind::RestoreIncomplete, "cannot undo everything: see what is marked `not restored`")
            .hint("put right what they name and run `emu restore` again, as the user who ran emu or as root");
    Err(error.into())
}
