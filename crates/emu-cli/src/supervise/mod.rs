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

use emu_core::{Error, ExecError, Gated, Pid, Result, Roots, SlowCommand};
use rustix::process::{Pid as RawPid, setpgid};

use crate::exit::{Exit, Failure};
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

/// Runs a command with nothing in force that would need emu to go on; `prepare` gets its process before it begins.
/// `stops_processes` as of [`InForce`]: by somebody else here.
pub(crate) fn run_alone(
    command: &SlowCommand,
    signals: &Signals,
    stops_processes: bool,
    prepare: impl FnOnce(Pid) -> Result<()>,
) -> Result<Exit, Failure> {
    let gated = command.gate()?;
    prepare(gated.pid())?;
    let child = Child::open(&Roots::system(), gated.pid())?;
    let mut supervisor = Supervisor::new(signals, child, Alone { stops_processes });
    supervisor.pass_on_early_signals()?;
    let beginning = begin(gated)?;
    let exit = supervisor.watch(|_| {})?;
    match beginning.join() {
        Ok(Err(error)) => Err(error.into()),
        _ => Ok(exit),
    }
}

struct Alone {
    stops_processes: bool,
}

impl InForce for Alone {
    fn while_paused(&mut self, act: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        act()
    }

    fn stops_processes(&self) -> bool {
        self.stops_processes
    }
}
