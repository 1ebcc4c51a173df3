//! `emu restore`: undoes what killed emus have left.

pub(crate) mod show;

use clap::Args;
use emu_core::{Error, ErrorKind, Roots};

use crate::exit::{Exit, Failure};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  emu restore
  emu restore --json";

/// Undo what killed emus have left
///
/// Any other command of emu that looks at the machine does the same first.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArgs {
    /// Write JSON to stdout instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

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
