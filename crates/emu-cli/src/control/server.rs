//! The side of the emu that is asked.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use emu_core::{Error, Memory, Pid, Result, Session, SpeedSpec, Tasks, sleep};

use super::member::Member;
use super::source::Source;
use super::{Removal, Reply, Request, Setting, Working, address, limit, peer, receive, send};
use crate::zone::options::Options;

/// How long an emulation waits for one who asks it something and says nothing.
const PATIENCE: Duration = Duration::from_millis(200);

/// How many are answered before the emulation is looked after again: any user of the host may connect.
const AT_ONCE: usize = 16;

/// How long an emulation waits where it cannot be asked.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) at: Instant,
    pub(crate) what: String,
}

pub(crate) trait Asked {
    fn session(&mut self) -> &mut Session;

    fn follows(&self) -> Option<&Source> {
        None
    }

    fn speed_was_set(&mut self) {}

    /// The memory of a node, where it is limited.
    fn memory(&self) -> Result<Option<Memory>> {
        Ok(None)
    }

    fn set_memory(&mut self, _bytes: u64) -> Result<()> {
        Err(no_node())
    }

    /// Adds what its session does not tell, and a node has.
    fn tell(&self, _working: &mut Working) {}

    /// Has a process join, as part of a member if it is one.
    fn join(&mut self, _pid: Pid, _of: Option<Member>) -> Result<()> {
        Err(no_node())
    }

    /// Has processes leave, with their children.
    fn leave(&mut self, _pids: &[Pid]) -> Result<()> {
        Err(no_node())
    }

    /// Has what a member has from now on join, or stay where it is.
    fn watch(&mut self, _member: &Member, _joins: bool) -> Result<()> {
        Err(no_node())
    }

    /// Prepares its end: kills what is in it, lets it be, or refuses while something is.
    fn remove(&mut self, _how: Removal) -> Result<()> {
        Err(no_node())
    }
}

/// Changes all of it or nothing.
fn set(asked: &mut dyn Asked, to: &Setting) -> Result<()> {
    let before = if to.memory.is_some() { asked.memory()? } else { None };
    to.memory.map_or(Ok(()), |bytes| asked.set_memory(bytes))?;
    let set = to.speed.as_ref().map_or(Ok(()), |speed| set_speed(asked, speed));
    if let (Err(_), Some(before)) = (&set, before) {
        asked.set_memory(before.limit)?;
    }
    set
}

/// A speed that was set would last until the next step of a trace.
fn set_speed(asked: &mut dyn Asked, speed: &SpeedSpec) -> Result<()> {
    match asked.follows() {
        Some(source) => Err(Error::usage(format!("its speed follows {}", source.file.display()))
            .hint("end it, and begin it with --speed")),
        None => asked.session().set_speed(speed).map(|()| asked.speed_was_set()),
    }
}

fn no_node() -> Error {
    Error::usage("this is no node").hint("`emu node list` names those that there are")
}

#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    tasks: Tasks,
    name: String,
}

impl Control {
    pub(crate) fn open(name: &str, tasks: Tasks) -> Result<Self> {
        let own = std::process::id() as Pid;
        let listener = UnixListener::bind_addr(&address(own)?)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|e| Error::io("cannot listen for `emu set` and `emu top`", e))?;
        Ok(Self { listener, tasks, name: name.to_owned() })
    }

    /// Answers all who have asked, and returns what has changed. Whoever breaks off, or may not ask, gets no answer.
    pub(crate) fn answer(&self, asked: &mut dyn Asked) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((stream, _)) => changes.extend(self.serve(stream, asked).ok().flatten()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // Whoever asks stays in the queue, as while no descriptor is free: the caller would not wait.
                Err(_) => {
                    sleep(PAUSE);
                    break;
                }
            }
        }
        changes
    }

    fn serve(&self, mut stream: UnixStream, asked: &mut dyn Asked) -> Result<Option<Change>> {
        let (pid, user) = peer(&stream)?;
        if user != 0 && user != nix::unistd::geteuid().as_raw() {
            return Ok(None);
        }
        limit(&stream, PATIENCE)?;
        let request = receive(&stream)?;
        let outcome = match &request {
            Request::Status => Ok(()),
            Request::Set(to) => set(asked, to),
            Request::Join(pid, of) => asked.join(*pid, of.clone()),
            Request::Leave(pids) => asked.leave(pids),
            Request::Watch(member) => asked.watch(member, true),
            Request::Unwatch(member) => asked.watch(member, false),
            Request::Remove(how) => asked.remove(*how),
        };
        let reply = match (&request, &outcome) {
            (Request::Status, _) => Reply::Status(Box::new(self.working(asked))),
            (_, Ok(())) => Reply::Done,
            (_, Err(why)) => Reply::Refused { kind: why.kind(), why: why.in_words(), hint: why.hint_text() },
        };
        // What was changed is changed, whether they still listen or not.
        let _ = send(&mut stream, &reply);
        Ok(match (request, outcome) {
            (Request::Set(Setting { speed: Some(speed), .. }), Ok(())) => {
                let what = format!("the speed was set to {speed} by process {pid}");
                Some(Change { at: Instant::now(), what })
            }
            _ => None,
        })
    }

    fn working(&self, asked: &mut dyn Asked) -> Working {
        let mut working = Working {
            pid: std::process::id() as Pid,
            name: self.name.clone(),
            tasks: self.tasks.clone(),
            members: Vec::new(),
            joined: Vec::new(),
            watched: Vec::new(),
            follows: asked.follows().cloned(),
            like: None,
            memory: None,
            exclusive: None,
            options: Options::of(asked.session().demand()),
            status: asked.session().status(),
        };
        asked.tell(&mut working);
        match asked.memory() {
            Ok(memory) => working.memory = memory,
            Err(why) => working.status.add_problem(why.in_words()),
        }
        working
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
