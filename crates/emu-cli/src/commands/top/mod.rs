//! `emu top`: what is slowed on this host, live.

mod show;

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use clap::Args;
use emu_core::Roots;

use crate::control;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals::{Came, Signals};
use crate::values;

/// Show what is slowed, live: asked, set and delivered, by zone and CPU
///
/// Ctrl-C ends it. Where stdout is no terminal, what there is now is shown once.
#[derive(Debug, Args)]
#[command(after_help = crate::exit::TABLE)]
pub(crate) struct TopArgs {
    /// Show what there is now, and end
    #[arg(long)]
    pub(crate) once: bool,

    /// Time between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) every: Duration,

    /// Write JSON to stdout instead of a table, a line for each look
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows it until a signal asks to end.
pub(crate) fn top(args: &TopArgs) -> Result<Exit, Failure> {
    let signals = Signals::block()?;
    let roots = Roots::system();
    let is_live = !args.once && (args.json || stdout().is_terminal());
    loop {
        let found = control::at_work(&roots)?;
        let text = if args.json { show::json(&found)? } else { show::text(&found) };
        // On a terminal the new table takes the place of the old one.
        output::print(&if is_live && !args.json { format!("\x1b[H\x1b[2J{text}") } else { text })?;
        if !is_live || signals.wait_for_end(&[], None, args.every)? == Came::End {
            return Ok(Exit::Success);
        }
    }
}
