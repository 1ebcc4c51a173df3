//! The side of the emu that asks.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use emu_core::{
    Error, Exclusive, LiveSession, Memory, Pid, Result, Roots, SpeedSpec, Status, Tasks, line_of,
    live_sessions, sleep,
};
use nix::libc;
use serde::{Deserialize, Serialize};

use super::member::{Joined, Member};
use super::source::Source;
use super::{Removal, Reply, Request, Setting, address, limit, peer, receive, send};
use crate::supervise::descendants;
use crate::zone::options::Options;

/// How long an emu may take to answer: a status may wait for its controllers.
const PATIENCE: Duration = Duration::from_secs(3);

/// The same where it kills what is in its node, lets it leave, or has the kernel take memory back.
const LONG_PATIENCE: Duration = Duration::from_secs(15);

/// How long to wait before the next try.
const PAUSE: Duration = Duration::from_millis(20);

/// An emulation at work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Working {
    /// The process of its emu.
    pub(crate) pid: Pid,
    /// The command, or what it was attached to.
    pub(crate) name: String,
    /// The tasks that it was made for.
    pub(crate) tasks: Tasks,
    /// The processes that have joined a node.
    pub(crate) members: Vec<Pid>,
    /// Those of them that are there by a file.
    pub(crate) joined: Vec<Joined>,
    /// Units, containers and cgroups of a file whose processes join whenever they come.
    pub(crate) watched: Vec<Member>,
    /// The trace that it follows.
    pub(crate) follows: Option<Source>,
    /// The machine that it is to be as fast as.
    pub(crate) like: Option<Source>,
    /// The memory of a node, where it is limited.
    pub(crate) memory: Option<Memory>,
    /// What is kept off the CPUs of an exclusive node, and what stays.
    pub(crate) exclusive: Option<Exclusive>,
    /// What it was asked for beside the speed.
    pub(crate) options: Options,
    /// How it goes.
    pub(crate) status: Status,
}

impl Working {
    /// `None` where they cannot be listed.
    pub(crate) fn processes(&self, roots: &Roots) -> Option<usize> {
        match &self.tasks {
            Tasks::Processes(pids) if pids.is_empty() => Some(self.members.len()),
            Tasks::Processes(pids) => {
                let own = pids.iter().filter(|pid| roots.proc.join(pid.to_string()).exists()).count();
                Some(own + descendants(pids).ok()?.len())
            }
            Tasks::Cgroup(_) => {
                let all = fs::read_dir(&roots.proc).ok()?.flatten();
                let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
                Some(pids.filter(|pid| slows(roots, &self.tasks, *pid)).count())
            }
        }
    }
}

/// The emulations at work under the caller's user, in the order of their processes.
pub(crate) fn sessions(roots: &Roots) -> Result<Vec<LiveSession>> {
    let mut sessions = live_sessions(roots)?;
    sessions.retain(|session| !session.is_tuning());
    sessions.sort_unstable_by_key(|session| session.pid);
    Ok(sessions)
}

/// How each of them goes; of one that does not answer within some seconds, why.
pub(crate) fn asked(sessions: Vec<LiveSession>) -> Vec<(LiveSession, Result<Working>)> {
    sessions.into_iter().map(|session| (working(session.pid), session)).map(|(how, of)| (of, how)).collect()
}

/// Sets the speed of the emulation whose emu this process is, or that slows it. Returns the emulation as it was.
pub(crate) fn set_speed(roots: &Roots, pid: Pid, speed: &SpeedSpec) -> Result<LiveSession> {
    let line = line_of(&roots.proc, pid);
    let mut found: Vec<(usize, LiveSession, Result<()>)> = Vec::new();
    for (session, working) in asked(sessions(roots)?) {
        let is_known = |wanted: &Pid| line.iter().position(|one| one == wanted);
        let (tasks, outcome) = match working {
            Ok(Working { tasks: Tasks::Processes(pids), members, .. }) => ([pids, members].concat(), Ok(())),
            Ok(Working { tasks, .. }) if slows(roots, &tasks, pid) => (vec![pid], Ok(())),
            Ok(_) => (Vec::new(), Ok(())),
            Err(why) => (Vec::new(), Err(why)),
        };
        // An ancestor may be in another zone than a process that has left it for a node.
        let nearest = tasks.iter().chain([&session.pid]).filter_map(is_known).min();
        found.extend(nearest.map(|distance| (distance, session, outcome)));
    }
    let Some((_, session, outcome)) = found.into_iter().min_by_key(|(distance, ..)| *distance) else {
        return Err(Error::usage(format!("no emulation of yours slows process {pid}"))
            .hint("`emu top` lists those that there are"));
    };
    outcome?;
    order(session.pid, &Request::Set(Setting::of_speed(speed))).map(|()| session)
}

pub(crate) fn working(emu: Pid) -> Result<Working> {
    match ask(emu, &Request::Status)? {
        Reply::Status(working) => Ok(*working),
        _ => Err(Error::unavailable(format!("emu {emu} answers something else"))),
    }
}

/// Has the emu do what is requested; fails with its words where it refuses.
pub(crate) fn order(emu: Pid, request: &Request) -> Result<()> {
    match ask(emu, request)? {
        Reply::Refused { kind, why, hint } => Err(hint.into_iter().fold(Error::new(kind, why), Error::hint)),
        Reply::Done | Reply::Status(_) => Ok(()),
    }
}

/// An emu waits shortly for one who has connected and says nothing, which may be as this process is slowed itself: it is asked
/// again.
fn ask(emu: Pid, request: &Request) -> Result<Reply> {
    let end = Instant::now() + PATIENCE;
    loop {
        match ask_once(emu, request) {
            Err(why) if is_unread(&why) && Instant::now() < end => sleep(PAUSE),
            answer => return answer,
        }
    }
}

/// Whether the other side has hung up without having read all of the request, and so has done nothing (`unix_release_sock` in
/// `net/unix/af_unix.c`). After one that was read there is no reply, or a part of one.
fn is_unread(why: &Error) -> bool {
    let cause = std::error::Error::source(why).and_then(|cause| cause.downcast_ref::<Error>());
    matches!(cause.and_then(Error::raw_os_error), Some(libc::EPIPE | libc::ECONNRESET))
}

fn ask_once(emu: Pid, request: &Request) -> Result<Reply> {
    let silent = |e: Error| {
        let why = Error::unavailable(format!("emu {emu} does not answer"));
        // That its time is over.
        let why = if e.raw_os_error() == Some(libc::EAGAIN) { why } else { why.caused_by(e) };
        why.hint(
            "it may be one that measures, stopped, just beginning, in another network namespace, or of another version",
        )
    };
    let connected = UnixStream::connect_addr(&address(emu)?);
    let mut stream = connected.map_err(|e| silent(Error::io("cannot connect to it", e)))?;
    // Anybody may have taken the name.
    let (pid, user) = peer(&stream)?;
    if pid != emu || (user != 0 && user != nix::unistd::geteuid().as_raw()) {
        return Err(Error::not_permitted(format!("process {pid} of user {user} poses as emu {emu}")));
    }
    let takes_long = matches!(
        request,
        Request::Remove(Removal::Kill) | Request::Leave(_) | Request::Set(Setting { memory: Some(_), .. })
    );
    limit(&stream, if takes_long { LONG_PATIENCE } else { PATIENCE })?;
    send(&mut stream, request).and_then(|()| receive(&stream)).map_err(silent)
}

/// Whether a process is in the cgroup that an emulation was made for.
fn slows(roots: &Roots, tasks: &Tasks, pid: Pid) -> bool {
    let Tasks::Cgroup(group) = tasks else { return false };
    let groups = fs::read_to_string(roots.proc.join(pid.to_string()).join("cgroup")).unwrap_or_default();
    let mut paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.any(|path| Path::new(path).starts_with(group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn what_was_not_read_is_asked_again_and_what_was_read_is_not() {
        let own = std::process::id() as Pid;
        let listener = UnixListener::bind_addr(&address(own).unwrap()).unwrap();
        let accept = || listener.accept().unwrap().0;
        thread::scope(|scope| {
            let order = || scope.spawn(|| order(own, &Request::Remove(Removal::Free)));
            let asking = order();
            drop(accept());
            let unread = accept();
            // The request has come by then.
            receive_some(&unread);
            drop(unread);
            let mut stream = accept();
            assert_eq!(receive::<Request>(&stream).unwrap(), Request::Remove(Removal::Free));
            send(&mut stream, &Reply::Done).unwrap();
            asking.join().unwrap().unwrap();

            let asking = order();
            receive::<Request>(&accept()).unwrap();
            asking.join().unwrap().unwrap_err();
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err());
        });
    }

    /// Takes the first byte of a request.
    fn receive_some(mut stream: &UnixStream) {
        std::io::Read::read_exact(&mut stream, &mut [0]).unwrap();
    }
}
