//! `emu top`: what is slowed on this host, live.

pub(crate) mod show;

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use clap::Args;
use emu_core::{Result, Roots};
use nix::sys::signal::Signal;

use crate::control;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals::{Came, Signals, stop_self};
use crate::values;

const EXAMPLES: &str = "\
Examples:
  emu top
  emu top --once
  emu top --json --every 5s > top.jsonl";

/// Show what is slowed, live: asked, set and delivered, by zone and CPU
///
/// Ctrl-C ends it. Where stdout is no terminal, what there is now is shown once.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
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

pub(crate) fn top(args: &TopArgs) -> Result<Exit, Failure> {
    let roots = Roots::system();
    let is_live = !args.once && (args.json || stdout().is_terminal());
    let look = || {
        let found = control::asked(control::sessions(&roots)?);
        if args.json { show::json(&found) } else { Ok(show::text(&roots, &found)) }
    };
    live(is_live.then_some(args.every), !args.json, look)
}

/// Shows what `look` tells, once or until a signal asks to end, or nobody reads it. On a terminal what is new `replaces` what
/// was there.
pub(crate) fn live(
    every: Option<Duration>,
    replaces: bool,
    look: impl Fn() -> Result<String>,
) -> Result<Exit, Failure> {
    let signals = Signals::block()?;
    loop {
        let text = look()?;
        let is_read =
            output::print(&if every.is_some() && replaces { format!("\x1b[H\x1b[2J{text}") } else { text })?;
        let Some(every) = every.filter(|_| is_read) else { return Ok(Exit::Success) };
        match signals.wait_for_end(&[], None, every)? {
            Came::End => return Ok(Exit::Success),
            Came::Stop => stop_self(Signal::SIGTSTP),
            Came::Nothing => {}
        }
    }
}
