//! Has what a file of nodes names be on its nodes: commands are started, and what runs already joins.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

use emu_core::{Error, Host, LiveSession, Pid, Result, SlowCommand, Stdio, named};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

use super::find as find_node;
use super::spec::{Spec, Specs};
use crate::commands::attach::Target;
use crate::control::{Joined, Member, Request, Working, order, working as working_of};
use crate::exit::Failure;
use crate::supervise::{descendants, lives, own_group, program};

/// How often new children of what joins are looked for.
const PASSES: usize = 100;

pub(super) type There = BTreeMap<String, (LiveSession, Working)>;

/// What is to be done for a member of a node.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) node: String,
    pub(super) member: Member,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Join(Vec<Pid>),
    /// What is there by a member that is no longer in the file runs freely again, where it came from.
    Leave(Vec<Pid>),
    Start,
    /// What comes of it later joins, too.
    Watch,
    /// What comes of it later stays where it is.
    Unwatch,
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, member, what } = self;
        let begin = match what {
            What::Join(_) => "join",
            What::Leave(_) => "leave",
            What::Start => "start on",
            What::Watch => "watch for",
            What::Unwatch => "watch no longer for",
        };
        write!(f, "{begin} {node}: {member}")?;
        match what {
            What::Join(pids) | What::Leave(pids) if pids.len() != 1 => {
                write!(f, " ({} processes)", pids.len())
            }
            _ => Ok(()),
        }
    }
}

/// What is to be done for the members of the file, none of which may be on two nodes; and in words those that are gone.
pub(super) fn plan(host: &Host, specs: &Specs, there: &There) -> Result<(Vec<Join>, Vec<String>), Failure> {
    let (mut leaves, mut found, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut later, mut gone) = (Vec::new(), Vec::new());
    let mut named: BTreeMap<Member, &str> = BTreeMap::new();
    let mut owned: BTreeMap<Pid, (&str, Member)> = BTreeMap::new();
    let new =
        |node: &str, member: &Member, what| Join { node: node.to_owned(), member: member.clone(), what };
    for (node, spec) in specs {
        let node = node.as_str();
        let working = there.get(node).map(|(_, working)| working);
        let watched = working.map_or(&[][..], |working| &working.watched);
        let members = spec.members();
        let left = watched.iter().filter(|member| !members.contains(member));
        leaves.extend(left.map(|member| new(node, member, What::Unwatch)));
        let has = |member: &Member| {
            working.is_some_and(|working| working.joined.iter().any(|joined| joined.of == *member))
        };
        for member in members {
            member.check()?;
            if let Member::Run(command) = &member {
                if !has(&member) {
                    program::check(OsStr::new(command.first().map_or("", String::as_str)))?;
                    starts.push(new(node, &member, What::Start));
                }
                continue;
            }
            if let Some(other) = named.insert(member.clone(), node) {
                return Err(on_two(&member.to_string(), other, node).into());
            }
            let is_watched = watched.contains(&member);
            if member.comes_again() && !is_watched {
                later.push(new(node, &member, What::Watch));
            }
            let elsewhere = there.iter().filter(|(name, _)| *name != node);
            let elsewhere = elsewhere.flat_map(|(_, (_, working))| &working.joined);
            let moved: Vec<_> =
                elsewhere.filter(|joined| joined.of == member).map(|joined| joined.pid).collect();
            let pids = match pids_of(host, &member)? {
                Ok(pids) => pids,
                Err(_) if is_watched || has(&member) => continue,
                // The other node has them in its own cgroup.
                Err(_) if !moved.is_empty() => moved,
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
            }
            found.push((node, member, pids));
        }
    }
    leaves.extend(leaving(specs, there, &owned, &mut gone));
    let stays = staying(there, &leaves)?;
    gone.extend(without_member(there, &leaves, &stays)?);
    let mut takes = Vec::new();
    for (node, member, mut pids) in found {
        // One that has ended since is on no node, and among nobody's children.
        pids.retain(|pid| lives(*pid));
        let is_elsewhere = |pid| stays.get_key_value(pid).filter(|(_, other)| **other != node);
        if let Some((pid, other)) = pids.iter().find_map(is_elsewhere) {
            let error = Error::usage(format!("process {pid} of {member} is on node {other}"));
            return Err(error.hint(format!("end it, or leave it out of node {node}")).into());
        }
        pids.retain(|pid| !stays.contains_key(pid));
        if !pids.is_empty() {
            takes.push(new(node, &member, What::Join(pids)));
        }
    }
    // What is taken is known to those who watch.
    Ok((leaves.into_iter().chain(takes).chain(starts).chain(later).collect(), gone))
}

/// What is there by members that are no longer in the file, unless it is `owned` by another one of the node. Commands stay, and
/// are told as `kept`.
fn leaving(
    specs: &Specs,
    there: &There,
    owned: &BTreeMap<Pid, (&str, Member)>,
    kept: &mut Vec<String>,
) -> Vec<Join> {
    let mut leaves: Vec<Join> = Vec::new();
    for (node, (_, working)) in there {
        let members = specs.get(node).map(Spec::members).unwrap_or_default();
        for Joined { pid, of } in working.joined.iter().filter(|joined| !members.contains(&joined.of)) {
            if owned.get(pid).is_some_and(|(owner, _)| owner == node) {
                continue;
            }
            match leaves.last_mut() {
                _ if matches!(of, Member::Run(_)) => {
                    kept.push(format!("node {node} keeps {of}, which is not in the file: process {pid}"));
                }
                Some(Join { node: last, member, what: What::Leave(pids) })
                    if last == node && member == of =>
                {
                    pids.push(*pid);
                }
                _ => leaves.push(Join {
                    node: node.clone(),
                    member: of.clone(),
                    what: What::Leave(vec![*pid]),
                }),
            }
        }
    }
    leaves
}

/// What is on which node when they have left: their children go with them, also such as join again.
fn staying<'a>(there: &'a There, leaves: &[Join]) -> Result<BTreeMap<Pid, &'a str>> {
    let of_node = |(node, (_, working)): (&'a String, &'a (LiveSession, Working))| {
        working.members.iter().map(|pid| (*pid, node.as_str()))
    };
    let mut stays: BTreeMap<Pid, &str> = there.iter().flat_map(of_node).collect();
    for leave in leaves {
        if let Join { node, what: What::Leave(pids), .. } = leave {
            let left = family(pids.clone())?;
            stays.retain(|pid, of| of != node || !left.contains(pid));
        }
    }
    Ok(stays)
}

/// In words, what stays on a node that a member leaves and descends from none: a daemon of that member may be among it, of
/// which nobody knows once its parent has ended.
fn without_member(there: &There, leaves: &[Join], stays: &BTreeMap<Pid, &str>) -> Result<Vec<String>> {
    let mut told = Vec::new();
    for (node, (_, working)) in there {
        if !leaves.iter().any(|leave| leave.node == *node && matches!(leave.what, What::Leave(_))) {
            continue;
        }
        let known = family(working.joined.iter().map(|joined| joined.pid).collect())?;
        let without = stays.iter().filter(|(pid, of)| **of == node && !known.contains(pid));
        let without: Vec<_> = without.map(|(pid, _)| pid.to_string()).collect();
        if !without.is_empty() {
            let pids = without.join(", ");
            told.push(format!(
                "node {node} keeps what descends from no member, such as their daemons: {pids}"
            ));
        }
    }
    Ok(told)
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
        Member::Pid(pid) if !lives(*pid) => Ok(Err("it has ended".into())),
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
    pub(super) fn action(&self) -> &'static str {
        match self.what {
            What::Join(_) => "join",
            What::Leave(_) => "leave",
            What::Start => "start",
            What::Watch => "watch",
            What::Unwatch => "unwatch",
        }
    }

    /// Does it. A process that has ended meanwhile is none that fails.
    pub(super) fn take(&self) -> Result<(), Failure> {
        let (emu, member) = (find_node(&self.node)?.pid, &self.member);
        match &self.what {
            What::Join(pids) => Ok(take(emu, member, pids)?),
            What::Leave(pids) => Ok(let_go(emu, pids)?),
            What::Start => start(emu, member),
            What::Watch => Ok(order(emu, &Request::Watch(member.clone()))?),
            What::Unwatch => Ok(order(emu, &Request::Unwatch(member.clone()))?),
        }
    }

    /// Takes back what can be taken back: a command is killed. Returns whether nothing of it is on the node.
    pub(super) fn undo(&self) -> bool {
        let working = find_node(&self.node).and_then(|session| working_of(session.pid));
        let Ok(working) = working else { return false };
        let (emu, member) = (working.pid, &self.member);
        let came = || working.joined.iter().filter(|joined| joined.of == *member).map(|joined| joined.pid);
        match &self.what {
            What::Join(pids) => leave(&working, pids).is_ok(),
            What::Leave(pids) => take(emu, member, pids).is_ok(),
            What::Watch => {
                let unwatched = order(emu, &Request::Unwatch(member.clone()));
                unwatched.and_then(|()| leave(&working, &came().collect::<Vec<_>>())).is_ok()
            }
            What::Unwatch => order(emu, &Request::Watch(member.clone())).is_ok(),
            What::Start => came().all(|pid| {
                let killed = rustix::process::Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
                matches!(killed, Some(Ok(()) | Err(Errno::SRCH)))
            }),
        }
    }
}

/// A process that has ended meanwhile is none that fails. Where a member is not watched, children that were born meanwhile
/// are looked for.
fn take(emu: Pid, member: &Member, pids: &[Pid]) -> Result<()> {
    let mut done = working_of(emu)?.members;
    for _ in 0..PASSES {
        let mut new = if member.comes_again() { pids.to_vec() } else { family(pids.to_vec())? };
        new.retain(|pid| !done.contains(pid) && lives(*pid));
        if new.is_empty() {
            return Ok(());
        }
        for pid in new {
            let joined = order(emu, &Request::Join(pid, Some(member.clone())));
            joined.or_else(|error| if lives(pid) { Err(error) } else { Ok(()) })?;
            done.push(pid);
        }
    }
    Err(Error::unavailable(format!("{member} has new children faster than they join")))
}

/// Has those leave that are there still, with their children. One may end meanwhile.
fn let_go(emu: Pid, pids: &[Pid]) -> Result<()> {
    let there = still_there(emu, pids)?;
    if there.is_empty() {
        return Ok(());
    }
    let left = order(emu, &Request::Leave(there));
    left.or_else(|error| if still_there(emu, pids)?.is_empty() { Ok(()) } else { Err(error) })
}

/// The same, but others that leave with them, as children, join again.
fn leave(before: &Working, pids: &[Pid]) -> Result<()> {
    let emu = before.pid;
    let_go(emu, pids)?;
    let stay = before.joined.iter().filter(|joined| !pids.contains(&joined.pid));
    stay.cloned().try_for_each(|Joined { pid, of }| take(emu, &of, &[pid]))
}

/// Those of these processes that are on the node of this emu.
fn still_there(emu: Pid, pids: &[Pid]) -> Result<Vec<Pid>> {
    let members = working_of(emu)?.members;
    Ok(pids.iter().filter(|pid| members.contains(pid)).copied().collect())
}

/// Starts a command on the node of this emu, apart from this terminal.
fn start(emu: Pid, member: &Member) -> Result<(), Failure> {
    let Member::Run(command) = member else { return Ok(()) };
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let mut slow = SlowCommand::new(program);
    slow.args(arguments).stdin(Stdio::Null).stdout(Stdio::Null).stderr(Stdio::Null);
    let mut gated = slow.gate()?;
    own_group(&gated)?;
    order(emu, &Request::Join(gated.pid(), Some(member.clone())))?;
    Ok(gated.begin()?)
}
