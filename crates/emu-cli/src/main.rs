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
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{getegid, geteuid, getgid, getuid};

use crate::cli::Cli;
use crate::commands::completions;
use crate::exit::{Exit, Failure};

/// What the parser of the arguments needs of the stack, in bytes, with room to spare.
const STACK: u64 = 512 << 10;

fn main() -> ExitCode {
    output::errors::explain_panics();
    let outcome = panic::catch_unwind(|| match refuse_start() {
        Ok(()) => command(),
        Err(error) => tell(&error.into()),
    });
    output::stderr::say_the_rest();
    outcome.unwrap_or(Exit::Failure).finish()
}

/// Its frame needs most of the stack, and is not to be made before the stack's size is known.
#[inline(never)]
fn command() -> Exit {
    output::fit_terminal();
    match completions::answer(Cli::command) {
        Ok(false) => {}
        Ok(true) => return Exit::Success,
        Err(error) => return output::errors::print_usage(&error),
    }
    match Cli::try_parse() {
        Ok(cli) => cli.command.act().unwrap_or_else(|failure| tell(&failure)),
        Err(error) => output::errors::print_usage(&error),
    }
}

fn tell(failure: &Failure) -> Exit {
    failure.error.iter().for_each(output::errors::print);
    failure.exit
}

/// A set-user-ID emu would run the commands of anybody as its owner, a set-group-ID one with its group.
fn refuse_start() -> Result<(), Error> {
    let (stack, _) = getrlimit(Resource::RLIMIT_STACK).unwrap_or((STACK, STACK));
    if stack < STACK {
        return Err(Error::unavailable(format!(
            "the stack is limited to {} KiB (RLIMIT_STACK)",
            stack >> 10
        ))
        .hint(format!("emu needs {} KiB: ulimit -s {0}", STACK >> 10)));
    }
    if getuid() != geteuid() {
        let error = Error::not_permitted("emu must not be set-user-ID: it would run commands as its owner");
        let hint = "take the bit off its file (chmod u-s), and use sudo, or setcap cap_sys_nice+ep";
        return Err(error.hint(hint));
    }
    if getgid() != getegid() {
        let error =
            Error::not_permitted("emu must not be set-group-ID: it would run commands with its group");
        return Err(
            error.hint("take the bit off its file (chmod g-s), and use sudo, or sg for a group of yours")
        );
    }
    Ok(())
}
