//! The command `emu`: runs programs as on a slower CPU, and measures how faithfully.

#![deny(unsafe_code)]

mod cli;
mod commands;
mod ending;
mod exit;
mod host;
mod measuring;
mod options;
mod output;
mod reporter;
mod signals;
mod supervise;
mod values;
mod zone;

use std::panic;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::exit::Exit;

fn main() -> ExitCode {
    output::errors::explain_panics();
    let outcome = panic::catch_unwind(|| match Cli::try_parse() {
        Ok(cli) => cli.command.act().unwrap_or_else(|failure| {
            failure.error.iter().for_each(output::errors::print);
            failure.exit
        }),
        Err(error) => output::errors::print_usage(&error),
    });
    outcome.unwrap_or(Exit::Failure).finish()
}
