//! Has what a file of nodes names be on its nodes: commands are started, and what runs already joins.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

use emu_core::{Error, Host, LiveSession, Pid, Result, Roots, SlowCommand, Stdio, named};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process, setpgid};

use super::find as find_node;
use super::spec::Specs;
use crate::commands::attach::Target;
use crate::control::{self, Member, Working};
use crate::exit::Failure;
use crate::supervise::{descendants, program};

pub(super) type There = BTreeMap<String, (LiveSession, Working)>;

#[derive(Debug)]
pub(super) enum Join {
    Take {
        node: String,
        member: Member,
        pids: Vec<Pid>,
    },
    Start {
        node: String,
        command: Vec<String>,
    },
    /// What comes of it later joins, too.
    Watch {
        node: String,
        member: Member,
    },
    /// What comes of it later stays where it is.
    Unwatch {
        node: String,
        member: Member,
    },
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take { node, member, pids } => match pids.len() {
                1 => write!(f, "join {node}: {member}"),
                count => write!(f, "join {node}: {member} ({count} processes)"),
            },
            Self::Start { node, command } => write!(f, "start on {node}: {}", command.join(" ")),
            Self::Watch { node, member } => write!(f, "watch for {node}: {member}"),
            Self::Unwatch { node, member } => write!(f, "watch no longer for {node}: {member}"),
        }
    }
}

/// What is to be done for the members of the file, none of which may be on two nodes; and in words those that are gone.
pub(super) fn plan(host: &Host, specs: &Specs, there: &There) -> Result<(Vec<Join>, Vec<String>), Failure> {
    let (mut takes, mut starts, mut changes, mut gone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut named: BTreeMap<Member, &str> = BTreeMap::new();
    let mut owned: BTreeMap<Pid, (&str, Member)> = BTreeMap::new();
    for (node, spec) in specs {
        let node = node.as_str();
        let working = there.get(node).map(|(_, working)| working);
        let watched = working.map_or(&[][..], |working| &working.watched);
        let members = spec.members();
        let left = watched.iter().filter(|member| !members.contains(member));
        changes.extend(left.map(|member| Join::Unwatch { node: node.to_owned(), member: member.clone() }));
        let has = |member: &Member| {
            working.is_some_and(|working| working.joined.iter().any(|joined| joined.of == *member))
        };
        for member in members {
            if let Member::Run(command) = &member {
                if !has(&member) {
                    program::check(OsStr::new(command.first().map_or("", String::as_str)))?;
                    starts.push(Join::Start { node: node.to_owned(), command: command.clone() });
                }
                continue;
            }
            if let Some(other) = named.insert(member.clone(), node) {
                return Err(on_two(&member.to_string(), other, node).into());
            }
            let is_watched = watched.contains(&member);
            if member.comes_again() && !is_watched {
                changes.push(Join::Watch { node: node.to_owned(), member: member.clone() });
            }
            let pids = match pids_of(host, &member)? {
                Ok(pids) => pids,
                Err(_) if is_watched || has(&member) => continue,
                Err(why) => {
                    let then = if member.comes_again() { "; it joins when it runs" } else { "" };
                    gone.push(format!("node {node} goes without {member}: {why}{then}"));
                    continue;
                }
            };
            for pid in &pids {
                let before = owned.insert(*pid, (node, member.clone()));
                if let Some((other, theirs)) = before.filter(|(other, _)| *other != node) {
                    let what = format!("process {pid}, of {theirs} and {member},");
                    return Err(on_two(&what, other, node).into());
                }
                let is_there = |(name, (_, working)): &(&String, &(LiveSession, Working))| {
                    *name != node && working.members.contains(pid)
                };
                if let Some((other, _)) = there.iter().find(is_there) {
                    let error = Error::usage(format!("process {pid} of {member} is on node {other}"));
                    return Err(error.hint(format!("end it, or leave it out of node {node}")).into());
                }
            }
            let new = |pid: &Pid| working.is_none_or(|working| !working.members.contains(pid));
            let pids: Vec<_> = pids.into_iter().filter(new).collect();
            if !pids.is_empty() {
                takes.push(Join::Take { node: node.to_owned(), member, pids });
            }
        }
    }
    Ok((takes.into_iter().chain(starts).chain(changes).collect(), gone))
}

fn on_two(what: &str, one: &str, other: &str) -> Error {
    let nodes =
        if one == other { format!("twice on node {one}") } else { format!("on nodes {one} and {other}") };
    Error::usage(format!("{what} would be {nodes}")).hint("name it once, on one node")
}

/// The processes of a member, or why there are none.
fn pids_of(host: &Host, member: &Member) -> Result<Result<Vec<Pid>, String>> {
    let in_words = |error: &Error| match error.hint_text() {
        Some(hint) => format!("{} ({hint})", error.in_words()),
        None => error.in_words(),
    };
    match member {
        Member::Run(_) => Ok(Ok(Vec::new())),
        Member::Pid(pid) if !host.roots.proc.join(pid.to_string()).exists() => Ok(Err("it has ended".into())),
        Member::Pid(pid) => Ok(Ok(family(Target::processes(&host.roots, &[*pid])?.pids())?)),
        Member::Name(name) => match Target::named(&host.roots, name) {
            Ok(target) => Ok(Ok(family(target.pids())?)),
            Err(why) => Ok(Err(in_words(&why))),
        },
        Member::Unit(_) | Member::Container(_) | Member::Cgroup(_) => match group_of(host, member) {
            Err(why) => Ok(Err(in_words(&why))),
            Ok((path, target)) => {
                // What is wrong with the caller's place is no reason to go without.
                target.check_outside(&path)?;
                Ok(Some(target.pids()).filter(|pids| !pids.is_empty()).ok_or("nothing runs in it".into()))
            }
        },
    }
}

pub(super) fn group_of(host: &Host, member: &Member) -> Result<(PathBuf, Target)> {
    let path = match member {
        Member::Unit(unit) => named::unit(host, unit)?,
        Member::Container(container) => named::container(host, container)?,
        Member::Cgroup(path) => path.clone(),
        Member::Run(_) | Member::Pid(_) | Member::Name(_) => {
            return Err(Error::usage(format!("{member} has no cgroup of its own"))
                .hint("name its cgroup, unit or container"));
        }
    };
    let target = Target::group(host, &path, None)?;
    Ok((path, target))
}

fn family(pids: Vec<Pid>) -> Result<Vec<Pid>> {
    let descendants = descendants(&pids)?;
    let all: BTreeSet<Pid> = descendants.iter().map(|one| one.pid).chain(pids).collect();
    Ok(all.into_iter().collect())
}

impl Join {
    pub(super) fn node(&self) -> &str {
        match self {
            Self::Take { node, .. }
            | Self::Start { node, .. }
            | Self::Watch { node, .. }
            | Self::Unwatch { node, .. } => node,
        }
    }

    pub(super) fn action(&self) -> &'static str {
        match self {
            Self::Take { .. } => "join",
            Self::Start { .. } => "start",
            Self::Watch { .. } => "watch",
            Self::Unwatch { .. } => "unwatch",
        }
    }

    /// Does it. A process that has ended meanwhile is none that fails.
    pub(super) fn take(&self) -> Result<(), Failure> {
        let emu = find_node(self.node())?.pid;
        match self {
            Self::Take { member, pids, .. } => {
                for &pid in pids {
                    let joined = control::join(emu, pid, Some(member.clone()));
                    let lives = || Roots::system().proc.join(pid.to_string()).exists();
                    joined.or_else(|error| if lives() { Err(error) } else { Ok(()) })?;
                }
                Ok(())
            }
            Self::Start { command, .. } => start(emu, command),
            Self::Watch { member, .. } => Ok(control::watch(emu, member)?),
            Self::Unwatch { member, .. } => Ok(control::unwatch(emu, member)?),
        }
    }

    /// Takes back what can be taken back: a command is killed. Returns whether nothing of it is on the node.
    pub(super) fn undo(&self) -> bool {
        let working = find_node(self.node()).and_then(|session| control::working(session.pid));
        let Ok(working) = working else { return false };
        let command = match self {
            Self::Take { pids, .. } => return !working.members.iter().any(|pid| pids.contains(pid)),
            Self::Start { command, .. } => Member::Run(command.clone()),
            Self::Watch { member, .. } => return control::unwatch(working.pid, member).is_ok(),
            Self::Unwatch { member, .. } => return control::watch(working.pid, member).is_ok(),
        };
        working.joined.iter().filter(|joined| joined.of == command).all(|joined| {
            let killed =
                rustix::process::Pid::from_raw(joined.pid).map(|pid| kill_process(pid, Signal::KILL));
            matches!(killed, Some(Ok(()) | Err(Errno::SRCH)))
        })
    }
}

/// Starts a command on the node of this emu, apart from this terminal.
fn start(emu: Pid, command: &[String]) -> Result<(), Failure> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let mut slow = SlowCommand::new(program);
    slow.args(arguments).stdin(Stdio::Null).stdout(Stdio::Null).stderr(Stdio::Null);
    let mut gated = slow.gate()?;
    // The keyboard's signals are for the commands of the terminal.
    let pid = rustix::process::Pid::from_raw(gated.pid());
    setpgid(pid, pid)
        .map_err(|e| Error::io(format!("cannot give `{program}` a group of its own"), e.into()))?;
    control::join(emu, gated.pid(), Some(Member::Run(command.to_vec())))?;
    Ok(gated.begin()?)
}
