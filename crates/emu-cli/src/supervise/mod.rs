//! A command that emu starts and watches, whatever is in force for it: an emulation, a tuning.

mod child;
mod descendants;
pub(crate) mod program;
mod supervisor;

pub(crate) use child::{Child, News};
pub(crate) use descendants::{descendants, lives};
pub(crate) use supervisor::{InForce, Supervisor};

use std::ffi::OsString;
use std::thread::{self, JoinHandle};

use emu_core::{Error, ExecError, Gated, Result, SlowCommand};
use rustix::process::{Pid as RawPid, setpgid};

use crate::signals::Signals;

/// The command of these words, with the signal mask that emu was started with; `None` where there are no words.
pub(crate) fn command(words: &[OsString], signals: &Signals) -> Option<SlowCommand> {
    let (program, arguments) = words.split_first()?;
    let mut command = SlowCommand::new(program);
    command.args(arguments).signal_mask(signals.original());
    Some(command)
}

/// Gives a command that is to begin a process group of its own: the keyboard's signals are for those of the terminal.
pub(crate) fn own_group(gated: &Gated) -> Result<()> {
    let pid = RawPid::from_raw(gated.pid());
    setpgid(pid, pid).map_err(|e| Error::io("cannot give the command a process group of its own", e.into()))
}

/// Lets the program begin on a thread of its own (it is killed where none can be made): a command that Ctrl-Z stops before it
/// has begun begins only when the supervisor, which has then followed it, is continued.
pub(crate) fn begin(mut gated: Gated) -> Result<JoinHandle<Result<(), ExecError>>> {
    let thread = thread::Builder::new().spawn(move || gated.begin());
    thread.map_err(|e| Error::io("cannot start the thread that begins the command", e))
}
