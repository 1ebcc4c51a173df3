//! The command `emu`: runs programs as on a slower CPU, and measures how faithfully.

#![deny(unsafe_code)]

mod cli;
mod commands;
mod control;
mod ending;
mod exit;
mod hints;
mod host;
mod measuring;
mod options;
mod output;
mod reporter;
#[cfg(test)]
mod schemas;
mod signals;
mod supervise;
mod values;
mod zone;

use std::panic;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use emu_core::Error;

use crate::cli::Cli;
use crate::commands::completions;
use crate::exit::{Exit, Failure};

fn main() -> ExitCode {
    output::errors::explain_panics();
    output::fit_terminal();
    match completions::answer(Cli::command) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return output::errors::print_usage(&error).finish(),
    }
    let outcome = panic::catch_unwind(|| match Cli::try_parse() {
        Ok(cli) => refuse_setuid().and_then(|()| cli.command.act()).unwrap_or_else(|failure| {
            failure.error.iter().for_each(output::errors::print);
            failure.exit
        }),
        Err(error) => output::errors::print_usage(&error),
    });
    outcome.unwrap_or(Exit::Failure).finish()
}

/// A set-user-ID emu would run the commands of anybody as its owner.
fn refuse_setuid() -> Result<(), Failure> {
    if nix::unistd::getuid() == nix::unistd::geteuid() {
        return Ok(());
    }
    Err(Error::not_permitted("emu must not be set-user-ID: it would run commands as its owner")
        .hint("take the bit off its file (chmod u-s), and use sudo, or setcap cap_sys_nice+ep")
        .into())
}
