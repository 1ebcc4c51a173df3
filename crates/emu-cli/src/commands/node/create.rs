//! Starts the emu that keeps a node, and waits until the node is there.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write, pipe};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use emu_core::Error;

use super::args::CreateArgs;
use super::keep::READY;
use super::nodes;
use crate::exit::{Exit, Failure};

pub(super) fn create(args: &CreateArgs) -> Result<Exit, Failure> {
    let name = &args.name;
    let wanted = format!("{}{name}", super::PREFIX);
    if nodes()?.iter().any(|(session, _)| session.name == wanted) {
        let error = Error::usage(format!("there is a node `{name}` already"));
        return Err(error.hint("choose another name, or remove that one: `emu node remove`").into());
    }
    // The same words, for the one that keeps it. Those before the first `create` are no options.
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(word) = words.iter_mut().find(|word| *word == "create") {
        *word = "keep".into();
    }
    keeper(words)
}

pub(super) fn keeper(words: impl IntoIterator<Item = OsString>) -> Result<Exit, Failure> {
    let failed = |e| Error::io("cannot start the emu that keeps the node", e);
    let own = std::env::current_exe().map_err(failed)?;
    // It gets no stream of the shell's: it would keep those open for as long as the node lasts.
    let (read, write) = pipe().map_err(failed)?;
    let stderr = write.try_clone().map_err(failed)?;
    let mut keeper = Command::new(own);
    keeper.args(words).stdin(Stdio::null()).stdout(write).stderr(stderr);
    let mut keeping = keeper.spawn().map_err(failed)?;
    // With it go our own ends of the pipe.
    drop(keeper);
    for line in BufReader::new(read).lines() {
        let line = line.map_err(failed)?;
        if line == READY {
            return Ok(Exit::Success);
        }
        let _ = writeln!(anstream::stderr(), "{line}");
    }
    // It has said why.
    let status = keeping.wait().map_err(failed)?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Command(code as u8),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    })
}
