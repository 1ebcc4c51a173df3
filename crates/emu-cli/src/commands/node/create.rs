//! Starts the emu that keeps a node, and waits until the node is there.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, pipe};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use emu_core::{Error, heed_children};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::args::CreateArgs;
use super::keep::READY;
use super::{asked_to_end, is_taken, names};
use crate::exit::{Exit, Failure};
use crate::output::stderr::say_in_time;
use crate::signals::Signals;

/// How often it looks for signals that it was not woken for.
const LOOK: Duration = Duration::from_secs(60);

pub(super) fn create(args: &CreateArgs) -> Result<Exit, Failure> {
    let name = &args.name;
    if names().contains(name) {
        return Err(is_taken(name).into());
    }
    let signals = Signals::block()?;
    // The same words, for the one that keeps it. Those before the first `create` are no options.
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(word) = words.iter_mut().find(|word| *word == "create") {
        *word = "keep".into();
    }
    keeper(words, Some(&signals))
}

/// With `signals`, one that asks to end makes the keeper end, too.
pub(super) fn keeper(
    words: impl IntoIterator<Item = OsString>,
    signals: Option<&Signals>,
) -> Result<Exit, Failure> {
    let failed = |e| Error::io("cannot start the emu that keeps the node", e);
    let own = std::env::current_exe().map_err(failed)?;
    // It gets no stream of the shell's: it would keep those open for as long as the node lasts.
    let (read, write) = pipe().map_err(failed)?;
    let stderr = write.try_clone().map_err(failed)?;
    heed_children();
    let mut keeper = Command::new(own);
    keeper.args(words).stdin(Stdio::null()).stdout(write).stderr(stderr);
    let mut keeping = keeper.spawn().map_err(failed)?;
    // With it go our own ends of the pipe.
    drop(keeper);
    let mut said = BufReader::new(read);
    let mut interrupted = None;
    loop {
        if let Some(signals) = signals
            && said.buffer().is_empty()
            && !signals.wait(&[said.get_ref().as_fd()], LOOK)?
        {
            if let Err(why) = asked_to_end(signals) {
                kill(Pid::from_raw(keeping.id() as i32), Signal::SIGTERM).map_err(|e| failed(e.into()))?;
                interrupted.get_or_insert(why);
            }
            continue;
        }
        let mut line = String::new();
        if said.read_line(&mut line).map_err(failed)? == 0 {
            break;
        }
        match line.trim_end() {
            READY if interrupted.is_none() => return Ok(Exit::Success),
            READY => {}
            line => say_in_time(&format!("{line}\n")),
        }
    }
    let status = keeping.wait().map_err(failed)?;
    if let Some(why) = interrupted {
        return Err(why);
    }
    // It has said why.
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Command(code as u8),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    })
}
