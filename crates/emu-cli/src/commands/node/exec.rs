//! Runs a command on a node, as a command of this terminal.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, id};

use emu_core::{Error, ErrorKind, Pid, Trait};

use super::args::ExecArgs;
use super::find;
use crate::control::{Request, order};
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::supervise::{command, program, run_alone};

/// This process joins the node and becomes the command. Where the node stops its processes by signals, the command is a
/// child of this process instead: a shell takes its terminal back from a child that is stopped.
pub(super) fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Error::usage("there is no command to run").into());
    };
    program::check(program)?;
    let node = find(&args.name)?;
    if emu_core::find(&node.method)?.about().has(Trait::SendsSignals) {
        let signals = Signals::block()?;
        let command =
            command(&args.command, &signals).ok_or_else(|| Error::usage("there is no command to run"))?;
        return run_alone(&command, &signals, true, |pid| order(node.pid, &Request::Join(pid, None)));
    }
    order(node.pid, &Request::Join(id() as Pid, None))?;
    let cause = Command::new(program).args(arguments).exec();
    let is_not_found = cause.kind() == io::ErrorKind::NotFound;
    let error = Error::new(ErrorKind::Usage, format!("cannot run `{}`", program.display())).caused_by(cause);
    Err(Failure::not_executed(is_not_found, error))
}
