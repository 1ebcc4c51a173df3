//! The side of the emu that is asked.

use std::io::ErrorKind::WouldBlock;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use emu_core::{Error, Pid, Result, Session, SpeedSpec, Tasks};

use super::{Reply, Request, Working, address, limit, peer, receive, send};

/// How long an emulation waits for one who asks it something and says nothing.
const PATIENCE: Duration = Duration::from_millis(200);

/// What another emu has changed.
#[derive(Debug)]
pub(crate) struct Change {
    /// When.
    pub(crate) at: Instant,
    /// What, in words.
    pub(crate) what: String,
}

/// Where an emu is asked.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    tasks: Tasks,
    name: String,
}

impl Control {
    /// Begins to listen for an emulation of these tasks.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub(crate) fn open(name: &str, tasks: Tasks) -> Result<Self> {
        let own = std::process::id() as Pid;
        let listener = UnixListener::bind_addr(&address(own)?)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|e| Error::io("cannot listen for `emu set` and `emu top`", e))?;
        Ok(Self { listener, tasks, name: name.to_owned() })
    }

    /// Answers all who have asked, and does what they ask for. Returns what has changed.
    ///
    /// Whoever breaks off, or may not ask, gets no answer, and the emulation goes on.
    pub(crate) fn answer(&self, session: &mut Session) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => changes.extend(self.serve(stream, session).ok().flatten()),
                Err(e) if e.kind() == WouldBlock => return changes,
                Err(_) => return changes,
            }
        }
    }

    fn serve(&self, mut stream: UnixStream, session: &mut Session) -> Result<Option<Change>> {
        let (pid, user) = peer(&stream)?;
        if user != 0 && user != nix::unistd::geteuid().as_raw() {
            return Ok(None);
        }
        limit(&stream, PATIENCE)?;
        let (reply, change) = match receive(&stream)? {
            Request::Status => (Reply::Status(Box::new(self.working(session))), None),
            Request::Set(speed) => match set(session, &speed) {
                Ok(speed) => {
                    let what = format!("the speed was set to {speed} by process {pid}");
                    (Reply::Done, Some(Change { at: Instant::now(), what }))
                }
                Err(why) => {
                    let hint = why.hint_text();
                    (Reply::Refused { kind: why.kind(), why: why.in_words(), hint }, None)
                }
            },
        };
        // What was changed is changed, whether they still listen or not.
        let _ = send(&mut stream, &reply);
        Ok(change)
    }

    fn working(&self, session: &Session) -> Working {
        Working {
            pid: std::process::id() as Pid,
            name: self.name.clone(),
            tasks: self.tasks.clone(),
            status: session.status(),
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn set(session: &mut Session, speed: &str) -> Result<SpeedSpec> {
    let speed: SpeedSpec = speed.parse()?;
    session.set_speed(&speed)?;
    Ok(speed)
}
