//! `emu completions`: scripts that teach a shell emu's options.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::exit::{Exit, Failure};
use crate::output;

/// Writes the script of a shell to stdout.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "emu", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
