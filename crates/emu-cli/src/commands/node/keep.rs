//! The emu that keeps a node: it has no terminal, and ends when it is asked to.

use std::fs::{self, File};
use std::io::{self, Write, stdout};
use std::os::fd::{AsFd, RawFd};
use std::time::{Duration, Instant};

use emu_core::{Error, Host, Memory, Node, NodeOptions, Pid, Result, Roots, Session, Tasks};
use nix::libc::STDERR_FILENO;
use nix::unistd::{close, dup2_stderr, dup2_stdout, setsid};

use super::args::CreateArgs;
use super::killed::Mark;
use super::show;
use super::watched::{self, Watched};
use crate::control::{Asked, Control, Joined, Member, Removal, Source, Working};
use crate::exit::{Exit, Failure};
use crate::host;
use crate::output::file::OutputFile;
use crate::output::stderr::say_the_rest;
use crate::signals::{Came, Signals, until};
use crate::supervise::lives;
use crate::zone::follow::Follow;
use crate::zone::plan::Plan;
use crate::zone::record::Record;
use crate::zone::tell::Report;

/// The line that it writes when the node is there.
pub(super) const READY: &str = "ready";

/// How often it looks for signals that it was not woken for.
const LOOK: Duration = Duration::from_secs(60);

pub(super) fn keep(args: &CreateArgs) -> Result<Exit, Failure> {
    close_inherited(&Roots::system())?;
    let signals = Signals::block()?;
    // It fails where this leads a group already; then there is no terminal to leave either.
    let _ = setsid();
    let (host, restored) = host::restored()?;
    let mut plan = Plan::new(&host, &args.zone, &signals)?;
    let json = args.json.as_deref().map(OutputFile::open).transpose()?;
    // It is not to keep a file system from being unmounted.
    let _ = std::env::set_current_dir("/");
    let keeps_steps = json.is_some();
    let mut report = Report::new(args.quiet, json, Record::of_node(&plan, &args.name));
    let name = format!("{}{}", super::PREFIX, args.name);
    let options = NodeOptions { memory: args.memory, exclusive: args.exclusive };
    let (mut node, other) = plan.engage(|prepared| {
        let mut node = Node::create_with(prepared, &name, options)?;
        // One of this name may have been made meanwhile.
        let is_new = node.session().others().iter().all(|other| other.name != name);
        if is_new { Ok(node) } else { Err(super::is_taken(&args.name)) }
    })?;
    report.begin(&plan, &format!("node {}: ", args.name));
    report.tell(&restored);
    report.engaged(&plan, other, node.session());
    report.tell(&node.exclusive().iter().flat_map(show::exclusive).collect::<Vec<_>>());
    let control = Control::open(&name, Tasks::Processes(Vec::new()))?;
    let like = plan.like.take().map(|like| like.source);
    super::asked_to_end(&signals)?;
    let mark = Mark::set(&host.roots, &args.name)?;
    if let Err(why) = leave_streams(&host.roots) {
        // Whoever wants the node is gone.
        mark.clear();
        return Err(why.into());
    }
    let (follow, joined, watched) = (plan.trace.take(), Vec::new(), Vec::new());
    let mut kept = Kept { host, node, follow, like, joined, watched, is_ending: false };

    let begun = Instant::now();
    kept.follow.iter_mut().for_each(|follow| follow.player.begin());
    while !kept.is_ending {
        let due = kept.follow.as_ref().and_then(|follow| follow.player.due());
        let look = if kept.watched.is_empty() { LOOK } else { watched::LOOK };
        let came = signals.wait_for_end(&[control.as_fd()], None, until(due, look))?;
        if let Kept { node, follow: Some(follow), .. } = &mut kept {
            follow.play(node.session());
            if !keeps_steps {
                // Nobody asks for them.
                drop(node.session().take_stretches());
            }
        }
        kept.is_ending |= came == Came::End;
        control.answer(&mut kept);
        if !kept.is_ending {
            kept.take_in_new();
        }
    }
    mark.clear();
    let Kept { mut node, follow, .. } = kept;
    report.followed(node.session(), follow.as_ref());
    let (wall, (status, removed)) = (begun.elapsed(), node.remove());
    let exit = report.end(&status, wall, Exit::Success);
    removed?;
    Ok(exit)
}

/// Closes what the caller has left open, which the node would keep open: a lock, say. Nothing of emu's own is open yet.
fn close_inherited(roots: &Roots) -> Result<()> {
    let folder = roots.proc.join("self/fd");
    let failed = |e| Error::file("list", &folder, e);
    let number =
        |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_str().and_then(|n| n.parse().ok()));
    let open: Vec<Option<RawFd>> =
        fs::read_dir(&folder).and_then(|all| all.map(number).collect::<io::Result<_>>()).map_err(failed)?;
    for number in open.into_iter().flatten().filter(|number| *number > STDERR_FILENO) {
        // That of the list is closed already.
        let _ = close(number);
    }
    Ok(())
}

/// Says that the node is there, and lets go of the streams through which it has said so.
fn leave_streams(roots: &Roots) -> Result<()> {
    let failed = |e| Error::io("cannot let go of the standard streams", e);
    say_the_rest();
    writeln!(stdout(), "{READY}").and_then(|()| stdout().flush()).map_err(failed)?;
    let null = File::options().write(true).open(roots.dev.join("null")).map_err(failed)?;
    let replaced = dup2_stdout(&null).and_then(|()| dup2_stderr(&null));
    replaced.map_err(|e| failed(e.into()))
}

struct Kept {
    host: Host,
    node: Node,
    follow: Option<Follow>,
    like: Option<Source>,
    joined: Vec<Joined>,
    watched: Vec<Watched>,
    is_ending: bool,
}

impl Kept {
    /// Has what has come of the watched members join.
    fn take_in_new(&mut self) {
        let Self { host, node, watched, joined, .. } = self;
        for watched in watched {
            let new = watched.new_ones(host);
            if new.is_empty() {
                continue;
            }
            let members = node.members();
            joined.retain(|joined| members.contains(&joined.pid));
            for pid in new {
                let is_there = members.contains(&pid);
                match if is_there { Ok(()) } else { node.adopt(pid) } {
                    Ok(()) => {
                        watched.has_joined(pid);
                        joined.extend((!is_there).then(|| Joined { pid, of: watched.member.clone() }));
                    }
                    // It may have ended meanwhile.
                    Err(why) if lives(pid) => watched.was_refused(pid, &why),
                    Err(_) => {}
                }
            }
        }
    }

    /// The members that are there by a file.
    fn joined(&self) -> Vec<Joined> {
        let members = self.node.members();
        self.joined.iter().filter(|joined| members.contains(&joined.pid)).cloned().collect()
    }
}

impl Asked for Kept {
    fn session(&mut self) -> &mut Session {
        self.node.session()
    }

    fn follows(&self) -> Option<&Source> {
        self.follow.as_ref().map(|follow| &follow.source)
    }

    /// It is no longer as fast as another machine.
    fn speed_was_set(&mut self) {
        self.like = None;
    }

    fn memory(&self) -> Result<Option<Memory>> {
        self.node.memory()
    }

    fn set_memory(&mut self, bytes: u64) -> Result<()> {
        self.node.set_memory(bytes)
    }

    fn tell(&self, working: &mut Working) {
        let problem = self.node.check_groups().err().map(|why| why.in_words());
        let of_watched = || self.watched.iter().find_map(Watched::problem).map(str::to_owned);
        problem.or_else(of_watched).into_iter().for_each(|why| working.status.add_problem(why));
        working.like.clone_from(&self.like);
        working.exclusive = self.node.exclusive();
        (working.members, working.joined) = (self.node.members(), self.joined());
        working.watched = self.watched.iter().map(|watched| watched.member.clone()).collect();
    }

    fn watch(&mut self, member: &Member, joins: bool) -> Result<()> {
        self.watched.retain(|watched| watched.member != *member);
        if joins {
            self.watched.push(Watched::new(&self.host, member)?);
        }
        Ok(())
    }

    fn join(&mut self, pid: Pid, of: Option<Member>) -> Result<()> {
        if self.is_ending {
            return Err(
                Error::unavailable("the node is being removed").hint("make it again: `emu node create`")
            );
        }
        self.node.adopt(pid)?;
        self.joined = self.joined();
        self.joined.extend(of.map(|of| Joined { pid, of }));
        Ok(())
    }

    fn leave(&mut self, pids: &[Pid]) -> Result<()> {
        self.node.leave(pids)?;
        self.joined = self.joined();
        Ok(())
    }

    fn remove(&mut self, how: Removal) -> Result<()> {
        if how == Removal::Kill {
            self.node.kill()?;
        }
        let members = self.node.members();
        if let Some(first) = members.first().filter(|_| how != Removal::Free) {
            let message =
                format!("processes run on this node: {} of them, as process {first}", members.len());
            return Err(Error::usage(message)
                .hint("end them first, or have them killed (--kill) or set free (--free)"));
        }
        self.is_ending = true;
        Ok(())
    }
}
