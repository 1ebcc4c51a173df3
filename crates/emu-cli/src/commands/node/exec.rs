//! Runs a command on a node: this process joins it and becomes the command.

use std::os::unix::process::CommandExt;
use std::process::Command;

use emu_core::{Error, ErrorKind};

use super::args::ExecArgs;
use super::find;
use crate::control;
use crate::exit::{Exit, Failure};
use crate::supervise::program;

/// Does not return where the command begins.
pub(super) fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Error::usage("there is no command to run").into());
    };
    program::check(program)?;
    let session = find(&args.name)?;
    control::join(session.pid)?;
    let cause = Command::new(program).args(arguments).exec();
    let error = Error::new(ErrorKind::Usage, format!("cannot run `{}`", program.display())).caused_by(cause);
    Err(Failure::new(Exit::NotExecutable, error))
}
