//! A command that emu starts and watches, whatever is in force for it: an emulation, a tuning.

mod child;
pub(crate) mod program;
mod supervisor;

pub(crate) use child::Child;
pub(crate) use supervisor::{InForce, Supervisor};

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::thread::{self, JoinHandle};

use emu_core::{ExecError, Gated, Pid};

/// Opens the gate on a thread of its own: a command that Ctrl-Z stops before it has begun begins only when the
/// supervisor, which has then followed it, is continued.
pub(crate) fn open(gated: Gated, program: OsString) -> JoinHandle<Result<Pid, ExecError>> {
    thread::spawn(move || gated.open(&program))
}

/// What other emus and messages call what is in force for the command.
pub(crate) fn name(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}
