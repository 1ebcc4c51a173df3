//! `emu node`: virtual nodes, which last until they are removed.

mod args;
mod create;
mod exec;
mod keep;
mod show;

pub(crate) use args::NodeCommand;

use std::os::fd::AsFd;
use std::time::Duration;

use emu_core::{Error, LiveSession, Result, Roots};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::control::{self, Working};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::reporter::Reporter;
use crate::signals::Signals;

/// What the name of a node's zone begins with.
const PREFIX: &str = "node ";

/// How long a node may take to undo what was changed for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Does what is asked of nodes.
pub(crate) fn node(command: &NodeCommand) -> Result<Exit, Failure> {
    match command {
        NodeCommand::Create(args) => create::create(args),
        NodeCommand::Keep(args) => keep::keep(args),
        NodeCommand::Exec(args) => exec::exec(args),
        NodeCommand::Set(args) => {
            let (session, _) = find(&args.name)?;
            control::set_speed_of(session.pid, &args.speed)?;
            Reporter::new(args.quiet).tell(&format!("node {} is set to {}", args.name, args.speed));
            Ok(Exit::Success)
        }
        NodeCommand::List(args) => {
            let nodes = nodes()?;
            output::print(&if args.json { show::json(&nodes)? } else { show::text(&nodes) })?;
            Ok(Exit::Success)
        }
        NodeCommand::Remove(args) => remove(&args.name, args.kill),
    }
}

/// A node, and how it goes; or why it does not tell.
type Found = (LiveSession, Result<Working>);

/// The nodes of the caller's user.
fn nodes() -> Result<Vec<Found>> {
    let all = control::at_work(&Roots::system())?.into_iter();
    Ok(all.filter(|(session, _)| session.name.starts_with(PREFIX)).collect())
}

/// The node of this name.
fn find(name: &str) -> Result<Found> {
    let wanted = format!("{PREFIX}{name}");
    nodes()?.into_iter().find(|(session, _)| session.name == wanted).ok_or_else(|| {
        Error::usage(format!("there is no node `{name}` of yours"))
            .hint("`emu node list` names those that there are")
    })
}

/// Ends a node, and waits until all is undone.
fn remove(name: &str, kill: bool) -> Result<Exit, Failure> {
    let signals = Signals::block()?;
    let (session, _) = find(name)?;
    let failed = |e: rustix::io::Errno| Error::io(format!("cannot watch emu {}", session.pid), e.into());
    let emu = Pid::from_raw(session.pid).ok_or_else(|| failed(rustix::io::Errno::SRCH))?;
    let emu = pidfd_open(emu, PidfdFlags::empty()).map_err(failed)?;
    control::remove(session.pid, kill)?;
    if signals.wait(&[emu.as_fd()], PATIENCE)? {
        return Ok(Exit::Success);
    }
    let error = Error::unavailable(format!("node {name} has not ended yet"));
    Err(error.hint("`emu node list` tells when it has").into())
}
