//! How one emu asks another that is at work: what `emu set`, `emu top` and `emu node` stand on.
//!
//! An emu that emulates listens at an abstract socket of its process number (`unix(7)`), which goes with it however it
//! ends. It answers its own user and root alone: one line of JSON for one.

mod client;
mod member;
mod server;
mod source;

pub(crate) use client::{Working, asked, order, sessions, set_speed, working};
pub(crate) use member::{Joined, Member};
pub(crate) use server::{Asked, Change, Control};
pub(crate) use source::Source;

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use emu_bench::numbers::whole_size;
use emu_core::{Error, ErrorKind, Pid, Result, SpeedSpec};
use nix::sys::socket::{getsockopt, sockopt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// How the emulation goes.
    Status,
    /// Another speed, or memory.
    Set(Setting),
    /// That a process joins the node, and as part of which member.
    Join(Pid, Option<Member>),
    /// That processes leave the node, with their children.
    Leave(Vec<Pid>),
    /// That what this member has later joins the node, too, as soon as it comes.
    Watch(Member),
    /// That it does no longer.
    Unwatch(Member),
    /// That the node ends.
    Remove(Removal),
}

/// What can be changed of an emulation; the memory of a node only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) speed: Option<SpeedSpec>,
    /// In bytes.
    pub(crate) memory: Option<u64>,
}

impl Setting {
    fn of_speed(speed: &SpeedSpec) -> Self {
        Self { speed: Some(speed.clone()), memory: None }
    }
}

/// In the words of the options.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let speed = self.speed.as_ref().map(|speed| format!("--speed={speed}"));
        let memory = self.memory.map(|bytes| format!("--memory={}", whole_size(bytes)));
        f.write_str(&speed.into_iter().chain(memory).collect::<Vec<_>>().join(" "))
    }
}

/// What becomes of what is on a node at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Removal {
    /// Nothing may be there.
    Empty,
    /// It is killed.
    Kill,
    /// It runs on freely.
    Free,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    Status(Box<Working>),
    /// What was asked for is done, or begun where it takes its time.
    Done,
    Refused {
        kind: ErrorKind,
        why: String,
        hint: Option<String>,
    },
}

/// No line is longer: a status of a thousand CPUs has half a megabyte.
const LINE_MAX: u64 = 4 << 20;

fn address(emu: Pid) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("emu-{emu}"))
        .map_err(|e| Error::io(format!("cannot name the socket of emu {emu}"), e))
}

/// The process and the user at the other end, as the kernel has them (`SO_PEERCRED`).
fn peer(stream: &UnixStream) -> Result<(Pid, u32)> {
    let peer = getsockopt(stream, sockopt::PeerCredentials)
        .map_err(|e| Error::io("cannot tell who asks", e.into()))?;
    Ok((peer.pid(), peer.uid()))
}

fn send(stream: &mut UnixStream, message: &impl Serialize) -> Result<()> {
    let failed = |e| Error::io("cannot write to another emu", e);
    let line = serde_json::to_string(message).map_err(|e| failed(e.into()))?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(failed)
}

fn receive<T: DeserializeOwned>(stream: &UnixStream) -> Result<T> {
    let failed = |e| Error::io("cannot read from another emu", e);
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line).map_err(failed)?;
    serde_json::from_str(&line).map_err(|e| failed(e.into()))
}

fn limit(stream: &UnixStream, time: Duration) -> Result<()> {
    stream
        .set_read_timeout(Some(time))
        .and_then(|()| stream.set_write_timeout(Some(time)))
        .map_err(|e| Error::io("cannot limit the time to wait for another emu", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_and_comes_back_as_it_was() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let speed = Setting::of_speed(&"0=33.333333%,1=1.2345678GHz".parse().unwrap());
        for request in [Request::Status, Request::Set(Setting { memory: Some(4096), ..speed })] {
            send(&mut here, &request).unwrap();
            assert_eq!(receive::<Request>(&there).unwrap(), request);
        }
        let reply = Reply::Refused { kind: ErrorKind::Usage, why: "one\ntwo".into(), hint: None };
        send(&mut here, &reply).unwrap();
        assert_eq!(receive::<Reply>(&there).unwrap(), reply);
    }

    #[test]
    fn what_is_no_message_is_refused_and_nobody_waits_for_ever() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(b"{\"set\": 7}\n").unwrap();
        assert!(receive::<Request>(&there).is_err());
        limit(&there, Duration::from_millis(10)).unwrap();
        assert!(receive::<Request>(&there).is_err());
        drop(here);
        assert!(receive::<Request>(&there).is_err());
    }
}
