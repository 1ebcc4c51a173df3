//! `emu node`: virtual nodes, which last until they are removed.

pub(crate) mod apply;
mod args;
mod create;
mod exec;
mod file;
mod keep;
mod killed;
mod members;
pub(crate) mod show;
mod spec;
#[cfg(test)]
mod testing;
mod watched;

pub(crate) use args::NodeCommand;
use killed::Killed;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use emu_core::{Error, ErrorKind, LiveSession, Result, Roots, nearest};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::commands::top::live;
use crate::control::{self, Removal, Request, Setting, Working};
use crate::ending::Ending;
use crate::exit::{Exit, Failure};
use crate::host;
use crate::reporter::Reporter;
use crate::signals::{Signals, readable};

/// What the name of a node's zone begins with.
const PREFIX: &str = "node ";

/// How often a list that is watched is shown anew.
const LOOK: Duration = Duration::from_secs(1);

/// How long a node may take to undo what was changed for it.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn node(command: &NodeCommand) -> Result<Exit, Failure> {
    match command {
        NodeCommand::Create(args) => create::create(args),
        NodeCommand::Keep(args) => keep::keep(args),
        NodeCommand::Exec(args) => exec::exec(args),
        NodeCommand::Set(args) => {
            let session = find(&args.name)?;
            let to = Setting { speed: args.speed.clone(), memory: args.memory };
            let told = format!("node {} is set: {to}", args.name);
            control::order(session.pid, &Request::Set(to))?;
            Reporter::new(args.quiet).tell(&told);
            Ok(Exit::Success)
        }
        NodeCommand::List(args) => {
            let look = || {
                let nodes = nodes()?;
                let killed = killed_nodes();
                if args.json { show::json(nodes, &killed) } else { Ok(show::text(&nodes, &killed)) }
            };
            live(args.watch.then_some(LOOK), true, look)
        }
        NodeCommand::Remove(args) => {
            let how = match (args.kill, args.free) {
                (true, _) => Removal::Kill,
                (_, true) => Removal::Free,
                _ => Removal::Empty,
            };
            let signals = Signals::block()?;
            match &args.name {
                Some(name) => remove(name, how, Some(&signals)),
                None => remove_all(how, &signals),
            }
        }
        NodeCommand::Apply(args) => apply::apply(args),
        NodeCommand::Dump => apply::dump(),
    }
}

/// A node, and how it goes; or why it does not tell.
type Found = (LiveSession, Result<Working>);

fn name(session: &LiveSession) -> &str {
    session.name.strip_prefix(PREFIX).unwrap_or(&session.name)
}

/// The nodes of the caller's user. Nobody is asked: one that is stopped would not answer for seconds.
fn sessions() -> Result<Vec<LiveSession>> {
    let all = control::sessions(&Roots::system())?.into_iter();
    Ok(all.filter(|session| session.name.starts_with(PREFIX)).collect())
}

fn nodes() -> Result<Vec<Found>> {
    Ok(control::asked(sessions()?))
}

/// The names of the caller's nodes; none where that cannot be told.
pub(crate) fn names() -> Vec<String> {
    sessions().unwrap_or_default().iter().map(|session| name(session).to_owned()).collect()
}

/// The nodes that were killed. Nothing of them is left by then: what their guardians had no time to undo is undone here.
fn killed_nodes() -> Vec<Killed> {
    let roots = Roots::system();
    let killed = killed::killed(&roots);
    if !killed.is_empty()
        && let Err(why) = emu_core::restore(&roots)
    {
        Reporter::new(false).note(&host::not_undone(&why));
    }
    killed
}

/// The node of this name. Its emu answers: what is sent to one that is stopped would be done later.
fn find(name: &str) -> Result<LiveSession> {
    let there = sessions()?;
    let names: Vec<_> = there.iter().map(|session| self::name(session).to_owned()).collect();
    let session = there.into_iter().find(|session| self::name(session) == name).ok_or_else(|| {
        if let Some(killed) = killed::killed(&Roots::system()).into_iter().find(|one| one.name == name) {
            return Error::unavailable(format!("node `{name}` is gone: {}", killed.in_words()))
                .hint("make it again, or have it forgotten: `emu node remove`");
        }
        let hint = match nearest(name, names.iter().map(String::as_str)) {
            Some(nearest) => format!("did you mean `{nearest}`? `emu node list` names all"),
            None => "`emu node list` names those that there are".to_owned(),
        };
        Error::usage(format!("there is no node `{name}` of yours")).hint(hint)
    })?;
    control::working(session.pid).map(|_| session)
}

fn is_taken(name: &str) -> Error {
    Error::usage(format!("there is a node `{name}` already"))
        .hint("choose another name, or remove that one: `emu node remove`")
}

/// With `signals`, one that asks to end ends the wait for the node.
fn remove(name: &str, how: Removal, signals: Option<&Signals>) -> Result<Exit, Failure> {
    let roots = Roots::system();
    if killed::killed(&roots).iter().any(|one| one.name == name) {
        killed::forget(&roots, name);
        emu_core::restore(&roots)?;
        return Ok(Exit::Success);
    }
    let session = find(name)?;
    let failed = |e: rustix::io::Errno| Error::io(format!("cannot watch emu {}", session.pid), e.into());
    let emu = Pid::from_raw(session.pid).ok_or_else(|| failed(rustix::io::Errno::SRCH))?;
    let emu = pidfd_open(emu, PidfdFlags::empty()).map_err(failed)?;
    control::order(session.pid, &Request::Remove(how))?;
    let deadline = Instant::now() + PATIENCE;
    let others = [emu.as_fd()];
    let wait = |limit| match signals {
        Some(signals) => signals.wait(&others, limit),
        None => Ok(readable(&others, limit)?.contains(&true)),
    };
    // Signals that mean nothing here end a wait, too.
    while !wait(deadline.saturating_duration_since(Instant::now()))? {
        if Instant::now() >= deadline {
            let error = Error::unavailable(format!("node {name} has not ended yet"));
            return Err(error.hint("`emu node list` tells when it has").into());
        }
        signals.map_or(Ok(()), asked_to_end)?;
    }
    // What its emu could not undo is still in its journal.
    let report = emu_core::restore(&roots)?;
    if let Some(problem) = report.problems.first() {
        let error =
            Error::new(ErrorKind::RestoreIncomplete, format!("not all of node {name} is undone: {problem}"));
        return Err(error.hint("`emu restore` tries again").into());
    }
    Ok(Exit::Success)
}

/// Ends every node, also where one of them cannot be ended; fails as the first of those did.
fn remove_all(how: Removal, signals: &Signals) -> Result<Exit, Failure> {
    let there = sessions()?.into_iter().map(|session| name(&session).to_owned());
    // One that is killed meanwhile is in both.
    let names: BTreeSet<_> = there.chain(killed_nodes().into_iter().map(|one| one.name)).collect();
    let mut failed = None;
    for name in names {
        match remove(&name, how, Some(signals)) {
            // Whoever interrupts it means the rest, too.
            Err(why) if matches!(why.exit, Exit::Signal(_)) => return Err(why),
            removed => failed = failed.or(removed.err()),
        }
    }
    failed.map_or(Ok(Exit::Success), Err)
}

/// Follows a signal that asks to stop, too: what a node is made of goes on by itself.
fn asked_to_end(signals: &Signals) -> Result<(), Failure> {
    Ending::new(signals).by_signal(None)
}
